"""What a log comes to, record by record, in plain Python: shares no code with the operators that it judges.

Written from the semantics alone (``docs/decisions/0016``). Every record carries a mark, the largest event time in its
source partition up to and including it, tombstones among them. It is late for a window whose end plus grace is not
after its mark. With one source partition the mark is event time itself, so timers and expiry follow from it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from stateflow.lab.time.logs import Row

NO_WINDOW_MS = -1


class Computation(NamedTuple):
    """An aggregate: what Kafka Streams is asked for, too."""

    operator: str
    """count, sum, max or fold."""
    size_ms: int = 0
    """0 without windows."""
    grace_ms: int = 0
    on_close: bool = False
    groups: int = 0
    """0 for the record's own key, else the records are given one of so many new keys first."""

    @property
    def name(self) -> str:
        """What it is, in a few words."""
        kind = ("on_close" if self.on_close else "on_update") if self.size_ms else "no_window"
        return f"{self.operator} {kind}" + (" rekeyed" if self.groups else "")


class Place(NamedTuple):
    """Where a result belongs."""

    key: str
    start_ms: int = NO_WINDOW_MS


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
    partition are, is never closed.
    """
    step, found, late = STEPS[wanted.operator], Sequences(), Sequences()
    totals: dict[Place, int] = {}
    for row, mark_ms in marked(rows):
        if row.value is None:
            continue
        key = group_of(row.value, wanted.groups) if wanted.groups else row.key
        place = Place(key)
        if wanted.size_ms:
            place = Place(key, row.timestamp_ms // wanted.size_ms * wanted.size_ms)
            if place.start_ms + wanted.size_ms + wanted.grace_ms <= mark_ms:
                late.setdefault(Place(key), []).append(row.value)
                continue
        totals[place] = step(totals.get(place), row.value)
        found.setdefault(place, []).append(totals[place])
    if wanted.on_close:
        closes_ms = min({row.partition: mark for row, mark in marked(rows)}.values())
        due_ms = closes_ms - wanted.size_ms - wanted.grace_ms
        found = {place: results[-1:] for place, results in found.items() if place.start_ms <= due_ms}
    return found, late


def with_ttl(rows: Sequence[Row], operator: str, ttl_ms: int) -> Sequences:
    """An aggregate without windows that forgets a key so long after its last record."""
    step, found = STEPS[operator], Sequences()
    totals: dict[str, tuple[int, int]] = {}
    for row, mark_ms in marked(rows):
        if row.value is None:
            continue
        total, stamp_ms = totals.get(row.key, (0, -ttl_ms))
        before = total if stamp_ms + ttl_ms > mark_ms else None
        totals[row.key] = step(before, row.value), row.timestamp_ms
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
