"""A stage at work: its nodes built into steps and wired to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from stateflow.operators.context import StageContext
from stateflow.operators.event_time_delay import DelayedContext, delayed, delays_ms
from stateflow.operators.graph import Node
from stateflow.operators.guard import Origin
from stateflow.operators.step import Environment, Step
from stateflow.record import RecordBatch

_MERGE = "merge"


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The nodes of one stage, each after its parents."""

    nodes: tuple[Node, ...]

    def __call__(self, context: StageContext) -> StagePipeline:
        """Build the stage for one task."""
        return StagePipeline(self, context)


class StagePipeline:
    """Implements ``operators.context.Pipeline``."""

    def __init__(self, plan: StagePlan, context: StageContext) -> None:
        self._origin = Origin()
        delays = delays_ms(plan.nodes)
        steps = {
            node: node.make(Environment(_as_seen(context, delays[node]), self._origin))
            for node in plan.nodes
            if node.kind != _MERGE
        }
        for node, step in steps.items():
            for parent in _parents(node):
                steps[parent].children.append(step)
        self._steps = tuple(steps.values())
        self._delays_ms = {step: delays[node] for node, step in steps.items()}
        """How much later than the task each step learns of event time: what is before it gives late results."""
        self._records_total = 0
        self._sources: dict[str, list[Step]] = {}
        for node in plan.nodes:
            if node.is_source:
                for name in [topic.name for topic in node.topics] or [str(node.name)]:
                    self._sources.setdefault(name, []).append(steps[node])
        self._port = context.port

    def process(self, batch: RecordBatch) -> None:
        """Run raw records of one input partition through the stage."""
        self._origin.enter(batch)
        for step in self._sources[self._port(batch.source.topic)]:
            step.process(batch)
        self._origin.leave()
        self._records_total += len(batch)

    def advance(self, watermark_ms: int) -> bool:
        """Tell every step, upstream first, so that what one closes reaches the next before it is told.

        True when a step has left timers for the next turn. For the steps behind it time then stands still: what
        these timers will send is not to be late there.
        """
        held: set[Step] = set()
        is_left = False
        for step in self._steps:
            if step in held or step.advance(delayed(watermark_ms, self._delays_ms[step])):
                held.update(step.children)
                is_left = True
        return is_left

    def finish(self, watermark_ms: int, horizons_ms: list[int]) -> bool:
        """One turn of the end of the input: carry event time to what is pending, in one timed step after the other.

        A step's horizon is fixed when those before it are done, so what it is sent by them counts; what is set
        for later than that while it fires stays pending, so timers that set themselves again end. ``horizons_ms``
        belongs to the caller, who keeps it with its position: a successor goes on from there. True when more is left.
        """
        for number, step in enumerate(step for step in self._steps if step.is_timed):
            if number == len(horizons_ms):
                horizons_ms.append(max(watermark_ms, step.pending_until_ms()))
            if step.advance(horizons_ms[number]):
                return True
        for step in self._steps:
            if not step.is_timed:
                step.advance(max([watermark_ms, *horizons_ms]))
        return False

    def statistics(self) -> Iterator[tuple[str, int]]:
        """Counters of this pipeline."""
        yield "pipeline_records_total", self._records_total


def _as_seen(context: StageContext, delay_ms: int) -> StageContext:
    return cast(StageContext, DelayedContext(context, delay_ms)) if delay_ms else context


def _parents(node: Node) -> Iterator[Node]:
    """The nodes whose rows a node gets. A merge has no step: who is behind it gets all that goes in."""
    for parent in node.parents:
        if parent.kind == _MERGE:
            yield from _parents(parent)
        else:
            yield parent
