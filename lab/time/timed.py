"""Operators with timers and times to live, and what they must say, record by record.

Event time stands at a record's mark before the record is processed, so what is due by then fires first, in the order
in which it is due. A timer that is due at D runs as of D, unless it was set into the past: then as of the moment at
which it was set. What is read or written by a record is judged as of its mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import stateflow as sf
from stateflow.lab.time.logs import UNIT_MS, Row
from stateflow.lab.time.oracle import Place, Sequences, group_of, marked

IDLE_MS = 3 * UNIT_MS
RING_MS = UNIT_MS // 2
RINGS_MAX = 3
TTL_MS = 4 * UNIT_MS
LOOK_MS = 2 * UNIT_MS
_TAGS = 3


class Sessions(sf.Operator[str, int, Any]):
    """Counts until a key is silent, and rings an alarm a few times, now and then one that is overdue when it is set."""

    seen: sf.Counter = sf.state()
    rings: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int | None, ctx: sf.Context[Any]) -> None:
        """Count, and put off the end; a tombstone ends everything."""
        if value is None:
            self.seen.reset()
            ctx.cancel_timer("idle")
        else:
            self.seen.add()
            ctx.timer("idle", after=timedelta(milliseconds=IDLE_MS))
            if value % 4 == 0:
                self.rings.set(0)
                ctx.timer("alarm", at=ctx.timestamp_ms + (value - 8) * RING_MS // 4)
        ctx.emit(["record", ctx.timestamp_ms, self.seen.get()])

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        """Say what is due, and ring again."""
        ctx.emit([name, ctx.timestamp_ms, self.seen.get()])
        if name == "idle":
            self.seen.reset()
        elif self.rings.get() < RINGS_MAX:
            self.rings.set(self.rings.get() + 1)
            ctx.timer("alarm", after=timedelta(milliseconds=RING_MS))


class Forgetful(sf.Operator[str, int, Any]):
    """Remembers the last value and a few tags for a while, and looks at them later, by timer."""

    last: sf.Value[int | None] = sf.state(ttl=timedelta(milliseconds=TTL_MS))
    tags: sf.MapOf[int, int] = sf.state(ttl=timedelta(milliseconds=TTL_MS))

    def on_record(self, value: int | None, ctx: sf.Context[Any]) -> None:
        """Say what is known, then replace it."""
        ctx.emit(["record", ctx.timestamp_ms, self.last.get(), sorted(self.tags.items())])
        if value is None:
            self.last.clear()
            return
        self.last.set(value)
        self.tags.put(value % _TAGS, value)
        ctx.timer("look", after=timedelta(milliseconds=LOOK_MS))

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        """Say what is known as of then."""
        ctx.emit([name, ctx.timestamp_ms, self.last.get(), sorted(self.tags.items())])


class Emitted(NamedTuple):
    """A row that an operator must emit."""

    key: str
    value: list[Any]
    mark_ms: int


class _Timer(NamedTuple):
    due_ms: int
    name: str
    set_as_of_ms: int


class TimedOracle:
    """The part that operators with timers share: which is due when. Keys do not know of each other."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], _Timer] = {}
        self.emitted: list[Emitted] = []
        self.key = ""
        self.as_of_ms = -1

    def run(self, rows: Sequence[Row], groups: int) -> list[Emitted]:
        """Everything emitted for the rows; with ``groups`` under new keys, and so without tombstones."""
        for row, mark_ms in marked(rows):
            self._fire(mark_ms)
            if row.value is not None or not groups:
                self.key = group_of(row.value, groups) if groups and row.value is not None else row.key
                self.as_of_ms = mark_ms
                self.on_record(row.value, row.timestamp_ms)
        return self.emitted

    def on_record(self, value: int | None, at_ms: int) -> None:
        """What the operator does with a record."""
        raise NotImplementedError

    def on_timer(self, name: str, at_ms: int) -> None:
        """What the operator does when a timer is due."""
        raise NotImplementedError

    def set_timer(self, name: str, due_ms: int) -> None:
        """Set, or replace, a timer of the key."""
        self._pending[self.key, name] = _Timer(max(0, due_ms), name, self.as_of_ms)

    def cancel_timer(self, name: str) -> None:
        """Drop a timer of the key."""
        self._pending.pop((self.key, name), None)

    def emit(self, *value: Any) -> None:
        """A row out."""
        self.emitted.append(Emitted(self.key, list(value), self.as_of_ms))

    def _fire(self, until_ms: int) -> None:
        while due := [(timer, at) for at, timer in self._pending.items() if timer.due_ms <= until_ms]:
            timer, at = min(due)
            del self._pending[at]
            self.key = at[0]
            self.as_of_ms = max(timer.due_ms, timer.set_as_of_ms)
            self.on_timer(timer.name, timer.due_ms)


