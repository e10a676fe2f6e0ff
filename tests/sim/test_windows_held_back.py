"""Windows of every kind that tell at intervals or within bounds: turns, crashes, savepoints, repartitions, batches."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.log.base import TopicSpec
from stateflow.operators.steps import timers as timing
from stateflow.testing import TestDriver
from tests.sim.crashing import CrashPlan
from tests.sim.one_machine import OneMachine
from tests.sim.test_every_window import KIND, WINDOWS, app_of, newest, rows_of, straight

pytestmark = pytest.mark.slow

T0 = 1_704_067_200_000
TICK_MS = 300
TICK = timedelta(milliseconds=TICK_MS)
EMISSIONS: dict[str, Any] = {
    "every": sf.Every(TICK),
    "few": sf.TimeLimit(TICK, max_records=3),
    "close": sf.OnClose(max_records=10_000),
}
EMIT = pytest.mark.parametrize("emit", EMISSIONS.values(), ids=EMISSIONS)


def last(driver: TestDriver, out: Any) -> set[tuple[Any, ...]]:
    return {(*key, value) for key, value in newest(driver, out).items()}


@KIND
@EMIT
def test_batches_crashes_repartitions_and_savepoints_change_no_last_result(kind: str, emit: Any) -> None:
    rows, draw = rows_of(5, 40), random.Random(5)
    expected = straight(kind, rows)
    app, source, out = app_of(kind, emit=emit)
    driver = TestDriver(app, partitions=1)
    left, partitions = rows, 1
    while left:
        count = draw.choice((1, 2, 9))
        batch, left = left[:count], left[count:]
        driver.send_many(source, batch)
        match draw.randrange(6):
            case 0:
                driver.crash(disk_lost=draw.random() < 0.5)
                driver.restore()
            case 1:
                partitions = partitions % 3 + 1
                driver.repartition(partitions)
            case 2:
                driver.savepoint(f"s{len(left)}")
                driver.restore_savepoint(f"s{len(left)}")
            case _:
                pass
    driver.end_input()
    assert last(driver, out) == set(expected)
    if isinstance(emit, sf.OnClose):
        assert set(Counter((*record.key, record.value) for record in driver.output(out)).values()) == {1}
    assert held(driver) == []


def held(driver: TestDriver) -> list[Any]:
    """What is held in any task."""
    tasks = [task for name, task in driver._worker.tasks.items() if name.startswith("by-key")]
    assert tasks
    return [entry for task in tasks for entry in task.context.store("n-held").scan()]


@KIND
@pytest.mark.parametrize("per_turn", [1, 3])
@EMIT
def test_they_are_told_in_turns(kind: str, per_turn: int, emit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = straight(kind, rows_of(6))
    monkeypatch.setattr(timing, "WINDOWS_PER_TURN", per_turn)
    monkeypatch.setattr(timing, "WINDOWS_PER_CHUNK", max(1, per_turn - 1))
    app, source, out = app_of(kind, emit=emit)
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, rows_of(6))
    driver.end_input()
    assert last(driver, out) == set(expected)


@KIND
def test_no_window_is_told_twice_within_an_interval(kind: str) -> None:
    """Records one by one in one source partition: what is told between two of them follows from the log alone."""
    app = sf.App("w")
    source, out = app.topic("in", key=str, value=int), app.topic("out", key=app_of(kind)[2].key, value=int)
    stream = app.stream(source, co_partitioned=True)
    stream.window(WINDOWS[kind], emit=sf.Every(TICK)).sum(name="n").to(out)
    driver = TestDriver(app, partitions=1)
    ticks: dict[Any, list[int]] = defaultdict(list)
    mark_ms = known = 0
    for _, (key, value), at_ms in rows_of(7, 120):
        before_ms, mark_ms = mark_ms, max(mark_ms, at_ms)
        driver.send(source, value, key=key, timestamp_ms=at_ms)
        told = driver.output(out)
        for record in told[known:]:
            ticks[record.key].append(mark_ms // TICK_MS)
            assert mark_ms > before_ms, "only what moves event time makes anything due"
        known = len(told)
    several = [numbers for numbers in ticks.values() if len(numbers) > 1]
    assert several or kind == "session"
    for numbers in several:  # the last may be told by the close, amid an interval
        assert numbers[:-1] == sorted(set(numbers[:-1]))
    assert known > 20


class TickingWorld(OneMachine):
    """Counts per key and second, behind a re-key step, told each 300 ms."""

    def __init__(self) -> None:
        app = sf.App("m", guarantee="exactly-once", partitions=1)
        clicks = app.topic("clicks", value=str)
        self.counts = app.topic("counts", key=sf.WindowedKey(sf.String, 1_000), value=int)
        keyed = app.stream(clicks).key_by(lambda key: key, name="by-k", key=str)
        keyed.window(sf.Tumbling(timedelta(seconds=1)), emit=sf.Every(TICK)).count(name="n").to(self.counts)
        topics = [TopicSpec(name, 1) for name in ("clicks", "counts")]
        super().__init__(app.topology(), "exactly-once", topics, partitions=1)

    def live(self, plan: CrashPlan, *, power_cut: bool) -> dict[Any, list[int]]:
        """All results of each window after a life with a crash, and another behind it."""
        rows = [(b"k%d" % (number % 3), T0 + 170 * number) for number in range(16)]
        self.feed_topic("clicks", [*rows, (b"later", T0 + 60_000)], 1)
        self.live_through(plan, power_cut=power_cut)
        found: dict[Any, list[int]] = defaultdict(list)
        for record in self.read("counts"):
            assert record.key is not None
            assert record.value is not None
            found[self.counts.key.decode(record.key)].append(sf.Integer.decode(record.value))
        return found

    def one_life(self, plan: CrashPlan, turns: int = 5) -> None:
        """What was held back comes in the turns behind the end of the input."""
        super().one_life(plan, turns)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_write_each_window_ends_with_its_result_and_none_is_told_again(
    after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "WINDOWS_PER_TURN", 2)
    monkeypatch.setattr(timing, "WINDOWS_PER_CHUNK", 1)
    plan = CrashPlan()
    expected = TickingWorld().live(plan, power_cut=False)
    assert sum(map(len, expected.values())) > len(expected) > 6
    assert plan.calls > 40
    for call in range(1, plan.calls + 1):
        dying = CrashPlan(call, after=after)
        found = TickingWorld().live(dying, power_cut=(call % 2 == 0) is after)
        assert {key: told[-1] for key, told in found.items()} == {
            key: told[-1] for key, told in expected.items()
        }, f"killed {dying.died_at}, call {call}"
        # A count only grows: told again would be a number twice.
        assert all(told == sorted(set(told)) for told in found.values()), (
            f"killed {dying.died_at}, call {call}"
        )
