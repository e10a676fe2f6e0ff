"""From one pass to the next: what the cleaner spent in each whole cycle of a watched log.

A run of a minute holds four passes of a stock broker, or five: CPU over the run's time would be a quarter off by
chance. So cycles are told apart by the log that shrinks, and the usual one counts.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_DROP = 0.05
"""Of the range of sizes: a log that shrinks by so much within a sample was cleaned."""
_AFTERWARDS_SECONDS = 0.3
"""When a pass has shrunk the log, its thread still has a little to do."""


class Spent(NamedTuple):
    """What cleaner threads have used until a moment."""

    seconds: float
    cleaner_seconds: float
    wait_seconds: float
    """Ready to run, without a core."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """From the end of one turn of the cleaner to the end of the next."""

    seconds: float
    cleaner_seconds: float
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class CleanerUse:
    """What cleaner threads take of a core, by whole cycles."""

    cores: float
    low: float
    high: float
    """Of single cycles: how far machine and chance move them."""
    slowness: float
    """Time that passes took in terms of their CPU: more than 1 where threads waited for a core."""
    cycles: int


def cycles_of(
    sizes: Sequence[tuple[float, float]], spent: Sequence[Spent], from_seconds: float, quiet_seconds: float
) -> list[Cycle]:
    """Whole cycles after a moment; drops of the size that lie closer together than ``quiet_seconds`` are one turn."""
    ends = [
        seconds + _AFTERWARDS_SECONDS
        for seconds in _turn_ends(sizes, quiet_seconds)
        if seconds >= from_seconds
    ]
    times = [one.seconds for one in spent]
    at = [bisect.bisect_left(times, seconds) for seconds in ends]
    marks = [spent[index] for index in at if index < len(spent)]
    return [
        Cycle(
            later.seconds - earlier.seconds,
            later.cleaner_seconds - earlier.cleaner_seconds,
            later.wait_seconds - earlier.wait_seconds,
        )
        for earlier, later in itertools.pairwise(marks)
    ]


def use_of(found: Sequence[Cycle], spent: Sequence[Spent], from_seconds: float) -> CleanerUse:
    """Of the median cycle; of the whole time where there is no whole cycle."""
    if not found:
        first = next(one for one in spent if one.seconds >= from_seconds)
        last = spent[-1]
        found = [
            Cycle(
                last.seconds - first.seconds,
                last.cleaner_seconds - first.cleaner_seconds,
                last.wait_seconds - first.wait_seconds,
            )
        ]
    seconds = statistics.median(one.seconds for one in found)
    used = [one.cleaner_seconds for one in found]
    total = max(1e-9, sum(used))
    return CleanerUse(
        cores=statistics.median(used) / seconds,
        low=min(used) / seconds,
        high=max(used) / seconds,
        slowness=1 + sum(one.wait_seconds for one in found) / total,
        cycles=len(found),
    )


def _turn_ends(sizes: Sequence[tuple[float, float]], quiet_seconds: float) -> list[float]:
    largest, smallest = max(size for _, size in sizes), min(size for _, size in sizes)
    drop = _DROP * (largest - smallest)
    drops = [seconds for (_, before), (seconds, size) in itertools.pairwise(sizes) if before - size > drop]
    return [
        seconds
        for seconds, following in itertools.pairwise([*drops, float("inf")])
        if following - seconds > quiet_seconds
    ]