class SessionsOracle(TimedOracle):
    """What ``Sessions`` says."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, int] = {}
        self._rings: dict[str, int] = {}

    def on_record(self, value: int | None, at_ms: int) -> None:
        """Count, and put off the end."""
        if value is None:
            self._seen[self.key] = 0
            self.cancel_timer("idle")
        else:
            self._seen[self.key] = self._seen.get(self.key, 0) + 1
            self.set_timer("idle", at_ms + IDLE_MS)
            if value % 4 == 0:
                self._rings[self.key] = 0
                self.set_timer("alarm", at_ms + (value - 8) * RING_MS // 4)
        self.emit("record", at_ms, self._seen[self.key])

    def on_timer(self, name: str, at_ms: int) -> None:
        """Say what is due, and ring again."""
        self.emit(name, at_ms, self._seen.get(self.key, 0))
        if name == "idle":
            self._seen[self.key] = 0
        elif self._rings[self.key] < RINGS_MAX:
            self._rings[self.key] += 1
            self.set_timer("alarm", at_ms + RING_MS)


class ForgetfulOracle(TimedOracle):
    """What ``Forgetful`` says."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, tuple[int, int]] = {}
        self._tags: dict[str, dict[int, tuple[int, int]]] = {}

    def on_record(self, value: int | None, at_ms: int) -> None:
        """Say what is known, then replace it."""
        self.emit("record", at_ms, *self._known())
        if value is None:
            self._last.pop(self.key, None)
            return
        tags = self._tags.setdefault(self.key, {})
        self._last[self.key] = value, self._written_ms(at_ms, self._last.get(self.key))
        tags[value % _TAGS] = value, self._written_ms(at_ms, tags.get(value % _TAGS))
        self.set_timer("look", at_ms + LOOK_MS)

    def on_timer(self, name: str, at_ms: int) -> None:
        """Say what is known as of then."""
        self.emit(name, at_ms, *self._known())

    def _known(self) -> Iterator[Any]:
        value, written_ms = self._last.get(self.key, (None, -1))
        yield value if value is not None and self._lives(written_ms) else None
        tags = sorted(self._tags.get(self.key, {}).items())
        yield [[tag, value] for tag, (value, written_ms) in tags if self._lives(written_ms)]

    def _written_ms(self, at_ms: int, before: tuple[int, int] | None) -> int:
        """A late record does not shorten the life of what it replaces."""
        return at_ms if before is None or not self._lives(before[1]) else max(at_ms, before[1])

    def _lives(self, written_ms: int) -> bool:
        return written_ms + TTL_MS > self.as_of_ms


def said(emitted: Sequence[Emitted]) -> Sequences:
    """What was emitted, by key."""
    found = Sequences()
    for row in emitted:
        found.setdefault(Place(row.key), []).append(row.value)
    return found


def summed(emitted: Sequence[Emitted], size_ms: int, grace_ms: int, last_ms: int) -> tuple[Sequences, int]:
    """The sums of what was emitted, by windows behind the operator that close, and how many rows were late."""
    totals: dict[Place, int] = {}
    late = 0
    for row in emitted:
        at_ms = row.value[1]
        start_ms = at_ms // size_ms * size_ms
        if start_ms + size_ms + grace_ms <= row.mark_ms:
            late += 1
            continue
        place = Place(row.key, start_ms)
        totals[place] = totals.get(place, 0) + row.value[2]
    due_ms = last_ms - size_ms - grace_ms
    return {place: [total] for place, total in totals.items() if place.start_ms <= due_ms}, late
