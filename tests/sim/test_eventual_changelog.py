"""Windows whose changelog is eventual: whatever dies, each window comes out once, and with its true count."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Literal

import pytest

import stateflow as sf
from stateflow.catalog.model import Guarantee, RoutingEntry
from stateflow.changelog.format import is_reserved
from stateflow.codec.windowed import Windowed
from stateflow.errors import GraphError, ReplayPending
from stateflow.log.base import TopicSpec
from stateflow.operators.steps import timers as timing
from stateflow.partitioner import partition_of
from stateflow.record import Record, TopicPartition
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from stateflow.store.memory import MemoryTaskStores
from stateflow.testing.driver import TestDriver
from tests.sim.crashing import Crash, CrashPlan
from tests.sim.one_machine import OneMachine

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000
BASE_MS = 1_704_067_200_000
TICK = "tick"
"""Moves event time on and is in no window."""
KEYS = [next(key for key in map(b"%d".__mod__, range(9)) if partition_of(key, 2) == p) for p in (0, 1)]
"""One for each of two source partitions: event time moves only if both speak."""
WORDS = ["to", "be", "or", "not", "that", "is", "the", "question"]

Emission = Literal["on_update", "on_close"]
Counts = dict[tuple[str, int], int]


def windows_app(
    changelog: sf.Eventual | None,
    emit: Emission = "on_close",
    guarantee: Guarantee = "exactly-once",
    ttl: timedelta | None = None,
) -> tuple[sf.App, sf.Topic[bytes, str], sf.Topic[Windowed[str], int]]:
    app = sf.App("minutes", guarantee=guarantee)
    words = app.topic("words", value=sf.String)
    counts = app.topic("counts", key=sf.WindowedKey(sf.String, MINUTE_MS), value=sf.Integer)
    (
        app.stream(words)
        .key_by(str.lower, name="by-word")
        .filter(lambda word: word != TICK)
        .window(sf.Tumbling(timedelta(minutes=1)), emit=emit, changelog=changelog)
        .count(name="per-minute", ttl=ttl)
        .to(counts)
    )
    return app, words, counts


def history(seed: int, records: int) -> list[tuple[str, int]]:
    """Words and event times that move on by half a minute at most, some of them a little out of order."""
    draw = random.Random(seed)
    at_ms, rows = BASE_MS, []
    for _ in range(records):
        at_ms += draw.randrange(0, 30_000)
        rows.append((draw.choice(WORDS), max(BASE_MS, at_ms - draw.choice([0, 0, 0, 20_000]))))
    return rows


@pytest.fixture(params=[2_000, 1], ids=["all at once", "one by one"])
def windows_per_turn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many windows close between two commits."""
    count: int = request.param
    monkeypatch.setattr(timing, "WINDOWS_PER_TURN", count)
    monkeypatch.setattr(timing, "WINDOWS_PER_CHUNK", count)
    return count


def run_driver(
    seed: int,
    changelog: sf.Eventual | None,
    emit: Emission,
    upset: Callable[[TestDriver, random.Random], None],
) -> tuple[TestDriver, list[Record]]:
    app, words, counts = windows_app(changelog, emit)
    driver = TestDriver(app, partitions=2)
    draw = random.Random(seed)
    for index, (word, at_ms) in enumerate(history(seed, 60)):
        driver.send(words, word, key=KEYS[index % 2], timestamp_ms=at_ms)
        upset(driver, draw)
    for key in KEYS:
        driver.send(words, "end", key=key, timestamp_ms=BASE_MS + 100 * MINUTE_MS)
    return driver, driver.output(counts)


def lose_things(driver: TestDriver, draw: random.Random) -> None:
    chance = draw.random()
    if chance < 0.1:
        driver.crash(disk_lost=draw.random() < 0.5)
        driver.restore()
    elif chance < 0.15:
        driver.compact()
    elif chance < 0.18:
        now = driver._wiring.routing.partitions
        driver.repartition(draw.choice([count for count in (1, 2, 3) if count != now]))


def let_be(driver: TestDriver, draw: random.Random) -> None:
    """Draws as ``lose_things`` does not: the two histories differ only in what went wrong."""


@cache
def undisturbed(seed: int, emit: Emission, windows_per_turn: int) -> list[Record]:
    """The results where nothing goes wrong and every change is logged, in turns as the fixture has set them."""
    return run_driver(seed, None, emit, let_be)[1]


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("intensity", [0.0, 0.2, 5.0])
@pytest.mark.parametrize("seed", range(6))
def test_the_results_are_those_of_an_undisturbed_run(
    seed: int, intensity: float, emit: Emission, windows_per_turn: int
) -> None:
    policy = sf.Eventual(intensity=intensity, max_replay_records=25)
    disturbed, results = run_driver(seed, policy, emit, lose_things)
    expected = undisturbed(seed, emit, windows_per_turn)
    newest = {(record.key.key, record.key.start_ms): record.value for record in expected}
    assert {(record.key.key, record.key.start_ms): record.value for record in results} == newest
    assert len(newest) > 10, "windows close, or this test shows nothing"
    if emit == "on_close":
        assert len(results) == len(newest), "no window twice"
    else:
        by_window = Counter((record.key.key, record.key.start_ms) for record in results)
        assert by_window == Counter((record.key.key, record.key.start_ms) for record in expected)
    assert not disturbed._worker.starting


