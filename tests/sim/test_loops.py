"""An application that writes a topic which it reads: it has drained when nothing goes round any more."""

from __future__ import annotations

from typing import Any

import pytest

import stateflow as sf
from stateflow.log.base import Committed
from stateflow.runtime.progress.lag import application_lag, is_drained
from stateflow.testing import TestDriver


class CountDown(sf.Operator[str, int, int]):
    total: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.total.set(self.total.get() + value)
        if value > 0:
            ctx.emit(value - 1)


def counting_down() -> tuple[TestDriver, sf.Topic[str, int]]:
    app = sf.App("x", guarantee="exactly-once")
    numbers = app.topic("numbers", key=str, value=int)
    app.stream(numbers).key_by(lambda _: "k", name="by").process(CountDown, name="down").to(numbers)
    return TestDriver(app, partitions=1), numbers


def test_it_goes_round_until_nothing_is_left() -> None:
    driver, numbers = counting_down()
    driver.send(numbers, 9)
    assert driver.state("down", "total", key="k") == 45
    assert [row.value for row in driver.rows(numbers)] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_what_is_written_behind_the_back_of_a_look_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage commits what goes round after the look at the stage that reads it, and before the look at itself."""
    driver, numbers = counting_down()
    cluster, catalog = driver.cluster, driver._wiring.catalog
    driver.send(numbers, 1)
    driver.stop()
    cluster.end_sessions("x")
    writer, ranges, looks = cluster.writer(), cluster.ranges, []
    (place,) = [lag.source for lag in application_lag(cluster, catalog) if lag.source.topic != "numbers"]
    writer.send(place.topic, b"k", numbers.value.encode(1), partition=0, timestamp_ms=1)
    writer.commit()

    def racing_ranges(*arguments: Any, **options: Any) -> Any:
        found = ranges(*arguments, **options)
        looks.append(found)
        if len(looks) == 1:
            writer.send("numbers", b"k", numbers.value.encode(0), partition=0, timestamp_ms=1)
            writer.commit()
            cluster.commit("x", {place: Committed(ranges([place])[place].offset_next)})
        return found

    monkeypatch.setattr(cluster, "ranges", racing_ranges)
    assert [lag.source.topic for lag in application_lag(cluster, catalog) if lag.slots] == ["numbers"]
    assert not is_drained(cluster, catalog)
