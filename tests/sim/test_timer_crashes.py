"""Timers through kills, lost disks, bursts and repartitions: each fires once in what is committed, none is lost."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.failpoints import handled
from stateflow.log.base import TopicSpec
from stateflow.operators.steps import timers as timing
from stateflow.testing.driver import TestDriver
from tests.sim.crashing import Crash, CrashPlan
from tests.sim.one_machine import OneMachine

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)
KEYS = [f"k{number}" for number in range(5)]


class Session(sf.Operator[str, str, Any]):
    """Counts each key's clicks until it is silent for ten seconds, and says so: in event time and by the clock."""

    seen: sf.Value[int] = sf.state(default=0)
    ended: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.timer("event", after=10 * SECOND)
        ctx.timer("clock", after=10 * SECOND, time="processing")

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        self.ended.set(self.ended.get() + 1)
        ctx.emit([name, self.seen.get(), self.ended.get()])


def sessions() -> tuple[sf.App, sf.Topic[bytes, str], sf.Topic[str, Any]]:
    app = sf.App("sessions")
    clicks, out = app.topic("clicks", value=str), app.topic("ends", key=str, value=sf.Json)
    app.operator("session", source=clicks, key=lambda click: click, sink=out)(Session)
    return app, clicks, out


class TimedWorld(OneMachine):
    def __init__(self) -> None:
        app, _, _ = sessions()
        topics = [TopicSpec("clicks", 1), TopicSpec("ends", 1)]
        super().__init__(app.topology(), "exactly-once", topics, partitions=1)

    def click(self, *keys: str, second: int) -> None:
        self.feed_topic("clicks", [(key.encode(), second * 1000) for key in keys], partitions=1)

    def one_life(self, plan: CrashPlan, turns: int = 40) -> None:
        """Run to the end of the input, ten seconds of silence by the clock, and a clean stop."""
        worker = self.worker(plan)
        self.run_to_the_end(worker)
        for _ in range(turns):
            self.clock.advance(ms=500)
            worker.step()
        worker.stop()
        worker.run()

    def ends(self) -> Counter[str]:
        return Counter(f"{record.key.decode()} {record.value.decode()}" for record in self.read("ends"))


def live(plan: CrashPlan, *, power_cut: bool) -> Counter[str]:
    world = TimedWorld()
    world.click(*KEYS, *KEYS, second=1)
    world.click("last", second=500)
    world.live_through(plan, power_cut=power_cut)
    return world.ends()


