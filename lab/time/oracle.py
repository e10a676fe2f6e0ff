"""What a log comes to, record by record, in plain Python: shares no code with the operators that it judges.

Written from the semantics alone (``docs/decisions/0016``). Every record carries a mark, the largest event time in its
source partition up to and including it, tombstones among them. It is late for a window whose end plus grace is not
after its mark. With one source partition the mark is event time itself, so timers and expiry follow from it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from stateflow.lab.time.logs import Row

NO_WINDOW_MS = -1


Kind = Literal["tumbling", "hopping", "session", "sliding"]


class Computation(NamedTuple):
    """An aggregate: what Kafka Streams is asked for, too."""

    operator: str
    """count, sum, max or fold."""
    size_ms: int = 0
    """0 without windows. Of a session the gap, of a sliding window the difference."""
    grace_ms: int = 0
    on_close: bool = False
    groups: int = 0
    """0 for the record's own key, else the records are given one of so many new keys first."""
    kind: Kind = "tumbling"
    advance_ms: int = 0
    """Of a hopping window."""
    offset_ms: int = 0
    every_ms: int = 0
    """Told at such intervals and on close, in the place of every update: Kafka Streams is asked for these."""

    @property
    def name(self) -> str:
        """What it is, in a few words."""
        emits = "on_close" if self.on_close else "at_intervals" if self.every_ms else "on_update"
        kind = emits if self.size_ms else "no_window"
        windows = f" {self.kind}" if self.size_ms and self.kind != "tumbling" else ""
        offset = " offset" if self.offset_ms else ""
        return f"{self.operator}{windows}{offset} {kind}" + (" rekeyed" if self.groups else "")


class Place(NamedTuple):
    """Where a result belongs."""

    key: str
    start_ms: int = NO_WINDOW_MS
    end_ms: int = NO_WINDOW_MS
    """Of a session, which is not told by its start alone."""


Sequences = dict[Place, list[Any]]
"""Place → its results in their order."""


def fold_step(total: int | None, value: int) -> int:
    """One step of the aggregate that is not commutative."""
    return ((7 if total is None else total) * 31 + value) % 1_000_003


STEPS: dict[str, Callable[[int | None, int], int]] = {
    "count": lambda total, _value: (total or 0) + 1,
    "sum": lambda total, value: (total or 0) + value,
    "max": lambda total, value: value if total is None else max(total, value),
    "fold": fold_step,
}


MERGES: dict[str, Callable[[int, int], int]] = {
    "count": lambda one, two: one + two,
    "sum": lambda one, two: one + two,
    "max": lambda one, two: max(one, two),
    "fold": lambda one, two: (one * 31 + two) % 1_000_003,
}
"""Two sessions in the order of time, as one."""


def group_of(value: int, groups: int) -> str:
    """The new key of a value."""
    return f"g{value % groups}"


def marked(rows: Sequence[Row]) -> Iterator[tuple[Row, int]]:
    """Each row with its mark."""
    marks: dict[int, int] = {}
    for row in rows:
        marks[row.partition] = max(marks.get(row.partition, -1), row.timestamp_ms)
        yield row, marks[row.partition]


def aggregated(rows: Sequence[Row], wanted: Computation) -> tuple[Sequences, Sequences]:
    """All results of an aggregate, record by record, and the values that were late, by key.

    On close there is one result per window, the last. The last window of all, in which the rows that end each
    partition are, is never closed; at intervals it is not told, either.
    """
    found, late = Sequences(), Sequences()
    take = _TAKERS[wanted.kind if wanted.size_ms else "none"](wanted, found)
    for row, mark_ms in marked(rows):
        if row.value is None:
            continue
        key = group_of(row.value, wanted.groups) if wanted.groups else row.key
        if not take(key, row.timestamp_ms, row.value, mark_ms):
            late.setdefault(Place(key), []).append(row.value)
    if wanted.on_close or wanted.every_ms:
        found = {place: results for place, results in found.items() if is_closed(rows, wanted, place)}
    if wanted.on_close:
        found = {place: results[-1:] for place, results in found.items() if results[-1] is not None}
    return found, late


def is_closed(rows: Sequence[Row], wanted: Computation, place: Place) -> bool:
    """Whether a window is closed when all of a log has been read."""
    return closed_from_ms(place, wanted) <= min({row.partition: mark for row, mark in marked(rows)}.values())


def closed_from_ms(place: Place, wanted: Computation) -> int:
    """The event time from which on a window takes no records, and is told on close."""
    if wanted.kind == "session":
        return place.end_ms + wanted.size_ms + wanted.grace_ms + 1
    return place.start_ms + wanted.size_ms + wanted.grace_ms + (wanted.kind == "sliding")


def taken(rows: Sequence[Row], wanted: Computation) -> list[Row]:
    """The rows without those that come too late for a session or a sliding window.

    How far behind a record may be is here the grace, whatever the sessions are that it would fall into; Kafka Streams
    takes some more, and then closes what may still change. Of the rows that both take the results must be the same.
    """
    if wanted.kind not in ("session", "sliding") or not wanted.size_ms:
        return list(rows)
    return [row for row, mark_ms in marked(rows) if row.timestamp_ms + wanted.grace_ms >= mark_ms]


