"""One record that makes many timers of its key due: they fire in turns before it, with commits between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.log.base import TopicSpec
from stateflow.operators.steps import timers as timing
from stateflow.runtime.task.task import Task
from stateflow.runtime.worker.worker import Worker
from tests.sim.crashing import CrashPlan
from tests.sim.one_machine import OneMachine

pytestmark = pytest.mark.slow

SECOND_MS = 1_000
LATER_MS = 100_000
TIMERS = 40
Work = Callable[[], None]


def nothing() -> None:
    """A timer takes no time."""


def reminding(work: Work) -> type[sf.Operator[str, str, str]]:
    """An operator that sets as many timers as a record says, a tenth of a second apart."""

    class Remind(sf.Operator[str, str, str]):
        fired: sf.Value[int] = sf.state(default=0)

        def on_record(self, value: str, ctx: sf.Context[str]) -> None:
            word, number = value.split()
            if word == "set":
                for index in range(int(number)):
                    ctx.timer(f"{index:05}", at=ctx.timestamp_ms + 10 * SECOND_MS + 100 * index)
            elif word == "tick":
                ctx.timer(f"tick {number}", at=ctx.timestamp_ms + int(number))
            else:
                ctx.emit(f"{value} after {self.fired.get()}")

        def on_timer(self, name: str, ctx: sf.Context[str]) -> None:
            work()
            self.fired.set(self.fired.get() + 1)
            ctx.emit(name)
            if name.startswith("tick"):
                ctx.timer(name, at=ctx.timestamp_ms + int(name.split()[1]))

    return Remind


def application(kind: str, work: Work, **topic: Any) -> sf.App:
    """An operator with timers, behind the source itself or a re-key step."""
    app = sf.App("hot")
    clicks = app.topic("clicks", key=str, value=str, **topic)
    source = app.stream(clicks, co_partitioned=kind == "source")
    if kind != "source":
        source = source.key_by(lambda _: "hot", name="by-key", key=str)
    if kind == "in-order":
        source = source.in_order(name="ordered", grace=timedelta(seconds=1))
    remind = source.process(reminding(work), name="remind")
    remind.to(app.topic("out", key=str, value=str))
    return app


class HotWorld(OneMachine):
    """One key, with as many partitions of the source as are fed."""

    def __init__(self, kind: str, *, partitions: int = 1, timer_ms: int = 0, **topic: Any) -> None:
        work = (lambda: self.clock.advance(ms=timer_ms)) if timer_ms else nothing
        self.partitions = partitions
        topics = [TopicSpec("clicks", partitions), TopicSpec("out", partitions)]
        super().__init__(application(kind, work, **topic).topology(), "exactly-once", topics, partitions)

    def click(self, *values: str, at_ms: int) -> None:
        """The same records to each partition of the source."""
        writer = self.cluster.writer()
        for value in values:
            for partition in range(self.partitions):
                writer.send("clicks", b"hot", value.encode(), partition=partition, timestamp_ms=at_ms)
        writer.commit()
        writer.close()

    def out(self) -> list[str]:
        return [record.value.decode() for record in self.read("out")]


def task_of(worker: Worker) -> Task:
    (task,) = (task for task in worker.tasks.values() if task.wiring.stage.stores)
    return task


@pytest.fixture
def tiny_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "TIMERS_PER_TURN", 3)


def in_order(timers: int, *after: str) -> list[str]:
    return [f"{index:05}" for index in range(timers)] + [f"{value} after {timers}" for value in after]


KINDS = ["source", "rekeyed", "in-order"]


@pytest.mark.usefixtures("tiny_turns")
@pytest.mark.parametrize("kind", KINDS)
def test_they_fire_before_it_in_many_commits(kind: str) -> None:
    world = HotWorld(kind)
    worker = world.worker(CrashPlan())
    world.click(f"set {TIMERS}", at_ms=SECOND_MS)
    world.run_to_the_end(worker)
    task = task_of(worker)
    commits, before = task.commits_total, task.offsets[task.wiring.inputs[0]]
    world.click("later 1", "later 2", at_ms=LATER_MS)
    positions = []
    for _ in range(400):
        worker.step()
        positions.append((task.commits_total, task.committed.offsets[task.wiring.inputs[0]]))
    if kind == "in-order":  # records wait in state for event time
        world.click("last 1", at_ms=2 * LATER_MS)
    world.run_to_the_end(worker)
    assert world.out() == in_order(TIMERS, "later 1", "later 2")
    assert task.commits_total - commits >= TIMERS / 3 / 2
    if kind == "source":
        waiting = {number for number, offset in positions if offset <= before + 1}
        assert len(waiting) >= TIMERS / 3 / 2, "the position stands before the record meanwhile"


@pytest.mark.usefixtures("tiny_turns")
def test_a_record_behind_a_watermark_waits_for_what_it_has_made_due() -> None:
    """Behind several tasks records do not move event time: it came between them."""
    world = HotWorld("rekeyed", partitions=2)
    worker = world.worker(CrashPlan())
    world.click(f"set {TIMERS}", at_ms=SECOND_MS)
    world.run_to_the_end(worker)
    world.click("later 1", at_ms=LATER_MS)
    while not any(task.has_pending_timers for task in worker.tasks.values()):
        worker.step()
    world.click("later 2", at_ms=LATER_MS + 1)
    world.run_to_the_end(worker)
    told = [value for value in world.out() if value.startswith("later 2")]
    assert told == [f"later 2 after {TIMERS}"] * 2


@pytest.mark.usefixtures("tiny_turns")
def test_what_waits_in_state_for_event_time_comes_behind_the_timers_that_are_due_before_it() -> None:
    """Event time passes both at once: the records that are put in order, and the timers of the operator behind them."""
    world = HotWorld("in-order", partitions=2, timer_ms=100)
    worker = world.worker(CrashPlan())
    world.click(f"set {TIMERS}", at_ms=SECOND_MS)
    world.click("move 0", at_ms=5 * SECOND_MS)
    world.run_to_the_end(worker)
    (task,) = (task for task in worker.tasks.values() if task.records_total and task.wiring.stage.stores)
    commits = task.commits_total
    world.click("later 1", at_ms=LATER_MS)
    world.click("last 0", at_ms=2 * LATER_MS)
    world.run_to_the_end(worker)
    while any(task.has_pending_timers for task in worker.tasks.values()):
        worker.step()
    assert [value for value in world.out() if value.startswith("later")] == [f"later 1 after {TIMERS}"] * 2
    assert task.commits_total - commits >= TIMERS / 3 / 2


@pytest.mark.parametrize("kind", ["source", "rekeyed"])
@pytest.mark.parametrize("what", ["set 3000", "tick 20"])
def test_commits_come_at_their_interval_meanwhile(kind: str, what: str) -> None:
    world = HotWorld(kind, timer_ms=1)
    world.set(commit_interval_seconds=1.0, poll_records_max=10_000, slice_records_first=1)
    worker = world.worker(CrashPlan())
    world.click(what, at_ms=SECOND_MS)
    world.run_to_the_end(worker)
    task, longest = task_of(worker), 0.0
    source = task.wiring.inputs[0]
    world.click("later 1", "later 2", at_ms=LATER_MS)
    committed, since = task.commits_total, world.clock.monotonic_seconds()
    while task.offsets[source] < 3:
        worker.step()
        world.clock.advance(ms=1)
        if task.commits_total != committed:
            now = world.clock.monotonic_seconds()
            longest, committed, since = max(longest, now - since), task.commits_total, now
    assert longest <= 1.0 + 2 * timing.SECONDS_PER_TURN + 0.05


def test_ticks_all_come_before_the_record_however_many() -> None:
    """Timers that set themselves again: 99 of them, of which one at a time is pending."""
    world = HotWorld("source")
    world.click("tick 1000", at_ms=SECOND_MS)
    world.one_life(CrashPlan())
    world.click("later 1", at_ms=LATER_MS)
    world.one_life(CrashPlan())
    assert world.out() == ["tick 1000"] * 99 + ["later 1 after 99"]


def test_timers_that_set_themselves_again_for_a_time_that_has_passed_do_not_hold_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "TIMERS_PER_TURN", 3)
    monkeypatch.setattr(timing, "TIMERS_PER_RECORD", 30)
    world = HotWorld("source")
    worker = world.worker(CrashPlan())
    world.click("tick 0", at_ms=SECOND_MS)
    world.click("later 1", at_ms=LATER_MS)
    for _ in range(100):
        worker.step()
    assert any(value.startswith("later 1 after") for value in world.out())
    worker.stop()
    worker.run()


@pytest.mark.usefixtures("tiny_turns")
def test_a_stop_is_heard_between_two_turns() -> None:
    world = HotWorld("source")
    world.click(f"set {TIMERS}", at_ms=SECOND_MS)
    world.one_life(CrashPlan())
    world.click("later 1", at_ms=LATER_MS)
    worker = world.worker(CrashPlan())
    while not world.out():
        worker.step()
    worker.stop()
    worker.run()
    assert len(world.out()) < TIMERS / 2
    world.one_life(CrashPlan())
    assert world.out() == in_order(TIMERS, "later 1")


@pytest.mark.usefixtures("tiny_turns")
@pytest.mark.parametrize("max_ahead", [None, timedelta(seconds=500)])
def test_times_that_values_tell(max_ahead: timedelta | None) -> None:
    world = HotWorld(
        "source", timestamp=lambda value: LATER_MS if value[0] == "l" else SECOND_MS, max_ahead=max_ahead
    )
    worker = world.worker(CrashPlan())
    world.click(f"set {TIMERS}", at_ms=SECOND_MS)
    world.run_to_the_end(worker)
    task = task_of(worker)
    commits = task.commits_total
    world.click("later 1", "later 2", at_ms=SECOND_MS)
    world.run_to_the_end(worker)
    assert world.out() == in_order(TIMERS, "later 1", "later 2")
    assert task.commits_total - commits >= TIMERS / 3 / 2


@pytest.mark.usefixtures("tiny_turns")
@pytest.mark.parametrize("kind", ["source", "rekeyed"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_write_each_fires_once_and_before_the_record(kind: str, after: bool) -> None:
    timers = 10

    def live(plan: CrashPlan, *, power_cut: bool = False) -> list[str]:
        world = HotWorld(kind)
        world.click(f"set {timers}", at_ms=SECOND_MS)
        world.one_life(CrashPlan())
        world.click("later 1", "later 2", at_ms=LATER_MS)
        world.live_through(plan, power_cut=power_cut)
        return world.out()

    plan = CrashPlan()
    expected = live(plan)
    assert expected == in_order(timers, "later 1", "later 2")
    assert plan.calls > 30
    for call in range(1, plan.calls + 1):
        dying = CrashPlan(call, after=after)
        power_cut = (call % 2 == 0) is after
        assert live(dying, power_cut=power_cut) == expected, f"killed {dying.died_at}, call {call}"
