"""Many windows due at once close in turns, with commits between; nothing but that shows in what comes out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.catalog.model import RoutingEntry
from stateflow.errors import ReplayPending
from stateflow.log.base import TopicSpec
from stateflow.operators.steps import timers as timing
from stateflow.record import TopicPartition
from stateflow.runtime.task.commit import commit_epoch
from stateflow.runtime.task.task import Task
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from stateflow.store.dirty import DirtyStore
from stateflow.testing import TestDriver
from tests.sim.crashing import CrashPlan
from tests.sim.one_machine import OneMachine

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000
T0 = 1_704_067_200_000
WINDOW = sf.Tumbling(timedelta(minutes=1), grace=timedelta(seconds=10))
CHANGES_MAX = 2 * 2 * timing.WINDOWS_PER_TURN + 4
"""Of a commit: a turn with the records and one behind them; of each window itself and its place in the order."""


@pytest.fixture
def tiny_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WINDOWS_PER_TURN", 2)
    monkeypatch.setattr(timing, "WINDOWS_PER_CHUNK", 1)


CHANGELOGS = [None, sf.Eventual(0.0), sf.Eventual(0.5)]
NAMES_OF_CHANGELOGS = ["logged", "eventual-unlogged", "eventual"]


def minutes_app(
    emit: Any = "on_close", **options: Any
) -> tuple[sf.App, sf.Topic[Any, Any], sf.Topic[Any, Any], sf.Topic[Any, Any]]:
    """Counts per key and minute, and what came too late for them."""
    app = sf.App("m", guarantee="exactly-once", partitions=1)
    clicks = app.topic("clicks", value=str)
    counts = app.topic("counts", key=sf.WindowedKey(sf.String, MINUTE_MS), value=int)
    late = app.topic("late", key=str, value=str)
    minutes = (
        app.stream(clicks).key_by(lambda key: key, name="by-k", key=str).window(WINDOW, emit=emit, **options)
    )
    minutes.count(name="n").to(counts)
    minutes.late().to(late)
    return app, clicks, counts, late


def results(driver: TestDriver, out: sf.Topic[Any, Any]) -> Counter[tuple[str, int, int]]:
    """Results by key, minute and count, with how often each came."""
    return Counter(
        (record.key.key, (record.key.start_ms - T0) // MINUTE_MS, record.value)
        for record in driver.output(out)
    )


class Commits:
    """What is written with each commit, while it is looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: list[int] = []
        self.dirty_bytes: list[int] = []

        def spied(wiring: Any, context: Any, *rest: Any, **more: Any) -> None:
            stores: list[DirtyStore] = list(context.stores.values())
            if changes := sum(len(store.changes()) for store in stores):
                self.changes.append(changes)
                self.dirty_bytes.append(sum(store.dirty_bytes for store in stores))
            commit_epoch(wiring, context, *rest, **more)

        monkeypatch.setattr("stateflow.runtime.task.task.commit_epoch", spied)


