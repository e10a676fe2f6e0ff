"""The application: Linear Road, the tolls of expressways that depend on how crowded they are.

Run it with ``stateflow run examples/linear_road/road.py:app``. It reads lines of the benchmark from the topic
``lr-input``, keyed by car, and writes lines of answers to ``lr-answers``. ``lab/linear_road/oracle.py`` states the
rules in one sequential program.

The first stage tells reports from queries. A *car* (keyed by vid) notices when it enters a segment and when it stands
still. A *segment* (keyed by expressway, direction and number) counts cars and speeds per minute; a standing car is
reported to each segment that its accident would concern. An *account* (keyed by vid) charges tolls. Records of
different tasks arrive in any order, so nothing depends on arrival: a minute's toll is computed once event time has
reached that minute, and a balance is that of the end of its second.
"""

from __future__ import annotations

import os
from bisect import insort
from pathlib import Path

from msgspec import Struct

import stateflow as sf

EXIT, STILL, ZONE, OPEN = 4, 3, 5, 1 << 40


class Moved(Struct, array_like=True, tag=0, gc=False):
    """A report as its segment sees it; ``entered`` is 0 for no, 1 on a travel lane, 2 by the exit lane."""

    segment: int
    vid: int
    time: int
    speed: int
    is_first: bool  # of this car in this segment and minute
    entered: int
    is_new: bool  # the car has just come onto the expressway


class Stood(Struct, array_like=True, tag=1, gc=False):
    """A car stands still at a place, or has left it, as told to a segment within reach of an accident there."""

    segment: int
    time: int
    vid: int
    at: int
    place: tuple[int, int]
    has_left: bool


class Told(Struct, array_like=True, gc=False):
    """What a car is told that enters a segment."""

    vid: int
    time: int
    segment: int
    lav: int
    toll: int
    accident: int
    entered: int
    is_new: bool


class Car(Struct, array_like=True):
    """The last report of a car: ``same`` counts equal positions, ``seen`` are the segments of its minute."""

    time: int = -1_000
    segment: int = -1
    lane: int = -1
    pos: int = -1
    same: int = 1
    stands: bool = False
    minute: int = -1
    seen: list[int] = []


class Wreck(Struct, array_like=True):
    """Cars that stand in one segment, and its accident: the first and the last minute of warnings."""

    standing: list[tuple[int, int, int]] = []
    cars: list[int] = []
    first: int = OPEN
    last: int = OPEN


class Traffic(Struct, array_like=True):
    """A segment: the toll of a minute, and for the newest minutes the number of reports, speeds and cars."""

    minute: int = -1
    lav: int = 0
    toll: int = 0
    accident: int = -1
    minutes: dict[int, tuple[int, int, int]] = {}


class Ledger(Struct, array_like=True):
    """An account: what is charged, the toll of the segment that the car is in, what is not settled yet."""

    balance: int = 0
    toll: int = 0
    unsettled: list[tuple[int, int, bool]] = []


class Cars(sf.Operator[int, str, Moved | Stood]):
    """Follows each car."""

    last: sf.Value[Car | None] = sf.state()

    def on_record(self, line: str, ctx: sf.Context[Moved | Stood]) -> None:
        """Compare a position report with the one before it."""
        _, time, vid, speed, xway, lane, direction, seg, pos, *_ = map(int, line.split(","))
        car, segment, minute = self.last.get() or Car(), (xway * 2 + direction) * 100 + seg, time // 60 + 1
        is_new = lane == 0 and time > car.time + 60
        if is_new:
            car = Car()
        elif car.lane == EXIT and lane != 0:
            return
        if pos == car.pos and lane == car.lane and segment == car.segment:
            if car.same == STILL:
                self._tell_zone(Stood(0, time, vid, segment, (lane, pos), False), ctx)
                car.stands = True
            car.same += 1
        else:
            if car.stands:
                self._tell_zone(Stood(0, time, vid, car.segment, (car.lane, car.pos), True), ctx)
            car.same, car.stands = 1, False
        if car.minute != minute:
            car.minute, car.seen = minute, []
        is_first = segment not in car.seen
        if is_first:
            car.seen.append(segment)
        entered = 0 if segment == car.segment else 2 if lane == EXIT else 1
        car.time, car.segment, car.lane, car.pos = time, segment, lane, pos
        self.last.set(car)
        ctx.emit(Moved(segment, vid, time, speed, is_first, entered, is_new))

    def _tell_zone(self, stood: Stood, ctx: sf.Context[Moved | Stood]) -> None:
        road, seg = divmod(stood.at, 100)
        for each in (
            range(max(0, seg - ZONE + 1), seg + 1)
            if road % 2 == 0
            else range(seg, min(99, seg + ZONE - 1) + 1)
        ):
            ctx.emit(Stood(road * 100 + each, stood.time, stood.vid, stood.at, stood.place, stood.has_left))


