"""The end of the input, declared: all that is pending fires and closes once, in all stages, through crashes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.operators.steps.timers import TIMERS_PER_TURN
from stateflow.runtime.progress.lag import source_ends
from stateflow.testing import TestDriver

pytestmark = pytest.mark.slow

T0 = 1_704_067_200_000
MINUTE = 60_000


class Sessions(sf.Operator[str, str, int]):
    """Counts a key's records until it has been silent for a minute of event time."""

    seen: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[int]) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.timer("silent", after=timedelta(minutes=1))

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:
        ctx.emit(self.seen.get())
        self.seen.clear()


class Ticking(sf.Operator[str, str, str]):
    """A timer that sets itself again for ever."""

    seen: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[str]) -> None:
        ctx.timer("tick", after=timedelta(minutes=1))

    def on_timer(self, name: str, ctx: sf.Context[str]) -> None:
        ctx.emit(name)
        ctx.timer("tick", after=timedelta(minutes=1))


def sessions_per_hour() -> tuple[sf.App, Any, Any]:
    """Sessions of keys, counted per length in windows of an hour behind a re-key step."""
    app = sf.App("s", guarantee="exactly-once", partitions=2)
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=int)
    sessions = app.stream(source, co_partitioned=True).process(Sessions, name="sessions")
    by_length = sessions.map(str, value=str).key_by(str, name="by-length", key=str)
    by_length.window(sf.Tumbling(timedelta(hours=1)), emit="on_close").count(name="per-hour").to(out)
    return app, source, out


def closed(driver: TestDriver, out: Any) -> Counter[tuple[str, int]]:
    """Results by length and hour; none comes twice."""
    results = [(record.key, (record.timestamp_ms - T0) // 3_600_000) for record in driver.output(out)]
    assert len(set(results)) == len(results)
    return Counter(
        {(record.key, (record.timestamp_ms - T0) // 3_600_000): record.value for record in driver.output(out)}
    )


def test_all_timers_fire_and_all_windows_close_in_all_stages() -> None:
    app, source, out = sessions_per_hour()
    driver = TestDriver(app, partitions=2)
    for number in range(20):
        driver.send(source, "x", key=f"k{number % 5}", timestamp_ms=T0 + number * 1_000)
    assert driver.output(out) == []
    driver.end_input()
    assert closed(driver, out) == {("4", 0): 5}
    driver.end_input()
    assert closed(driver, out) == {("4", 0): 5}, "nothing was pending any more"


def test_a_later_run_with_newer_records_goes_on() -> None:
    app, source, out = sessions_per_hour()
    driver = TestDriver(app, partitions=2)
    expected: Counter[tuple[str, int]] = Counter()
    for hour in (0, 2, 4):
        for key in ("a", "b", "c", "d"):
            driver.send(source, "x", "y", key=key, timestamp_ms=T0 + hour * 3_600_000)
        driver.end_input()
        expected["2", hour] = 4
        assert closed(driver, out) == expected
        driver.stop()
        driver.cluster.end_sessions("s")
        driver.restore()
        assert closed(driver, out) == expected
    assert not any(task.out_of_bounds.met() for task in driver._worker.tasks.values()), "none was late"


def test_a_timer_that_sets_itself_again_ends() -> None:
    app = sf.App("t", guarantee="exactly-once", partitions=1)
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=str)
    app.stream(source, co_partitioned=True).process(Ticking, name="ticking").to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(source, "x", key="a", timestamp_ms=T0)
    driver.end_input()
    assert [record.timestamp_ms for record in driver.output(out)] == [T0 + MINUTE]
    driver.crash()
    driver.restore()
    driver.end_input()
    assert len(driver.output(out)) == 1, "the end was told before; nothing has come since"
    driver.send(source, "x", key="b", timestamp_ms=T0 + 150_000)
    assert [record.timestamp_ms - T0 for record in driver.output(out)] == [60_000, 120_000]


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5])
def test_a_crash_in_the_middle_of_the_end_changes_nothing(turns: int) -> None:
    """More timers than fire in one turn, each of which sets itself again; a window behind them in the same stage."""
    app = sf.App("c", guarantee="exactly-once", partitions=1)
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=int)
    ticks = app.stream(source, co_partitioned=True).process(Ticking, name="ticking")
    ticks.window(sf.Tumbling(timedelta(hours=1)), emit="on_close").count(name="ticks").to(out)
    driver = TestDriver(app, partitions=1)
    keys = 2 * TIMERS_PER_TURN + 10
    writer = driver.cluster.writer()
    for number in range(keys):
        writer.send("in", b"k%d" % number, b"v", partition=0, timestamp_ms=T0 + number)
    writer.commit()
    writer.close()
    driver.run()
    driver._worker.end_input(source_ends(driver.cluster, driver._wiring.catalog))
    for _ in range(turns):
        driver._worker.step()
    driver.crash()
    driver.restore()
    driver.end_input()
    results = driver.output(out)
    assert len({record.key for record in results}) == len(results) == keys
    assert {record.value for record in results} == {1}


def test_records_after_the_end_are_processed_and_wait_for_time_again() -> None:
    app, source, out = sessions_per_hour()
    driver = TestDriver(app, partitions=2)
    driver.send(source, "x", key="a", timestamp_ms=T0)
    driver.end_input()
    driver.send(source, "x", key="a", timestamp_ms=T0 + 2 * 3_600_000)
    assert closed(driver, out) == {("1", 0): 1}
    driver.end_input()
    assert closed(driver, out) == {("1", 0): 1, ("1", 2): 1}


def test_an_input_without_any_record_ends_too() -> None:
    app, _, out = sessions_per_hour()
    driver = TestDriver(app, partitions=2)
    driver.end_input()
    assert driver.output(out) == []
    assert all(task.has_ended for task in driver._worker.tasks.values())


@pytest.mark.parametrize("disk_lost", [False, True])
def test_windows_with_an_eventual_changelog_close_once(disk_lost: bool) -> None:
    app = sf.App("e", guarantee="exactly-once", partitions=1)
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=int)
    windows = (
        app.stream(source)
        .key_by(lambda value: value, name="by-k", key=str)
        .window(sf.Tumbling(timedelta(minutes=1)), emit="on_close", changelog=sf.Eventual(intensity=0.1))
    )
    windows.count(name="n").to(out)
    driver = TestDriver(app, partitions=1)
    for number in range(50):
        driver.send(source, f"k{number}", timestamp_ms=T0 + number * 1_000)
    driver.end_input()
    assert len(driver.output(out)) == 50
    driver.crash(disk_lost=disk_lost)
    driver.restore()
    driver.end_input()
    assert len(driver.output(out)) == 50
    driver.send(source, "k0", timestamp_ms=T0 + 10 * MINUTE)
    driver.end_input()
    assert [(r.key, r.timestamp_ms, r.value) for r in driver.output(out)[50:]] == [
        ("k0", T0 + 10 * MINUTE, 1)
    ]