def logged_records(driver: TestDriver) -> int:
    changelogs = [topic for topic in driver.cluster.list_topics() if topic.endswith("-changelog")]
    return sum(not is_reserved(record.key) for topic in changelogs for record in driver._read(topic))


def test_a_window_that_closes_before_its_turn_is_never_logged() -> None:
    lazy, _ = run_driver(1, sf.Eventual(intensity=0.0), "on_close", let_be)
    busy, _ = run_driver(1, None, "on_close", let_be)
    assert logged_records(lazy) == 0
    assert logged_records(busy) > 60, "a change for each record, and a deletion for each window that closed"


def test_intensity_is_the_number_of_windows_logged_per_record() -> None:
    driver, _ = run_driver(1, sf.Eventual(intensity=0.25), "on_update", let_be)
    tasks = [task for task in driver._worker.tasks.values() if task.context.eventual_changelogs]
    logged = sum(task.context.eventual_changelogs["per-minute"].logged_total for task in tasks)
    records = sum(task.records_total for task in tasks)
    assert 0.15 * records <= logged <= 0.25 * records


def test_replay_and_log_extents_keep_their_bounds() -> None:
    app, words, _ = windows_app(sf.Eventual(intensity=0.0, max_replay_records=10, max_log_records=60))
    driver = TestDriver(app, partitions=1)
    for index in range(200):  # one window that stays open, and is written again whenever it lies too far back
        driver.send(words, WORDS[0] if index == 0 else WORDS[1 + index % 3], timestamp_ms=BASE_MS + index)
        (task,) = (task for task in driver._worker.tasks.values() if task.context.eventual_changelogs)
        extents = task.context.eventual_changelogs["per-minute"].extents
        assert extents.replay_records <= 10
        assert extents.log_records <= 60 + 10, "the bound, and what one commit appends"
    assert extents.logged_windows == 4


def test_input_that_a_restore_may_replay_is_not_purged() -> None:
    app, words, _ = windows_app(sf.Eventual(intensity=0.0))
    driver = TestDriver(app, partitions=1)
    for index in range(20):
        driver.send(words, "be", timestamp_ms=BASE_MS + index)
        driver.advance(seconds=60)  # longer than the purge interval
    source = TopicPartition("minutes-by-word-repartition", 0)
    kept = driver.cluster.ranges([source])[source]
    assert 0 < kept.offset_first < 5, "what stands before the first word may go"
    driver.crash(disk_lost=True)
    driver.restore()
    assert driver.state("per-minute", key="be") == {BASE_MS: 20}
    driver.stop()  # a clean stop logs everything, so nothing is needed any more
    driver.restore()
    driver.advance(seconds=60)
    driver.send(words, "be", timestamp_ms=BASE_MS + 30)
    driver.advance(seconds=60)
    assert driver.state("per-minute", key="be") == {BASE_MS: 21}


def as_it_is_now(driver: TestDriver) -> dict[tuple[int, str], MemoryTaskStores]:
    """The stateful task's disk, with the same content as the one in use."""
    ((name, disk),) = ((name, disk) for name, disk in driver._disks.items() if name[1] == "by-word-0")
    copied, position = MemoryTaskStores(["per-minute"], driver.clock), disk.position("per-minute")
    assert position is not None
    copied.load("per-minute", list(disk.reader("per-minute").scan()), position)
    return {name: copied}


def test_a_window_of_a_stale_disk_does_not_come_out_again() -> None:
    """It was closed after the last flush, without a record of it: only event time tells that it is done."""
    app, words, counts = windows_app(sf.Eventual(intensity=0.0))
    driver = TestDriver(app, partitions=1)
    driver.send(words, "be", timestamp_ms=BASE_MS)
    stale = as_it_is_now(driver)
    driver.send(words, TICK, timestamp_ms=BASE_MS + 10 * MINUTE_MS)
    assert len(driver.output(counts)) == 1
    assert logged_records(driver) == 0
    driver.crash(disk_lost=True)
    driver._disks.update(stale)
    driver.restore()
    driver.send(words, TICK, timestamp_ms=BASE_MS + 20 * MINUTE_MS)
    assert len(driver.output(counts)) == 1


def test_a_closed_window_that_is_still_kept_gets_its_records_back() -> None:
    """Its records are late by now; they were not when they came."""
    app, words, _ = windows_app(sf.Eventual(intensity=0.0), "on_update", ttl=timedelta(hours=1))
    driver = TestDriver(app, partitions=1)
    driver.send(words, "be", "be", timestamp_ms=BASE_MS)
    driver.send(words, TICK, timestamp_ms=BASE_MS + 10 * MINUTE_MS)
    driver.send(words, "be", timestamp_ms=BASE_MS)  # late, and stays out of the window
    driver.crash(disk_lost=True)
    driver.restore()
    assert driver.state("per-minute", key="be") == {BASE_MS: 2}