_Take = Callable[[str, int, int, int], bool]
"""Given key, time, value and mark of a record; False when it is late."""


def _without_windows(wanted: Computation, found: Sequences) -> _Take:
    def take(key: str, _when_ms: int, value: int, _mark_ms: int) -> bool:
        _step(found, Place(key), wanted, value)
        return True

    return take


def _fixed(wanted: Computation, found: Sequences) -> _Take:
    """Tumbling and hopping windows: a record is late when all that hold it take no more."""
    advance_ms = wanted.advance_ms or wanted.size_ms

    def take(key: str, when_ms: int, value: int, mark_ms: int) -> bool:
        last_ms = (when_ms - wanted.offset_ms) // advance_ms * advance_ms + wanted.offset_ms
        starts_ms = range(last_ms, max(-1, when_ms - wanted.size_ms), -advance_ms)
        places = [Place(key, start_ms) for start_ms in starts_ms]
        open_places = [place for place in places if closed_from_ms(place, wanted) > mark_ms]
        for place in open_places:
            _step(found, place, wanted, value)
        return bool(open_places)

    return take


def _step(found: Sequences, place: Place, wanted: Computation, value: int) -> None:
    results = found.setdefault(place, [])
    results.append(STEPS[wanted.operator](results[-1] if results else None, value))


def _sessions(wanted: Computation, found: Sequences) -> _Take:
    """Sessions are never forgotten here, so a record that would have to prolong a closed one shows."""
    open_sessions: dict[str, list[tuple[int, int, int]]] = {}

    def take(key: str, when_ms: int, value: int, mark_ms: int) -> bool:
        if when_ms + wanted.grace_ms < mark_ms:
            return False
        known = open_sessions.setdefault(key, [])
        near = [each for each in known if each[0] - wanted.size_ms <= when_ms <= each[1] + wanted.size_ms]
        total: int | None = None
        for each in sorted(near):
            total = each[2] if total is None else MERGES[wanted.operator](total, each[2])
        start_ms, end_ms = min([when_ms, *(s for s, _, _ in near)]), max([when_ms, *(e for _, e, _ in near)])
        for each in near:
            known.remove(each)
            if each[:2] != (start_ms, end_ms):
                found[Place(key, *each[:2])].append(None)
        known.append((start_ms, end_ms, STEPS[wanted.operator](total, value)))
        found.setdefault(Place(key, start_ms, end_ms), []).append(known[-1][2])
        return True

    return take


def _sliding(wanted: Computation, found: Sequences) -> _Take:
    """All windows of a key by their definition, once more after each record."""
    records: dict[str, list[tuple[int, int]]] = {}
    windows: dict[str, dict[int, list[int]]] = {}

    def take(key: str, when_ms: int, value: int, mark_ms: int) -> bool:
        if when_ms + wanted.grace_ms < mark_ms:
            return False
        known = records.setdefault(key, [])
        known.append((when_ms, value))
        before, windows[key] = windows.get(key, {}), {}
        for start_ms in {start for each, _ in known for start in (each - wanted.size_ms, each + 1)}:
            held = [each for at, each in known if start_ms <= at <= start_ms + wanted.size_ms]
            if held:
                windows[key][start_ms] = held
        for start_ms, held in windows[key].items():
            if held != before.get(start_ms):
                total: int | None = None
                for each in held:
                    total = STEPS[wanted.operator](total, each)
                found.setdefault(Place(key, start_ms), []).append(total)
        return True

    return take


_TAKERS: dict[str, Callable[[Computation, Sequences], _Take]] = {
    "none": _without_windows,
    "tumbling": _fixed,
    "hopping": _fixed,
    "session": _sessions,
    "sliding": _sliding,
}


def with_ttl(rows: Sequence[Row], operator: str, ttl_ms: int) -> Sequences:
    """An aggregate without windows that forgets a key so long after the latest of its records."""
    step, found = STEPS[operator], Sequences()
    totals: dict[str, tuple[int, int]] = {}
    for row, mark_ms in marked(rows):
        if row.value is None:
            continue
        total, stamp_ms = totals.get(row.key, (0, -ttl_ms))
        before = total if stamp_ms + ttl_ms > mark_ms else None
        written_ms = row.timestamp_ms if before is None else max(row.timestamp_ms, stamp_ms)
        totals[row.key] = step(before, row.value), written_ms
        found.setdefault(Place(row.key), []).append(totals[row.key][0])
    return found


def chained(rows: Sequence[Row], inner: Computation, outer: Computation) -> Sequences:
    """The largest results of windows, by key and windows behind them.

    Behind windows event time stays so far back that nothing is late.
    """
    newest: dict[tuple[str, int], int] = {}
    found, _ = aggregated(rows, inner)
    for place, results in found.items():
        at = place.key, place.start_ms // outer.size_ms * outer.size_ms
        newest[at] = max(newest.get(at, results[-1]), results[-1])
    due_ms = rows[-1].timestamp_ms - inner.size_ms - inner.grace_ms - outer.size_ms - outer.grace_ms
    return {Place(key, start): [value] for (key, start), value in newest.items() if start <= due_ms}
