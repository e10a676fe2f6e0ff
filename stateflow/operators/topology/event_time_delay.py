"""How far the results of a stage's steps may lie behind event time.

A window's result has its window's start as its time and comes when the window closes; a row that a join has waited for
has its own time and comes when its interval closes. What stands behind such a step is told of event time that much
later, in the same stage and in the stages behind: so no result is late there, and what is late does not depend on
batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.graph import Node


def own_delay_ms(node: Node) -> int:
    """How far a step's results may lie behind what it is given."""
    return max(((store.window_ms or 0) + (store.grace_ms or 0) for store in node.stores), default=0)


def delays_ms(nodes: Sequence[Node]) -> dict[Node, int]:
    """For each node of a stage, parents first, how far what it is given may lie behind event time."""
    found: dict[Node, int] = {}
    for node in nodes:
        found[node] = max((found[parent] + own_delay_ms(parent) for parent in node.parents), default=0)
    return found


def hold_back_ms(nodes: Sequence[Node]) -> int:
    """How far what a stage sends may lie behind event time."""
    return max((delay_ms + own_delay_ms(node) for node, delay_ms in delays_ms(nodes).items()), default=0)


def moved_by_time_alone(nodes: Sequence[Node]) -> set[Node]:
    """The nodes of a stage, parents first, for which no row moves event time, but only what they are told.

    They are given rows by several ways, of which one waits: a row of the others may come long before those that wait
    with an earlier time. A row that comes alone by its way comes behind all that is before it.
    """
    ways: dict[Node, set[Node]] = {}
    for node in nodes:
        before = ({each} if each.is_source or own_delay_ms(each) else ways[each] for each in node.parents)
        ways[node] = set().union(*before)
    delays = delays_ms(nodes)
    return {node for node in nodes if delays[node] and len(ways[node]) > 1}


def delayed(watermark_ms: int, delay_ms: int) -> int:
    """Event time as a step learns of it that stands so far behind."""
    return max(UNKNOWN_MS, watermark_ms - delay_ms)


class DelayedContext:
    """The task as a step sees it that stands behind one with a delay: event time is that much earlier."""

    def __init__(self, context: StageContext, delay_ms: int, *, moves_with_rows: bool = True) -> None:
        self._context = context
        self._delay_ms = delay_ms
        self._moves_with_rows = moves_with_rows

    @property
    def watermark_ms(self) -> int:
        """Event time up to which what this step is given is complete."""
        return delayed(self._context.watermark_ms, self._delay_ms)

    @property
    def others_ms(self) -> int:
        """How far a row may move event time by itself: nowhere, where others may wait that come before it."""
        return self._context.others_ms if self._moves_with_rows else UNKNOWN_MS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
