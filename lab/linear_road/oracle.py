"""The right answers of Linear Road, computed in one sequence by the rules as they are written.

It shares no code with the application, knows all reports at once and keeps everything in plain dictionaries. The rules
are those of the benchmark (Arasu and others, VLDB 2004) as its validator applies them.

An answer is a tuple of integers that begins with its type, without the time at which it was given:

- ``(0, vid, time, lav, toll)``: what a car was told when it entered a segment;
- ``(1, time, xway, accident segment, dir, vid)``: a warning to the same car;
- ``(2, time, result time, qid, balance)``, or instead of it ``(5, …)``: the balance without the newest charge;
- ``(3, time, qid, toll)``: what a car paid on one day of the past.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

Answer = tuple[int, ...]
Historical = Mapping[tuple[int, int, int], int]
"""(vid, day, xway) → toll."""

POSITION, BALANCE, DAY = 0, 2, 3
ENTRY_LANE, EXIT_LANE = 0, 4
STOPPED_AFTER, ZONE = 3, 5


@dataclass
class Car:
    """What is remembered of one car since it entered the expressway."""

    time: int = -1_000
    place: tuple[int, int] = (-1, -1)
    lane: int = -1
    seg: int = -1
    pos: int = -1
    same: int = 1
    toll: int = 0
    charges: list[tuple[int, int]] = field(default_factory=list)
    """Time and toll of each charge: not forgotten when the car leaves."""


@dataclass
class Accident:
    """Two cars that stand at one place; it stays known when it is cleared."""

    time: int
    cars: frozenset[int]
    clear: int = -1

    def is_active(self, minute: int) -> bool:
        """True in the minutes in which cars are warned of it."""
        notify = self.time // 60 + 2
        if self.clear < 0:
            return minute >= notify
        return notify <= self.clear // 60 + 1 and minute <= self.clear // 60 + 1


class Road:
    """All expressways. Feed it the records of one second after the other."""

    def __init__(self, historical: Historical) -> None:
        self._historical = historical
        self._cars: dict[int, Car] = defaultdict(Car)
        self._speeds: dict[tuple[int, int, int, int], list[int]] = defaultdict(lambda: [0, 0])
        self._seen: dict[tuple[int, int, int, int], set[int]] = defaultdict(set)
        self._stopped: dict[tuple[int, int, int, int, int], list[int]] = defaultdict(list)
        self._accidents: dict[tuple[int, int, int], Accident] = {}
        self.answers: list[Answer] = []

    def second(self, records: Sequence[Sequence[int]]) -> None:
        """All records of one second: the reports first, then the queries."""
        for record in records:
            if record[0] == POSITION:
                self._report(*record[1:9])
        for record in records:
            if record[0] == BALANCE:
                self._balance(record[1], record[2], record[9])
            elif record[0] == DAY and record[14] != 0:
                toll = self._historical.get((record[2], record[14], record[4]))
                if toll is not None:
                    self.answers.append((3, record[1], record[9], toll))

    def _report(
        self, time: int, vid: int, speed: int, xway: int, lane: int, dir_: int, seg: int, pos: int
    ) -> None:
        car, minute = self._cars[vid], time // 60 + 1
        if lane == ENTRY_LANE and time > car.time + 60:
            car = self._cars[vid] = Car(charges=car.charges)
        elif car.lane == EXIT_LANE and lane != ENTRY_LANE:
            return
        self._watch(car, vid, time, (xway, dir_), lane, seg, pos)
        if (seg, xway, dir_) != (car.seg, *car.place):
            toll = self._tell(vid, time, minute, xway, dir_, seg) if lane != EXIT_LANE else 0
            if car.toll > 0:
                car.charges.append((time, car.toll))
            car.toll = toll
        car.time, car.place, car.lane, car.seg, car.pos = time, (xway, dir_), lane, seg, pos
        at = (xway, dir_, seg, minute)
        self._seen[at].add(vid)
        self._speeds[at][0] += speed
        self._speeds[at][1] += 1

    def _watch(
        self, car: Car, vid: int, time: int, place: tuple[int, int], lane: int, seg: int, pos: int
    ) -> None:
        """See whether a car stands still, and what follows from it."""
        if pos == car.pos and lane == car.lane and place == car.place:
            if car.same == STOPPED_AFTER:
                here = self._stopped[*place, lane, seg, pos]
                if len(here) < 2 and vid not in here:
                    here.append(vid)
                if len(here) == 2 and (*place, seg) not in self._accidents:
                    self._accidents[*place, seg] = Accident(time, frozenset(here))
            car.same += 1
            return
        here = self._stopped[*car.place, car.lane, car.seg, car.pos]
        if vid in here:
            here.remove(vid)
        accident = self._accidents.get((*car.place, car.seg))
        if accident is not None and accident.clear < 0 and vid in accident.cars:
            accident.clear = time
        car.same = 1

    def _tell(self, vid: int, time: int, minute: int, xway: int, dir_: int, seg: int) -> int:
        """Tell a car that enters a segment its speed and toll, and warn it; returns the toll."""
        speeds = [self._speeds[xway, dir_, seg, m] for m in range(minute - 5, minute)]
        total, count = sum(each[0] for each in speeds), sum(each[1] for each in speeds)
        lav = (2 * total + count) // (2 * count) if count else 0
        cars = len(self._seen[xway, dir_, seg, minute - 1])
        toll = 2 * (cars - 50) ** 2 if cars > 50 and lav < 40 else 0
        zone = range(seg, seg + ZONE) if dir_ == 0 else range(seg, seg - ZONE, -1)
        for each in zone:
            accident = self._accidents.get((xway, dir_, each))
            if accident is not None and accident.is_active(minute):
                self.answers.append((1, time, xway, each, dir_, vid))
                toll = 0
                break
        self.answers.append((0, vid, time, lav, toll))
        return toll

    def _balance(self, time: int, vid: int, qid: int) -> None:
        charges = self._cars[vid].charges
        total = sum(toll for _, toll in charges)
        self.answers.append((2, time, time, qid, total))
        if len(charges) > 1:
            self.answers.append((5, time, time - 30, qid, total - charges[-1][1]))
        else:
            self.answers.append((5, time, 0, qid, 0))


def answers(records: Iterable[Sequence[int]], historical: Historical) -> list[Answer]:
    """All answers to records in the order of their time."""
    road = Road(historical)
    for _, of_second in groupby(records, key=lambda record: record[1]):
        road.second(list(of_second))
    return road.answers