@pytest.mark.parametrize("power_cut", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_write(after: bool, power_cut: bool) -> None:
    plan = CrashPlan()
    assert sum(live(plan, power_cut=False).values()) == 2 * len(KEYS) + 1
    assert plan.calls > 40
    for call in range(1, plan.calls + 1):
        dying = CrashPlan(call, after=after)
        ends = live(dying, power_cut=power_cut)
        assert_each_once(ends, f"killed {dying.died_at}, call {call}: {ends}")


def assert_each_once(ends: Counter[str], told: str) -> None:
    """Each timer once, each end of a key numbered once."""
    by_key = Counter(end.split()[0] for end in ends)
    assert by_key == {**dict.fromkeys(KEYS, 2), "last": 1}, told
    for key in KEYS:
        (first, second) = sorted(end.split(" ", 1)[1] for end in ends if end.startswith(f"{key} "))
        assert {first[:8], second[:8]} == {'["clock"', '["event"'}, told
        assert {first[-2], second[-2]} == {"1", "2"}, told
    assert set(ends.values()) == {1}, told


class Strikes:
    """Dies at the n-th time that a failpoint is reached, and at every point after that."""

    def __init__(self, point: str = "", hit: int = 0) -> None:
        self.hits: Counter[str] = Counter()
        self._point, self._hit = point, hit
        self._dead = False

    def __call__(self, point: str) -> None:
        self.hits[point] += 1
        if self._dead or (point == self._point and self.hits[point] == self._hit):
            self._dead = True
            raise Crash(point)


def live_to(strikes: Strikes) -> Counter[str]:
    world = TimedWorld()
    world.click(*KEYS, second=1)
    world.click(*KEYS, second=2)
    world.click("last", second=500)
    try:
        with handled(strikes):
            world.one_life(CrashPlan())
    except Crash:
        world.power_cut()
        world.one_life(CrashPlan())
    return world.ends()


def test_killed_at_every_failpoint() -> None:
    clean = Strikes()
    assert_each_once(live_to(clean), "without a crash")
    assert {"commit.after_end_txn", "commit.after_apply", "process.after_operators"} & clean.hits.keys()
    for point, hits in clean.hits.items():
        for hit in sorted({1, 2, 3, hits // 2 or 1, hits - 1 or 1, hits}):
            if hit <= hits:
                assert_each_once(live_to(Strikes(point, hit)), f"{point}, hit {hit} of {hits}")


def ends_of(driver: TestDriver, out: sf.Topic[str, Any]) -> Counter[tuple[str, str]]:
    return Counter((record.key, record.value[0]) for record in driver.output(out))


@pytest.mark.parametrize("disk_lost", [False, True])
def test_pending_timers_move_with_their_keys_and_survive_the_loss_of_the_disk(disk_lost: bool) -> None:
    app, clicks, out = sessions()
    driver = TestDriver(app, partitions=3)
    keys = [f"key-{number}" for number in range(30)]
    driver.send(clicks, *keys, timestamp_ms=5_000)
    driver.compact()
    for partitions in (7, 2):
        driver.crash(disk_lost=disk_lost)
        driver.restore()
        driver.repartition(partitions)
    assert ends_of(driver, out) == {}
    assert set(driver.state("session", "timers", key="key-3")) == {"event", "clock"}
    driver.advance(seconds=11)
    assert ends_of(driver, out) == {(key, "clock"): 1 for key in keys}
    driver.advance_event_time(15_000)
    assert ends_of(driver, out) == {(key, name): 1 for key in keys for name in ("clock", "event")}
    assert driver.state("session", "timers", key="key-3") is None
    driver.repartition(5)
    driver.advance(seconds=60)
    driver.advance_event_time(99_000)
    assert sum(ends_of(driver, out).values()) == 60


def test_a_burst_is_committed_in_parts_and_event_time_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "TIMERS_PER_TURN", 7)
    app = sf.App("burst")
    clicks, counts = app.topic("clicks", value=str), app.topic("counts", key=str, value=sf.Json)
    (
        app.stream(clicks)
        .key_by(lambda click: click, name="session", key=str)
        .process(Session, name="session")
        .key_by(lambda end: end[0], name="by-kind", key=str, value=sf.Json)
        .window(sf.Tumbling(10 * SECOND), emit="on_close")
        .count(name="per-kind")
        .to(counts)
    )
    driver = TestDriver(app, partitions=1)
    driver.send(clicks, *[f"key-{number}" for number in range(100)], timestamp_ms=1_000)
    task = driver._worker.tasks["session-0"]
    before = task.commits_total
    driver.advance_event_time(500_000)
    assert task.commits_total - before >= 100 // 14, "a slice in each turn, another in each commit"
    driver.advance_event_time(900_000)
    assert [record.value for record in driver.output(counts)] == [100]


def test_pending_timers_are_in_savepoints() -> None:
    app, clicks, out = sessions()
    driver = TestDriver(app, partitions=2)
    driver.send(clicks, *KEYS, timestamp_ms=5_000)
    driver.savepoint("pending")
    driver.advance(seconds=11)
    driver.restore_savepoint("pending")
    driver.advance_event_time(15_000)
    driver.advance(seconds=11)
    fired = ends_of(driver, out)
    assert {key: fired[key, "event"] for key in KEYS} == dict.fromkeys(KEYS, 1)
    assert {key: fired[key, "clock"] for key in KEYS} == dict.fromkeys(KEYS, 2), "again, after going back"
