"""Payloads and rounds through crashes, lost disks, repartitions and savepoints."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
MINUTE_MS = 60_000


class Parcels(sf.Operator[str, str, Any]):
    """Reminds of each parcel after an hour, in both times; counts the key's parcels every ten minutes."""

    every = sf.Every(timedelta(minutes=10), time="processing")
    parcels: sf.Counter = sf.state()

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        self.parcels.add()
        ctx.timer(f"event {value}", after=timedelta(hours=1), payload={"parcel": value})
        ctx.timer(f"clock {value}", after=timedelta(hours=1), time="processing", payload=[value])

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        ctx.emit([name, ctx.payload, [timer.payload for timer in ctx.timers()]])

    def on_every(self, ctx: sf.Context[Any]) -> None:
        ctx.emit(["round", self.parcels.get()])


def driver_of(partitions: int = 2) -> tuple[TestDriver, sf.Topic[str, str], sf.Topic[str, Any]]:
    app = sf.App("post", guarantee="exactly-once")
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=sf.Json)
    app.stream(source).key_by(lambda value: value[0], name="by").process(Parcels, name="parcels").to(out)
    return TestDriver(app, partitions=partitions, now_ms=T0 + 1), source, out


def told(driver: TestDriver, out: sf.Topic[str, Any]) -> list[Any]:
    return sorted([row.key, *row.value] for row in driver.rows(out))


def crashed(driver: TestDriver, number: int) -> None:
    driver.crash(disk_lost=True)
    driver.restore()


def moved(driver: TestDriver, number: int) -> None:
    driver.repartition(2 + number)


def begun_from_a_savepoint(driver: TestDriver, number: int) -> None:
    driver.savepoint(f"here-{number}")
    driver.restore_savepoint(f"here-{number}")


@pytest.mark.parametrize("disturb", [crashed, moved, begun_from_a_savepoint])
def test_what_is_pending_is_given_back_once_wherever_it_went(disturb: Any) -> None:
    driver, source, out = driver_of()
    driver.send_many(source, [("x", value, T0) for value in ("a1", "b1", "a2")])
    disturb(driver, 1)
    assert driver.state("parcels", "timers", key="a")["event a1"]["payload"] == {"parcel": "a1"}
    driver.advance(seconds=600)
    assert told(driver, out) == [["a", "round", 2], ["b", "round", 1]]
    disturb(driver, 2)
    driver.advance_event_time(T0 + 60 * MINUTE_MS)
    events = [each for each in told(driver, out) if each[1].startswith("event")]
    assert [each[:3] for each in events] == [
        [name[0], f"event {name}", {"parcel": name}] for name in ("a1", "a2", "b1")
    ]


def test_by_the_clock_what_fell_due_while_nothing_ran_fires_once_after_the_restore() -> None:
    driver, source, out = driver_of(1)
    driver.send_many(source, [("x", "a1", T0)])
    driver.crash(disk_lost=True)
    driver.clock.advance(seconds=3 * 3_600)
    driver.restore()
    driver.advance(seconds=1)
    assert told(driver, out) == [["a", "clock a1", ["a1"], [{"parcel": "a1"}]], ["a", "round", 1]]
    driver.crash()
    driver.restore()
    driver.advance(seconds=1)
    assert len(told(driver, out)) == 2, "18 rounds were missed and made up for by one"
    driver.advance(seconds=600)
    assert [each for each in told(driver, out) if each[1] == "round"] == [["a", "round", 1]] * 2
