"""Records of a key that wait in state for event time: a map from time, number and headers to values, by time."""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.operators.classes.operator import Context, Operator
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.headers import packed, unpacked
from stateflow.record import Headers, RecordBatch
from stateflow.state.layout import split_prefixed
from stateflow.state.mapof import MapOf
from stateflow.store.base import StateStore

_ENTRY = struct.Struct(">QI")
_RELEASE = "release"
_FEW = 8
"""Entries of a map that are looked at together: of most keys that is all."""

Waiting = MapOf[bytes, Any]


class Buffered(NamedTuple):
    """A record whose time has come."""

    at_ms: int
    value: Any
    headers: Headers
    port: str = ""
    """The input it came by, of an operator with several."""


class BufferingOperator(Operator[Any, Any, Any]):
    """Base of operators that keep each record until event time is ``waits_ms`` past it."""

    waits_ms: int
    guard: Guard
    """What is done about one of the records that are released together and fails."""

    @abstractmethod
    def places(self) -> dict[str, Waiting]:
        """Where the records of each input wait."""

    def keep_in(self, waiting: Waiting, value: Any, ctx: Context[Any]) -> None:
        """Keep a record until its time has come. Raises ``ValueError`` for one without an event time."""
        at_ms = ctx.timestamp_ms
        if at_ms < 0:
            raise ValueError("the record has no event time")
        waiting.put(next_entry(waiting, at_ms) + packed(ctx.headers), value)
        due_ms, before_ms = at_ms + self.waits_ms, ctx.timer_due_ms(_RELEASE)
        if before_ms is None or due_ms < before_ms:
            ctx.timer(_RELEASE, at=due_ms)

    def on_timer(self, name: str, ctx: Context[Any]) -> None:  # noqa: ARG002 - it has but one
        """Let those go whose time has come: all of one time in one turn."""
        until_ms = ctx.timestamp_ms - self.waits_ms
        rows, next_ms = list[Buffered](), list[int]()
        for port, waiting in self.places().items():
            ready, left_ms = ready_until(waiting, until_ms)
            next_ms += [] if left_ms is None else [left_ms]
            for entry, _ in ready:
                waiting.remove(entry)
            rows += [Buffered(time_of(entry), value, headers_in(entry), port) for entry, value in ready]
        self.release(sorted(rows, key=time_of_row), ctx)
        if next_ms:
            ctx.timer(_RELEASE, at=min(next_ms) + self.waits_ms)

    @abstractmethod
    def release(self, rows: list[Buffered], ctx: Context[Any]) -> None:
        """Pass on records, in the order of time, then of their inputs, then of arrival."""


class BufferingInOne(BufferingOperator):
    """Base of those with one input. Subclasses declare the map."""

    waiting: MapOf[bytes, Any]

    def places(self) -> dict[str, Waiting]:
        """The map."""
        return {"": self.waiting}

    def keep(self, value: Any, ctx: Context[Any]) -> None:
        """Keep a record until its time has come. Raises ``ValueError`` for one without an event time."""
        self.keep_in(self.waiting, value, ctx)


def last_due_ms(waiting: StateStore, waits_ms: int) -> int:
    """When the last record of a store has waited long enough: a timer knows of the first of its key only."""
    times: Iterable[int] = (time_of(split_prefixed(key)[1]) for key, _ in waiting.scan(b"", None))
    return max((at_ms + waits_ms for at_ms in times), default=UNKNOWN_MS)


def time_of_row(row: Buffered) -> int:
    """What records are sorted by first."""
    return row.at_ms


def at_own_times(out: RecordBatch) -> RecordBatch:
    """Rows whose marks are their own times: what stands behind is told of event time as much later as they wait."""
    out.marks_ms = None
    return out


def next_entry(waiting: Waiting, at_ms: int) -> bytes:
    """The map key for one more record of that time, behind those that wait already."""
    same = waiting.range(first_at(at_ms), first_at(at_ms + 1))
    return _ENTRY.pack(at_ms, _ENTRY.unpack_from(same[-1][0])[1] + 1 if same else 0)


def ready_until(waiting: Waiting, until_ms: int) -> tuple[list[tuple[bytes, Any]], int | None]:
    """The entries up to a time, and the time of the first one after them, if there is one."""
    after = first_at(until_ms + 1)
    few = waiting.range(limit=_FEW)
    if len(few) < _FEW or few[-1][0] >= after:
        over = [each for each in few if each[0] < after]
        return over, time_of(few[len(over)][0]) if len(over) < len(few) else None
    over, following = waiting.range(None, after), waiting.range(after, limit=1)
    return over, time_of(following[0][0]) if following else None


def first_at(at_ms: int) -> bytes:
    """No record of that time, or of a later one, comes before this map key; negative times are 0."""
    return _ENTRY.pack(max(0, at_ms), 0)


def time_of(entry: bytes) -> int:
    """The time of a record, ms."""
    return int(_ENTRY.unpack_from(entry)[0])


def headers_in(entry: bytes) -> Headers:
    """The headers of a record."""
    return unpacked(entry[_ENTRY.size :]) if len(entry) > _ENTRY.size else ()