class Segments(sf.Operator[int, Moved | Stood, Told]):
    """Counts cars, knows accidents, makes tolls."""

    traffic: sf.Value[Traffic | None] = sf.state()
    waiting: sf.MapOf[int, Moved] = sf.state()  # for event time to reach their minute, by time and vid
    stood: sf.ListOf[Stood] = sf.state()  # in this minute or later
    wrecks: sf.MapOf[int, Wreck] = sf.state()

    def on_record(self, record: Moved | Stood, ctx: sf.Context[Told]) -> None:
        """Count a car, and tell it the toll once that is known."""
        if isinstance(record, Stood):
            self.stood.append(record)
            return
        traffic, minute = self.traffic.get() or Traffic(), record.time // 60 + 1
        reports, speeds, cars = traffic.minutes.get(minute, (0, 0, 0))
        traffic.minutes[minute] = (reports + 1, speeds + record.speed, cars + record.is_first)
        if record.entered and traffic.minute != minute and ctx.watermark_ms < (minute - 1) * 60_000:
            self.waiting.put(record.time << 32 | record.vid, record)
            ctx.timer(f"minute {minute}", at=(minute - 1) * 60_000)
        elif record.entered:
            self._tell(record, traffic, ctx)
        self.traffic.set(traffic)

    def on_timer(self, name: str, ctx: sf.Context[Told]) -> None:  # noqa: ARG002 - one is as the other
        """A minute begins: what came before it is complete."""
        traffic = self.traffic.get() or Traffic()
        for entry, record in self.waiting.range(None, (ctx.timestamp_ms // 1_000 + 60) << 32):
            self._tell(record, traffic, ctx)
            self.waiting.remove(entry)
        self.traffic.set(traffic)

    def _tell(self, record: Moved, traffic: Traffic, ctx: sf.Context[Told]) -> None:
        minute = record.time // 60 + 1
        if traffic.minute != minute:
            self._begin(traffic, record.segment, minute)
        told = Told(
            record.vid,
            record.time,
            record.segment,
            traffic.lav,
            traffic.toll,
            traffic.accident,
            record.entered,
            record.is_new,
        )
        ctx.emit(told, timestamp_ms=record.time * 1_000)

    def _begin(self, traffic: Traffic, segment: int, minute: int) -> None:
        """The toll of a minute, from all that came before it."""
        known = [traffic.minutes.get(each, (0, 0, 0)) for each in range(minute - 5, minute)]
        reports, speeds = sum(each[0] for each in known), sum(each[1] for each in known)
        cars = known[-1][2]
        traffic.minutes = {each: counts for each, counts in traffic.minutes.items() if each >= minute - 5}
        traffic.minute, traffic.lav = minute, (2 * speeds + reports) // (2 * reports) if reports else 0
        traffic.accident = self._accident(segment, minute)
        is_free = cars <= 50 or traffic.lav >= 40 or traffic.accident >= 0
        traffic.toll = 0 if is_free else 2 * (cars - 50) ** 2

    def _accident(self, segment: int, minute: int) -> int:
        """The number of the nearest segment ahead whose accident is warned of in a minute; -1 for none."""
        ready = [each for each in self.stood if each.time < (minute - 1) * 60]
        if ready:
            later = [each for each in self.stood if each.time >= (minute - 1) * 60]
            self.stood.clear()
            self.stood.extend(later)
        for stood in sorted(ready, key=lambda each: (each.time, each.vid)):
            wreck, here = self.wrecks.get(stood.at) or Wreck(), (stood.vid, *stood.place)
            if stood.has_left:
                wreck.standing = [each for each in wreck.standing if each != here]
                if stood.vid in wreck.cars and wreck.last == OPEN:
                    wreck.last = stood.time // 60 + 1
            elif len(cars := [each[0] for each in wreck.standing if each[1:] == stood.place]) < 2:
                wreck.standing.append(here)
                if cars and not wreck.cars:
                    wreck.cars, wreck.first = [*cars, stood.vid], stood.time // 60 + 2
            self.wrecks.put(stood.at, wreck)
        active = [at for at, wreck in self.wrecks.items() if wreck.first <= minute <= wreck.last]
        return min(active, key=lambda at: abs(at - segment), default=-1)


class Accounts(sf.Operator[int, Told, str]):
    """Charges each car, and tells its balance."""

    ledger: sf.Value[Ledger | None] = sf.state()

    def on_toll(self, told: Told, ctx: sf.Context[str]) -> None:
        """A car has entered a segment: it pays for the one before."""
        ledger = self.ledger.get() or Ledger()
        insort(ledger.unsettled, (told.time, told.toll if told.entered == 1 else 0, told.is_new))
        self._settle(ledger, ctx.watermark_ms)
        self.ledger.set(ledger)

    def on_query(self, line: str, ctx: sf.Context[str]) -> None:
        """Answered at the end of its second."""
        _, time, _, _, _, _, _, _, _, qid, *_ = line.split(",")
        ctx.timer(f"{time},{qid}", at=(int(time) + 1) * 1_000)

    def on_timer(self, name: str, ctx: sf.Context[str]) -> None:
        """The second of a query is over."""
        ledger, (time, qid) = self.ledger.get() or Ledger(), name.split(",")
        self._settle(ledger, (int(time) + 1) * 1_000)
        self.ledger.set(ledger)
        ctx.emit(f"2,{time},{time},{time},{qid},{ledger.balance}", timestamp_ms=int(time) * 1_000)

    def _settle(self, ledger: Ledger, until_ms: int) -> None:
        while ledger.unsettled and ledger.unsettled[0][0] * 1_000 < until_ms:
            _, toll, is_new = ledger.unsettled.pop(0)
            ledger.balance += 0 if is_new else ledger.toll
            ledger.toll = toll


def lines_of(told: Told) -> list[str]:
    """The answers to a car that has entered a segment."""
    if told.entered == 2:
        return []
    vid, time, (road, seg) = told.vid, told.time, divmod(told.accident, 100)
    toll = f"0,{vid},{time},{time},{told.lav},{told.toll}"
    return [toll] if told.accident < 0 else [f"1,{time},{time},{road // 2},{seg},{road % 2},{vid}", toll]


def day_answer(line: str) -> list[str]:
    """The answer to a query for the tolls of a day in the past, where they are known."""
    _, time, vid, _, xway, _, _, _, _, qid, _, _, _, _, day = line.split(",")
    toll = HISTORY.get(f"{vid},{day},{xway}") if day != "0" else None
    return [] if toll is None else [f"3,{time},{time},{qid},{toll}"]


def vid_of(line: str) -> int:
    """The car of a line."""
    return int(line.split(",", 3)[2])


def time_ms_of(line: str) -> int:
    """Event time of a line."""
    return int(line.split(",", 2)[1]) * 1_000


TOLLS = Path(os.environ.get("LINEAR_ROAD_TOLLS", Path(__file__).parent / "data" / "tolls.dat"))
HISTORY = dict(line.rsplit(",", 1) for line in TOLLS.read_text().split())

app = sf.App(
    "linear-road", options=sf.AppOptions(partitions=2, guarantee="exactly-once", commit_interval_seconds=0.1)
)
source = app.topic("lr-input", key=int, value=str, timestamp=time_ms_of)
answers = app.topic("lr-answers", key=int, value=str)

reports, balances, days, _ = app.stream(source).branch(
    lambda line: line.startswith("0,"), lambda line: line.startswith("2,"), lambda line: line.startswith("3,")
)
told = (
    reports.key_by(vid_of, name="by-car")
    .process(Cars, name="cars")
    .key_by("segment", name="by-segment", key=int)
    .process(Segments, name="segments")
)
told.flat_map(lines_of).to(answers)
app.process(
    Accounts,
    sf.port(told.key_by("vid", name="by-account", key=int), Accounts.on_toll),
    sf.port(balances.key_by(vid_of, name="balances"), Accounts.on_query),
    name="accounts",
).to(answers)
days.flat_map(day_answer).to(answers)

if __name__ == "__main__":
    app.main()
