"""Which edges there are: each from its first record until nothing has come of it for long enough, or it is removed."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from stateflow.duration import whole_ms
from stateflow.operators.classes.operator import Context, Operator
from stateflow.state.declaration import state
from stateflow.state.value import Value

SELF_LOOPS = "self_loops_total"
"""The counter of records whose two ends are one vertex: they are no edges."""
_END = "end"


class Seen(msgspec.Struct, array_like=True, frozen=True):
    """A record of an edge."""

    one: str
    other: str
    is_removed: bool

    @property
    def edge(self) -> str:
        """What its records are brought together by."""
        return msgspec.json.encode([self.one, self.other]).decode()


class Changed(msgspec.Struct, array_like=True, frozen=True):
    """An edge of ``vertex`` came to be, or is gone."""

    vertex: str
    other: str
    is_added: bool


def seen(ends: tuple[str, str], *, is_removed: bool) -> Seen:
    """A record of an edge, its ends in their order. Raises ``TypeError`` for ends that are no text."""
    if not all(isinstance(end, str) for end in ends):
        raise TypeError(f"the ends of an edge are {ends!r}: vertices are named by text")
    one, other = sorted(ends)
    return Seen(one, other, is_removed)


def both_ends(change: Changed) -> list[Changed]:
    """What each of the two vertices is told of a change."""
    return [change, Changed(change.other, change.vertex, change.is_added)]


class Edges(Operator[str, Seen, Changed]):
    """Says of each edge when it comes to be, and when it is gone because a record says so."""

    last_ms: Value[int] = state(default=-1)

    def on_record(self, value: Seen, ctx: Context[Changed]) -> None:
        """The edge is seen, or removed."""
        if value.one == value.other:
            ctx.count(SELF_LOOPS)
            return
        before_ms = self.last_ms.get()
        if not value.is_removed:
            if before_ms < 0:
                ctx.emit(Changed(value.one, value.other, True), headers=())
            self.last_ms.set(max(before_ms, ctx.timestamp_ms, 0))
            self._wait(ctx)
        elif before_ms >= 0:
            self._end(Changed(value.one, value.other, False), ctx)

    def _wait(self, ctx: Context[Changed]) -> None:
        """Until its time is up; it has none."""

    def _end(self, change: Changed, ctx: Context[Changed]) -> None:
        self.last_ms.clear()
        ctx.emit(change, headers=())  # those of its records would go round for ever


class EdgesForAWhile(Edges):
    """Says so, too, once event time is so long past the latest record of an edge. Subclasses declare how long."""

    within_ms: int

    def on_timer(self, name: str, ctx: Context[Changed]) -> None:  # noqa: ARG002 - it has but one
        """Nothing has come of the edge for so long."""
        one, other = msgspec.json.decode(ctx.key, type=tuple[str, str])
        self._end(Changed(one, other, False), ctx)

    def _wait(self, ctx: Context[Changed]) -> None:
        ctx.timer(_END, at=self.last_ms.get() + self.within_ms)

    def _end(self, change: Changed, ctx: Context[Changed]) -> None:
        ctx.cancel_timer(_END)
        super()._end(change, ctx)


def edges_operator(within: timedelta | None) -> type[Edges]:
    """The operator for edges that are there for so long; None: until they are removed."""
    if within is None:
        return Edges

    chosen_ms = whole_ms(within)

    class Declared(EdgesForAWhile):
        within_ms = chosen_ms

    return Declared