@pytest.mark.parametrize("changelog", CHANGELOGS, ids=NAMES_OF_CHANGELOGS)
def test_a_burst_of_windows_closes_in_many_commits(changelog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app, clicks, counts, _ = minutes_app(changelog=changelog)
    driver, count = TestDriver(app, partitions=1), 20_000
    driver.send_many(clicks, [(None, f"key-{number}", T0) for number in range(count)])
    commits = Commits(monkeypatch)
    driver.send(clicks, "later", timestamp_ms=T0 + 2 * MINUTE_MS)
    assert results(driver, counts) == {(f"key-{number}", 0, 1): 1 for number in range(count)}
    assert max(commits.changes) <= CHANGES_MAX
    assert len(commits.changes) >= count / timing.WINDOWS_PER_TURN / 2


def test_between_commits_that_are_due_what_is_full_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WINDOWS_PER_TURN", 100)
    monkeypatch.setattr(timing, "WINDOWS_PER_CHUNK", 10)
    world, count = BurstWorld(), 5_000
    world.set(commit_interval_seconds=1, dirty_bytes_max=50_000, poll_records_max=200)
    rows = [(b"key-%d" % number, T0) for number in range(count)]
    world.feed_topic("clicks", [*rows, (b"later", T0 + 9 * MINUTE_MS)], partitions=1)
    commits = Commits(monkeypatch)
    world.one_life(CrashPlan(), turns=100)
    assert len(world.counted()) == count
    assert len(commits.dirty_bytes) >= 8
    assert max(commits.dirty_bytes) <= 50_000 + 20_000


def feed(driver: TestDriver, topic: sf.Topic[Any, Any], rows: list[tuple[str, int]]) -> None:
    """Send, and do not process."""
    writer = driver.cluster.writer()
    for value, at_ms in rows:
        writer.send(topic.name, None, topic.value.encode(value), partition=0, timestamp_ms=at_ms)
    writer.commit()
    writer.close()


def task_of(driver: TestDriver) -> Task:
    return driver._worker.tasks["by-k-0"]


def turn_until(driver: TestDriver, is_over: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if is_over():
            return
        driver._worker.step()
    raise AssertionError("that does not come about")


@pytest.mark.usefixtures("tiny_turns")
def test_a_window_that_waits_for_its_turn_takes_no_record() -> None:
    app, clicks, counts, late = minutes_app()
    driver = TestDriver(app, partitions=1)
    driver.send_many(clicks, [(None, f"k{number}", T0) for number in range(9)])
    feed(driver, clicks, [("later", T0 + 2 * MINUTE_MS)])
    turn_until(driver, lambda: task_of(driver).has_pending_timers)
    assert 0 < len(driver.output(counts)) < 9
    feed(driver, clicks, [("k0", T0 + 1), ("k8", T0 + 1), ("new", T0 + 2)])
    driver.run()
    assert results(driver, counts) == {(f"k{number}", 0, 1): 1 for number in range(9)}
    assert sorted(record.value for record in driver.output(late)) == ["k0", "k8", "new"]


@pytest.mark.usefixtures("tiny_turns")
def test_they_close_by_start_and_then_by_key() -> None:
    app, clicks, counts, _ = minutes_app()
    driver = TestDriver(app, partitions=1)
    rows = [(None, f"k{number}", T0 + minute * MINUTE_MS) for minute in range(3) for number in range(5)]
    random.Random(3).shuffle(rows)
    driver.send_many(clicks, sorted(rows, key=lambda row: row[2]))
    driver.send(clicks, "later", timestamp_ms=T0 + 9 * MINUTE_MS)
    order = [(record.key.start_ms, record.key.key) for record in driver.output(counts)]
    assert order == sorted(order)
    assert len(order) == 15


def two_stages() -> tuple[sf.App, sf.Topic[Any, Any], sf.Topic[Any, Any]]:
    """How many keys had so many clicks in a minute, per minute."""
    app = sf.App("t", guarantee="exactly-once", partitions=2)
    clicks = app.topic("clicks", value=str)
    out = app.topic("out", key=sf.WindowedKey(sf.String, MINUTE_MS), value=int)
    first = app.stream(clicks).key_by(lambda key: key, name="by-k", key=str)
    counts = first.window(sf.Tumbling(timedelta(minutes=1)), emit="on_close").count(name="n")
    second = counts.map(str, value=str).key_by(str, name="by-n", key=str)
    second.window(sf.Tumbling(timedelta(minutes=1)), emit="on_close").count(name="keys").to(out)
    return app, clicks, out


def clicks_of(seed: int) -> Iterator[list[tuple[None, str, int]]]:
    draw, at_ms = random.Random(seed), T0
    for _ in range(6):
        yield [
            (None, f"k{draw.randrange(12)}", at_ms := at_ms + draw.randrange(20_000))
            for _ in range(draw.randrange(1, 25))
        ]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_late_behind_windows_that_close_in_turns(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = None
    for per_turn in (2_000, 1):
        monkeypatch.setattr(timing, "WINDOWS_PER_TURN", per_turn)
        monkeypatch.setattr(timing, "WINDOWS_PER_CHUNK", per_turn)
        app, clicks, out = two_stages()
        driver = TestDriver(app, partitions=2)
        for rows in clicks_of(seed):
            driver.send_many(clicks, rows, partitions=[number % 2 for number in range(len(rows))])
        driver.end_input()
        found = results(driver, out)
        behind = [task for name, task in driver._worker.tasks.items() if name.startswith("by-n")]
        assert sum(task.context.counters["late_records_total"] for task in behind) == 0
        assert expected in (None, found)
        expected = found
    assert expected


class BurstWorld(OneMachine):
    def __init__(self, changelog: Any = None) -> None:
        app, _, _, _ = minutes_app(changelog=changelog)
        topics = [TopicSpec(name, 1) for name in ("clicks", "counts", "late")]
        super().__init__(app.topology(), "exactly-once", topics, partitions=1)
        self.set(commit_interval_seconds=0)

    def one_life(self, plan: CrashPlan, turns: int = 5) -> None:
        """Windows close a few each turn, also behind the end of the input."""
        super().one_life(plan, turns)

    def counted(self) -> Counter[tuple[bytes | None, bytes | None]]:
        return Counter((record.key, record.value) for record in self.read("counts"))


def live_through(world: BurstWorld, plan: CrashPlan, *, power_cut: bool) -> None:
    """Windows of five keys close at once, with a kill in between."""
    keys = [b"k%d" % (number % 5) for number in range(6)]
    world.feed_topic("clicks", [(key, T0) for key in keys] + [(b"later", T0 + 9 * MINUTE_MS)], 1)
    world.live_through(plan, power_cut=power_cut)


@pytest.mark.usefixtures("tiny_turns")
@pytest.mark.parametrize("changelog", CHANGELOGS, ids=NAMES_OF_CHANGELOGS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_write_each_window_closes_once(after: bool, changelog: Any) -> None:
    def live(plan: CrashPlan, *, power_cut: bool = False) -> Counter[tuple[bytes | None, bytes | None]]:
        world = BurstWorld(changelog)
        live_through(world, plan, power_cut=power_cut)
        return world.counted()

    plan = CrashPlan()
    expected = live(plan)
    assert (len(expected), set(expected.values())) == (5, {1})
    assert plan.calls > 40
    for call in range(1, plan.calls + 1):
        dying = CrashPlan(call, after=after)
        power_cut = (call % 2 == 0) is after  # each write is met with one of the two, before it and after it
        assert live(dying, power_cut=power_cut) == expected, f"killed {dying.died_at}, call {call}"


@pytest.mark.usefixtures("tiny_turns")
def test_a_savepoint_in_the_middle_of_closing_has_the_rest() -> None:
    app, clicks, counts, _ = minutes_app()
    driver = TestDriver(app, partitions=1)
    driver.send_many(clicks, [(None, f"k{number}", T0) for number in range(30)])
    feed(driver, clicks, [("later", T0 + 2 * MINUTE_MS)])
    turn_until(driver, lambda: len(driver.output(counts)) > 0)
    driver.savepoint("half")
    driver.run()
    whole = {(f"k{number}", 0, 1): 1 for number in range(30)}
    assert results(driver, counts) == whole
    driver.restore_savepoint("half")
    again = results(driver, counts) - Counter(whole)
    assert set(again.values()) == {1}
    assert 0 < len(again) < 30, (
        "those that were closed before the savepoint stay closed, the others close again"
    )


def halfway(changelog: sf.Eventual) -> tuple[TestDriver, sf.Topic[Any, Any]]:
    """Some of thirty windows have closed, the others wait for their turn."""
    app, clicks, counts, _ = minutes_app(changelog=changelog)
    driver = TestDriver(app, partitions=1)
    driver.send_many(clicks, [(None, f"k{number}", T0) for number in range(30)])
    feed(driver, clicks, [("later", T0 + 2 * MINUTE_MS)])
    turn_until(driver, lambda: len(driver.output(counts)) > 0)
    assert len(driver.output(counts)) < 30
    return driver, counts


THIRTY = {(f"k{number}", 0, 1): 1 for number in range(30)}


@pytest.mark.usefixtures("tiny_turns")
def test_a_savepoint_closes_what_is_due_where_the_changelog_is_eventual() -> None:
    """So that it leaves nothing to replay: other generations and applications have other offsets."""
    driver, counts = halfway(sf.Eventual(0.0))
    driver.savepoint("half")
    assert results(driver, counts) == THIRTY
    driver.restore_savepoint("half")
    driver.run()
    assert results(driver, counts) == THIRTY


@pytest.mark.usefixtures("tiny_turns")
def test_a_partition_change_waits_for_windows_whose_changelog_is_eventual() -> None:
    driver, counts = halfway(sf.Eventual(0.0))
    driver.crash()
    driver.cluster.end_sessions("m")
    two = RoutingEntry(kind="modulo", partitions=2)
    with pytest.raises(ReplayPending, match="wait for their turn to close"):
        start(driver.cluster, "m", two, InProcess(driver.cluster), driver.clock)
    driver.restore()
    driver.run()
    driver.repartition(2)
    assert results(driver, counts) == THIRTY


@pytest.mark.usefixtures("tiny_turns")
def test_records_behind_the_end_of_the_input_meet_windows_that_wait_for_their_turn() -> None:
    app, clicks, counts, late = minutes_app()
    driver = TestDriver(app, partitions=1)
    driver.send_many(clicks, [(None, f"k{number}", T0 + number) for number in range(9)])
    source = TopicPartition(clicks.name, 0)
    driver._worker.end_input({source: 9})
    turn_until(driver, lambda: 0 < len(driver.output(counts)) < 9)
    feed(driver, clicks, [("k0", T0 + 10), ("k8", T0 + 11)])
    driver.run()
    driver.end_input()
    assert results(driver, counts) == {(f"k{number}", 0, 1): 1 for number in range(9)}
    assert sorted(record.value for record in driver.output(late)) == ["k0", "k8"]


def test_state_past_its_retention_goes_in_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    app, clicks, counts, _ = minutes_app(emit="on_update")
    driver = TestDriver(app, partitions=1)
    count = 3 * timing.WINDOWS_PER_TURN
    driver.send_many(clicks, [(None, f"k{number}", T0) for number in range(count)])
    commits = Commits(monkeypatch)
    driver.send(clicks, "later", timestamp_ms=T0 + 2 * MINUTE_MS)
    assert max(commits.changes) <= CHANGES_MAX
    assert len(list(task_of(driver).context.store("n").scan())) == 1
    assert sum(results(driver, counts).values()) == count + 1