def test_offsets_of_another_generation_mean_nothing() -> None:
    app, words, _ = windows_app(sf.Eventual(intensity=0.0))
    driver = TestDriver(app, partitions=1)
    for index in range(30):
        driver.send(words, "be", timestamp_ms=BASE_MS + index)
    driver.repartition(2)
    driver.send(words, "be", timestamp_ms=BASE_MS + 40)  # at one of the first offsets of its new topic
    driver.crash(disk_lost=True)
    driver.restore()
    assert driver.state("per-minute", key="be") == {BASE_MS: 31}


def test_a_partition_change_waits_for_a_clean_stop() -> None:
    app, words, _ = windows_app(sf.Eventual(intensity=0.0))
    driver = TestDriver(app, partitions=2)
    driver.send(words, *WORDS, timestamp_ms=BASE_MS)
    driver.crash()
    driver.cluster.end_sessions("minutes")
    three = RoutingEntry(kind="modulo", partitions=3)
    with pytest.raises(ReplayPending, match="still open"):
        start(driver.cluster, "minutes", three, InProcess(driver.cluster), driver.clock)
    driver.restore()
    driver.repartition(3)
    assert all(driver.state("per-minute", key=word) == {BASE_MS: 1} for word in WORDS)


@pytest.mark.parametrize("other", ["second window", "no key_by"])
def test_a_stage_that_cannot_be_replayed_is_refused(other: str) -> None:
    app = sf.App("refused")
    words = app.topic("words", key=sf.String, value=sf.String)
    if other == "no key_by":
        stream = app.stream(words, co_partitioned=True)
    else:
        stream = app.stream(words).key_by(str.lower, name="by-word")
        stream.count(name="for-ever")
    stream.window(sf.Tumbling(timedelta(minutes=1)), changelog=sf.Eventual()).count(name="per-minute")
    with pytest.raises(GraphError, match="eventual changelog"):
        app.topology()


# --- killed at every write ----------------------------------------------------------------------------


class MinutesWorld(OneMachine):
    """The windows on one machine, flushed now and then."""

    def __init__(self, guarantee: Guarantee) -> None:
        app, _, _ = windows_app(sf.Eventual(intensity=0.3, max_replay_records=40), guarantee=guarantee)
        topics = [TopicSpec("words", 2), TopicSpec("counts", 2)]
        super().__init__(app.topology(), guarantee, topics, partitions=2, now_ms=BASE_MS)
        self.set(poll_records_max=5, flush_interval_seconds=0.03)

    def run(self, plan: CrashPlan) -> None:
        """Until the input is processed, and all that it makes due has closed and is committed."""
        worker = self.worker(plan)
        self.run_to_the_end(worker)
        while any(task.has_pending_timers or task.is_dirty for task in worker.tasks.values()):
            worker.step()

    def results(self) -> list[tuple[bytes, bytes]]:
        return sorted((record.key, record.value) for record in self.read("counts"))


def die_and_go_on(guarantee: Guarantee, plan: CrashPlan, *, disk: str) -> MinutesWorld:
    world = MinutesWorld(guarantee)
    rows = [*history(3, 40), ("end", BASE_MS + 100 * MINUTE_MS), ("end", BASE_MS + 100 * MINUTE_MS)]
    world.feed_topic("words", [(word.encode(), at_ms) for word, at_ms in rows], partitions=2)
    try:
        world.run(plan)
    except Crash:
        if disk == "lost":
            world.disks.clear()
        world.power_cut()
        world.run(CrashPlan())
    return world


@pytest.mark.usefixtures("windows_per_turn")
@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_a_kill_at_any_write_changes_no_result(disk: str) -> None:
    unharmed = CrashPlan()
    expected = die_and_go_on("exactly-once", unharmed, disk=disk).results()
    assert unharmed.calls > 60
    for call in range(1, unharmed.calls + 1, 3):
        for after in (False, True):
            plan = CrashPlan(call, after=after)
            found = die_and_go_on("exactly-once", plan, disk=disk).results()
            assert found == expected, f"{plan.died_at}, call {call}"


@pytest.mark.usefixtures("windows_per_turn")
def test_at_least_once_a_kill_loses_nothing() -> None:
    unharmed = CrashPlan()
    expected = die_and_go_on("at-least-once", unharmed, disk="kept").results()
    for call in range(1, unharmed.calls + 1, 3):
        plan = CrashPlan(call)
        found: dict[bytes, bytes] = {}
        for window, count in die_and_go_on("at-least-once", plan, disk="kept").results():
            found[window] = max(count, found.get(window, b""))
        assert all(found[window] >= count for window, count in expected), f"{plan.died_at}, call {call}"
