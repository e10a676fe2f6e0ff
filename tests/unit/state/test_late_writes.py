"""Records out of order and state with a time to live: what comes late does not shorten the life of what is there."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.testing.driver import TestDriver

SECOND = timedelta(seconds=1)
TTL_S = 60


class Kept(sf.Operator[str, int, Any]):
    """Counts in each type of state, and tells what it has counted; of the list, how long it was before."""

    value: sf.Value[int | None] = sf.state(ttl=TTL_S * SECOND)
    counter: sf.Counter = sf.state(ttl=TTL_S * SECOND)
    map: sf.MapOf[str, int] = sf.state(ttl=TTL_S * SECOND)
    own: sf.Value[int | None] = sf.state(ttl_per_write=True)
    set: sf.SetOf[str] = sf.state(ttl=TTL_S * SECOND)
    listed: sf.ListOf[int] = sf.state(ttl=TTL_S * SECOND)

    def on_record(self, value: int, ctx: sf.Context[Any]) -> None:
        self.value.set((self.value.get() or 0) + 1)
        self.counter.add()
        self.map.put("a", self.map.get("a", 0) + 1)
        self.own.set((self.own.get() or 0) + 1, ttl=TTL_S * SECOND)
        self.set.add("a")
        if len(self.listed):
            self.listed[0] = self.listed[0] + 1
        else:
            self.listed.append(1)
        ctx.emit(
            [
                self.value.get(),
                self.counter.get(),
                self.map.get("a"),
                self.own.get(),
                list(self.set),
                list(self.listed),
            ]
        )


def kept(seconds: list[int]) -> list[Any]:
    app = sf.App("kept")
    seen, out = app.topic("seen", key=str, value=int), app.topic("out", key=str, value=sf.Json)
    app.stream(seen, co_partitioned=True).process(Kept, name="kept").to(out)
    driver = TestDriver(app, partitions=1)
    for second in seconds:
        driver.send(seen, 1, key="k", timestamp_ms=second * 1000)
    return [record.value for record in driver.output(out)]


def test_a_late_write_is_read_again_and_lives_as_long_as_what_it_replaced() -> None:
    assert kept([100, 20, 100, 101]) == [[n, n, n, n, ["a"], [n]] for n in (1, 2, 3, 4)]
    assert kept([60, 5, 66]) == [[n, n, n, n, ["a"], [n]] for n in (1, 2, 3)]


def test_what_replaces_the_expired_counts_from_its_own_time() -> None:
    assert [row[0] for row in kept([100, 161, 120, 170])] == [1, 1, 2, 3]
    assert kept([100, 161, 20])[2][0] == 2


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("spoilt", [False, True])
def test_aggregates_forget_as_if_records_came_alone(size: int, spoilt: bool) -> None:
    rng = random.Random(size)
    for _ in range(30):
        seconds = [rng.randrange(1, 300) for _ in range(rng.randrange(1, 12))]
        rows = [(rng.choice("ab"), rng.randrange(0, 4) if spoilt else 1, second) for second in seconds]
        assert folded(rows, size) == remembered(rows), (rows, size)


Row = tuple[str, int, int]
"""Key, value, second."""


def folded(rows: list[Row], size: int) -> dict[str, int]:
    """The last sum of each key, where so many records are processed at once and those of value 3 are let go."""

    def add(total: int, value: int) -> int:
        if value == 3:
            raise ValueError("it is let go")
        return total + value

    app = sf.App("folded")
    seen, out = app.topic("seen", key=str, value=int), app.topic("out", key=str, value=int)
    summed: sf.Aggregate[int, int, int] = sf.fold(0, add, type=int)
    app.stream(seen, co_partitioned=True).aggregate(
        summed, name="n", ttl=TTL_S * SECOND, on_error=sf.Skip()
    ).to(out)
    driver = TestDriver(app, partitions=1)
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        driver.send_many(seen, [(key, value, second * 1000) for key, value, second in part])
    return {record.key: record.value for record in driver.output(out)}


def remembered(rows: list[Row]) -> dict[str, int]:
    """The same by the rule: a record counts from its time, or from that of what it adds to, if that is later."""
    totals: dict[str, tuple[int, int]] = {}
    mark = 0
    for key, value, second in rows:
        mark = max(mark, second)
        if value == 3:
            continue
        total, written = totals.get(key, (0, -TTL_S))
        if written + TTL_S <= mark:
            total, written = 0, -TTL_S
        totals[key] = total + value, max(written, second)
    return {key: total for key, (total, _) in totals.items()}
