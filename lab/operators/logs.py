"""Random logs of two topics, and what follows from a log alone: marks, and which records are late."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

Side = Literal["left", "right"]
SIDES: tuple[Side, ...] = ("left", "right")
PARTITIONS = 2
"""Of each source topic."""
SECOND_MS = 1_000
FIRST_MS = 1_729_985_400_000
"""Half past one on a night on which clocks in Berlin go back."""
_KEYS = ("a", "b", "c", "d", "e")
_RECORDS = (20, 40, 80)


class Row(NamedTuple):
    """One record. ``value`` is None for a tombstone, in logs of tables."""

    side: Side
    key: str
    value: int | None
    timestamp_ms: int
    number: int

    @property
    def partition(self) -> int:
        """That of its source topic: equal keys are in one."""
        return sum(self.key.encode()) % PARTITIONS

    @property
    def given(self) -> int:
        """The value of a record that has one."""
        assert self.value is not None, "asked of logs without tombstones"
        return self.value


class Marked(NamedTuple):
    """A record and the largest event time of its partition up to and with it."""

    row: Row
    mark_ms: int


def random_log(
    rng: random.Random, *, sides: int, has_tombstones: bool, late_ms: int, pace: int = 1
) -> list[Row]:
    """A log in which records are up to ``late_ms`` behind, some of them, and event time sometimes jumps.

    They are ``pace`` times further apart than in other logs.
    """
    keys = _KEYS[: rng.choice((1, 3, 5))]
    now_ms = FIRST_MS
    rows = []
    for number in range(rng.choice(_RECORDS)):
        now_ms += pace * rng.choice((0, 0, 300, 1_000, 2_500, 20_000 if rng.random() < 0.2 else 700))
        behind_ms = rng.randrange(late_ms) if late_ms and rng.random() < 0.3 else 0
        is_empty = has_tombstones and rng.random() < 0.2
        side = SIDES[rng.randrange(sides)]
        value = None if is_empty else rng.randrange(100)
        rows.append(Row(side, rng.choice(keys), value, now_ms - behind_ms, number))
    return rows


def marked(rows: Sequence[Row]) -> Iterator[Marked]:
    """Each row with its mark."""
    marks_ms: dict[tuple[Side, int], int] = {}
    for row in rows:
        place = row.side, row.partition
        marks_ms[place] = max(marks_ms.get(place, 0), row.timestamp_ms)
        yield Marked(row, marks_ms[place])


def within_grace(rows: Sequence[Row], grace_ms: int) -> list[Row]:
    """The rows that are no further behind their mark."""
    return [row for row, mark_ms in marked(rows) if mark_ms - row.timestamp_ms <= grace_ms]
