"""The situations of the study: what goes in, what must come out, and what happens meanwhile."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

BEGIN_MS = 1_700_049_600_000
"""Event time of the first record: a full minute."""
_MINUTE_MS = 60_000
LATER = "later"
"""The number of a record that only moves event time."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One record of the input."""

    partition: int
    text: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endurance:
    """One case."""

    name: str
    about: str
    kind: str
    """Which application: `lab/endurance/apps.py`."""
    records: Callable[[], Iterator[Sent]]
    expected: Callable[[Iterable[Sent]], Counter[str]]
    partitions: int = 2
    workers: int = 1
    slow_seconds: float = 0.0
    """How long each record takes in the application's own code."""
    away_seconds: float = 0.0
    """How long the broker is away in the middle of the input."""
    seconds_max: float = 300.0
    """Longer than this is stuck."""

    @property
    def tasks(self) -> int:
        """How many tasks run: two stages."""
        return 2 * self.partitions


def spread(keys: int, total: int, partitions: int) -> Iterator[Sent]:
    """Records of many keys, one millisecond apart, a key's always in the same source partition."""
    for number in range(total):
        key = f"k{number % keys}"
        yield Sent(zlib.crc32(key.encode()) % partitions, f"{key} {number}", BEGIN_MS + number)


def counted(sent: Iterable[Sent]) -> Counter[str]:
    """What counting each key's records gives: each once, with the count that it led to."""
    totals: Counter[str] = Counter()
    results: Counter[str] = Counter()
    for record in sent:
        key = record.text.split()[0]
        totals[key] += 1
        results[f"{record.text} {totals[key]}"] += 1
    return results


def reminders(total: int, partitions: int) -> Iterator[Sent]:
    """One timer per record, all of one hot key, and then records that make them due, the last one of that key."""
    for number in range(total):
        yield Sent(0, f"hot {number}", BEGIN_MS + number % 1_000)
    for partition in range(partitions):
        yield Sent(partition, f"cold{partition} {LATER}", BEGIN_MS + 10 * _MINUTE_MS)
    yield Sent(0, f"hot {LATER}", BEGIN_MS + 11 * _MINUTE_MS)


def reminded(sent: Iterable[Sent]) -> Counter[str]:
    """Each timer fires once."""
    return Counter(record.text for record in sent if not record.text.endswith(LATER))


def one_window_each(total: int, partitions: int) -> Iterator[Sent]:
    """One record per key and window, all in one minute, and then records that close them."""
    for number in range(total):
        yield Sent(number % partitions, f"k{number} {number}", BEGIN_MS + number % _MINUTE_MS)
    for partition in range(partitions):
        yield Sent(partition, f"last{partition} {LATER}", BEGIN_MS + 10 * _MINUTE_MS)


def windowed(sent: Iterable[Sent]) -> Counter[str]:
    """Each window once, with one record in it; those of the last records stay open."""
    return Counter(f"{record.text.split()[0]} 1" for record in sent if not record.text.endswith(LATER))


def cases(*, quick: bool) -> list[Endurance]:
    """All of them; the quick ones are the same with less input and a shorter outage."""
    timers, windows = (100_000, 200_000) if quick else (100_000, 1_000_000)
    tasks_partitions, per_task = (128, 40) if quick else (128, 400)
    away_seconds = 75.0 if quick else 600.0
    slow = 1 if quick else 4
    return [
        Endurance(
            name="slow-20ms",
            about="20 ms per record in the application's code, in two workers",
            kind="counts",
            workers=2,
            slow_seconds=0.02,
            records=lambda: spread(500, 2_000 * slow, 2),
            expected=counted,
        ),
        Endurance(
            name="slow-200ms",
            about="200 ms per record in the application's code",
            kind="counts",
            slow_seconds=0.2,
            records=lambda: spread(50, 150 * slow, 2),
            expected=counted,
        ),
        Endurance(
            name="hot-timers",
            about=f"{timers:,} timers of one key due at once",
            kind="timers",
            records=lambda: reminders(timers, 2),
            expected=reminded,
        ),
        Endurance(
            name="windows",
            about=f"{windows:,} windows closing at once",
            kind="windows",
            records=lambda: one_window_each(windows, 2),
            expected=windowed,
            seconds_max=300.0 if quick else 900.0,
        ),
        Endurance(
            name="tasks",
            about=f"{2 * tasks_partitions} tasks in one process",
            kind="counts",
            partitions=tasks_partitions,
            records=lambda: spread(10_000, per_task * tasks_partitions, tasks_partitions),
            expected=counted,
        ),
        Endurance(
            name="broker-away",
            about=f"the broker is away for {away_seconds:.0f} s",
            kind="counts",
            workers=2,
            away_seconds=away_seconds,
            records=lambda: spread(1_000, 40_000, 2),
            expected=counted,
            seconds_max=180.0 + away_seconds,
        ),
    ]
