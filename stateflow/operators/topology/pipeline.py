"""A stage at work: its nodes built into steps and wired to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.operators.steps.context import Burst, StageContext
from stateflow.operators.steps.origin import Origin
from stateflow.operators.steps.step import ANY_TIME_MS, Environment, Step
from stateflow.operators.steps.timers import SECONDS_PER_TURN, first_burst
from stateflow.operators.topology.event_time_delay import (
    DelayedContext,
    delayed,
    delays_ms,
    moved_by_time_alone,
)
from stateflow.operators.topology.graph import Node
from stateflow.record import RecordBatch

_MERGE = "merge"


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The nodes of one stage, each after its parents."""

    nodes: tuple[Node, ...]
    tell_origin: frozenset[str] = frozenset()
    """Its re-key steps behind which a record may become a dead letter."""

    def __call__(self, context: StageContext) -> StagePipeline:
        """Build the stage for one task."""
        return StagePipeline(self, context)


class StagePipeline:
    """Implements ``operators.context.Pipeline``."""

    def __init__(self, plan: StagePlan, context: StageContext) -> None:
        self._origin = Origin()
        delays, still = delays_ms(plan.nodes), moved_by_time_alone(plan.nodes)
        seen = {node: _as_seen(context, delays[node], moves=node not in still) for node in plan.nodes}
        steps = {
            node: node.make(Environment(seen[node], self._origin, plan.tell_origin))
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
        self._told_ms = UNKNOWN_MS
        self._sources: dict[str, list[Step]] = {}
        self._topics = {topic.name for node in plan.nodes for topic in node.topics}
        for node in plan.nodes:
            if node.is_source:
                for name in [topic.name for topic in node.topics] or [str(node.name)]:
                    self._sources.setdefault(name, []).append(steps[node])
        self._context = context
        self.needs_turns = any(step.needs_turns for step in self._steps)
        self.calls_application = any(step.calls_application for step in self._steps)

    def process(self, batch: RecordBatch) -> None:
        """Run raw records of one input partition through the stage."""
        port = self._context.port(batch.source.topic)
        self._origin.enter(batch, is_source=port in self._topics)
        for step in self._sources[port]:
            step.process(batch)
        self._origin.leave()
        self._records_total += len(batch)

    def first_burst(self, batch: RecordBatch) -> Burst | None:
        """The first row of a raw batch that makes more timers due than fire in one piece; changes nothing."""
        limits_ms = [(step.one_piece_until_ms(), delay_ms) for step, delay_ms in self._delays_ms.items()]
        until_ms = min((limit_ms + delay_ms for limit_ms, delay_ms in limits_ms), default=ANY_TIME_MS)
        if until_ms >= ANY_TIME_MS:
            return None
        source = self._sources_of(batch)[0]  # all of one topic tell the same times
        return first_burst(batch, source.event_times_ms, self._context, until_ms)

    def _sources_of(self, batch: RecordBatch) -> list[Step]:
        return self._sources[self._context.port(batch.source.topic)]

    def advance(self, watermark_ms: int) -> bool:
        """Tell every step, upstream first, so that what one closes reaches the next before it is told.

        True when a step has left timers for the next turn. For the steps behind it time then stands still: what
        these timers will send is not to be late there.

        It moves in strides where a step has timers and stands behind one that keeps records until event time has
        come: what that one lets go makes only so many due as may fire in one piece.
        """
        until_seconds = self._context.clock.monotonic_seconds() + SECONDS_PER_TURN
        while (stride_ms := self._stride_ms(watermark_ms)) < watermark_ms:
            self._told_ms = stride_ms
            if self._tell(stride_ms) or self._context.clock.monotonic_seconds() >= until_seconds:
                return True
        self._told_ms = watermark_ms
        return self._tell(watermark_ms)

    def _stride_ms(self, watermark_ms: int) -> int:
        ends_ms = [
            max(step.one_piece_until_ms(), step.first_due_ms()) + delay_ms
            for step, delay_ms in self._delays_ms.items()
            if delay_ms and step.is_timed
        ]
        return min(watermark_ms, max(self._told_ms, min(ends_ms, default=ANY_TIME_MS)))

    def _tell(self, watermark_ms: int) -> bool:
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


def _as_seen(context: StageContext, delay_ms: int, *, moves: bool) -> StageContext:
    if not delay_ms:
        return context
    return cast(StageContext, DelayedContext(context, delay_ms, moves_with_rows=moves))


def _parents(node: Node) -> Iterator[Node]:
    """The nodes whose rows a node gets. A merge has no step: who is behind it gets all that goes in."""
    for parent in node.parents:
        if parent.kind == _MERGE:
            yield from _parents(parent)
        else:
            yield parent
