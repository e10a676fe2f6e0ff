"""Traffic for Linear Road in miniature: minutes instead of hours, a part of an expressway or several of them.

The load rises from a tenth to all of it over the run. So that every rule has something to do, each direction has a
congested stretch (tolls), an accident every five minutes (warnings), cars that leave and come back, and of every
hundred reports about one is accompanied by a query for the balance and one for a day of the past.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from stateflow.lab.linear_road.oracle import BALANCE, DAY, ENTRY_LANE, EXIT_LANE, POSITION

Record = tuple[int, ...]

REPORTS_PER_SECOND = 1_700
"""Of one whole expressway at its fullest, as in the benchmark."""
REPORT_SECONDS = 30
_FEET_PER_MPH = 44  # in 30 seconds
_SEGMENT_FEET, _SEGMENTS = 5_280, 100
_CONGESTED = range(40, 46)
_ACCIDENT_SECONDS = 300
_STANDING_REPORTS = 7
_QUERY_SHARE, _BACK_SHARE = 0.01, 0.1
_DAYS = 69


@dataclass(frozen=True, slots=True)
class Load:
    """How much traffic: ``expressways`` may be a fraction."""

    expressways: float
    minutes: int = 10
    seed: int = 1

    @property
    def seconds(self) -> int:
        """How long it lasts."""
        return self.minutes * 60

    def cars_at(self, second: int) -> int:
        """How many cars are on the road."""
        share = 0.1 + 0.9 * second / self.seconds
        return round(share * self.expressways * REPORTS_PER_SECOND * REPORT_SECONDS)


@dataclass(slots=True)
class _Trip:
    vid: int
    xway: int
    dir: int
    pos: int
    speed: int
    reports_left: int
    is_entering: bool = True
    stands_after: int = -1
    """Reports until it comes to stand, −1 for never; counted on while it stands."""


class Traffic:
    """Draws the records of a load; the same load always draws the same."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._rng = random.Random(f"linear-road-{load}")  # noqa: S311 - nothing secret: it must be repeatable
        self._due: list[list[_Trip]] = [[] for _ in range(load.seconds)]
        self._present = 0
        self._vids = 0
        self._qids = 0
        self.historical: dict[tuple[int, int, int], int] = {}
        """(vid, day, xway) → toll, of every day that was asked for but some."""

    def records(self) -> Iterator[Record]:
        """All records in the order of their time."""
        for second in range(self._load.seconds):
            self._enter(second)
            due, self._due[second] = self._due[second], []
            for trip in due:
                yield from self._report(trip, second)

    def _enter(self, second: int) -> None:
        if second % _ACCIDENT_SECONDS == REPORT_SECONDS:
            for xway in range(self._expressways):
                for direction in (0, 1):
                    self._collide(second, xway, direction)
        while self._present < self._load.cars_at(second):
            self._add(second)

    @property
    def _expressways(self) -> int:
        return max(1, -int(-self._load.expressways // 1))

    def _add(self, second: int) -> None:
        rng, direction = self._rng, self._rng.randrange(2)
        segment = rng.choice(_CONGESTED) if rng.random() < 0.2 else rng.randrange(_SEGMENTS)
        trip = _Trip(
            vid=self._vids,
            xway=min(int(rng.random() * self._load.expressways), self._expressways - 1),
            dir=direction,
            pos=segment * _SEGMENT_FEET + rng.randrange(_SEGMENT_FEET),
            speed=rng.randint(45, 75),
            reports_left=rng.randint(4, 40),
        )
        self._vids += 1
        self._start(trip, min(second + rng.randrange(REPORT_SECONDS), self._load.seconds - 1))

    def _collide(self, second: int, xway: int, direction: int) -> None:
        """Two cars that come side by side and stop at one place."""
        pos = self._rng.randrange(5, _SEGMENTS - 5) * _SEGMENT_FEET + 100
        for _ in range(2):
            trip = _Trip(self._vids, xway, direction, pos, 60, 2 + _STANDING_REPORTS + 4, stands_after=2)
            self._vids += 1
            self._start(trip, second)

    def _start(self, trip: _Trip, second: int) -> None:
        self._present += 1
        self._due[second].append(trip)

    def _report(self, trip: _Trip, second: int) -> Iterator[Record]:
        is_leaving = trip.reports_left <= 1
        stands = trip.stands_after == 0 and trip.reports_left > 4
        lane = (
            ENTRY_LANE if trip.is_entering else EXIT_LANE if is_leaving else 2 if stands else 1 + trip.vid % 3
        )
        segment = trip.pos // _SEGMENT_FEET
        speed = 0 if stands else self._rng.randint(15, 35) if segment in _CONGESTED else trip.speed
        yield (POSITION, second, trip.vid, speed, trip.xway, lane, trip.dir, segment, trip.pos, *[-1] * 6)
        yield from self._queries(trip, second)
        trip.is_entering, trip.reports_left = False, trip.reports_left - 1
        trip.stands_after = max(trip.stands_after - 1, 0) if trip.stands_after >= 0 else -1
        if trip.stands_after != 0 or trip.reports_left <= 4:
            trip.pos += speed * _FEET_PER_MPH * (1 if trip.dir == 0 else -1)
        if is_leaving or not 0 <= trip.pos < _SEGMENTS * _SEGMENT_FEET:
            self._leave(trip, second)
        elif second + REPORT_SECONDS < self._load.seconds:
            self._due[second + REPORT_SECONDS].append(trip)

    def _leave(self, trip: _Trip, second: int) -> None:
        self._present -= 1
        back = second + 3 * REPORT_SECONDS
        if back < self._load.seconds and self._rng.random() < _BACK_SHARE:
            pos = self._rng.randrange(_SEGMENTS * _SEGMENT_FEET)
            self._start(_Trip(trip.vid, trip.xway, trip.dir, pos, trip.speed, 20), back)

    def _queries(self, trip: _Trip, second: int) -> Iterator[Record]:
        rng = self._rng
        if rng.random() < _QUERY_SHARE:
            self._qids += 1
            yield (BALANCE, second, trip.vid, *[-1] * 6, self._qids, *[-1] * 5)
        if rng.random() < _QUERY_SHARE:
            self._qids += 1
            day = rng.randint(0, _DAYS)
            if day and rng.random() < 0.9:
                self.historical[trip.vid, day, trip.xway] = rng.randint(10, 100)
            yield (DAY, second, trip.vid, -1, trip.xway, *[-1] * 4, self._qids, *[-1] * 4, day)
