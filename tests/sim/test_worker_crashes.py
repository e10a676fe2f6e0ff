"""The real worker on a memory log, killed at every single write: nothing lost, nothing twice.

Each case kills the worker at the n-th call that changes the log or a store, starts a successor on what was left, and
compares with an oracle. The n that are tried cover every write of the run, so there is no step that is not killed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from stateflow.catalog.model import Guarantee
from stateflow.changelog.format import is_reserved
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.reading import read_topic
from stateflow.record import Record
from stateflow.runtime.lag import is_drained
from stateflow.runtime.prepare import prepare
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.wiring import TaskWiring
from stateflow.runtime.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from tests.sim.counting import OUTPUT, SOURCE, STORE, number_of, topology
from tests.sim.crashing import STORE_CALLS, Crash, CrashingCluster, CrashPlan, Watched

WORDS = b"to be or not to be that is the question to be or".split() * 3
STEPS_MAX = 500


class World:
    """A cluster and the disks of one machine, on which workers live and die."""

    def __init__(self, guarantee: Guarantee) -> None:
        self.guarantee = guarantee
        self.clock = ManualClock(1_000_000)
        self.cluster = MemoryCluster(clock=self.clock)
        self.disks: dict[str, MemoryTaskStores] = {}
        self.cluster.create([TopicSpec(SOURCE, 2), TopicSpec(OUTPUT, 3)])
        self.wiring = prepare(self.cluster, topology(), guarantee, 3, self.clock)

    def feed(self, words: list[bytes]) -> None:
        writer = self.cluster.writer()
        for index, word in enumerate(words):
            writer.send(SOURCE, None, word, partition=index % 2, timestamp_ms=index)
        writer.commit()
        writer.close()

    def worker(self, plan: CrashPlan) -> Worker:
        def open_stores(wiring: TaskWiring, _cancelled: object) -> object:
            disk = self.disks.setdefault(
                wiring.id, MemoryTaskStores([s.name for s in wiring.stage.stores], self.clock)
            )
            return Watched(disk, plan, STORE_CALLS)

        settings = WorkerSettings(
            state_dir=Path("unused"),
            commit_interval_seconds=0,
            poll_records_max=7,
            poll_timeout_seconds=0,
            restore_threads=0,
            flush_interval_seconds=0,
            member="w0",
        )
        return Worker(CrashingCluster(self.cluster, plan), self.wiring, open_stores, settings, self.clock)  # type: ignore[arg-type]

    def run_to_the_end(self, worker: Worker) -> None:
        for _ in range(STEPS_MAX):
            worker.step()
            self.clock.advance(ms=10)
            if is_drained(self.cluster, self.wiring.catalog) and not worker.starting:
                return
        raise AssertionError("the worker does not come to an end")

    def power_cut(self) -> None:
        """Whatever was not flushed is gone."""
        for disk in self.disks.values():
            disk.crash()

    def read(self, topic: str) -> list[Record]:
        return [record for batch in read_topic(self.cluster, topic) for record in batch.records()]


def numbers_by_word(world: World) -> dict[bytes, list[int]]:
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for record in world.read(OUTPUT):
        numbers[record.key].append(number_of(record.value))
    return numbers


def logged_state(world: World) -> dict[bytes, int]:
    changelog = world.wiring.task(world.wiring.topology.stage("number"), 0).changelogs[STORE].topic
    records = [record for record in world.read(changelog) if not is_reserved(record.key)]
    newest = {record.key: record.value for record in records}
    return {key: number_of(value) for key, value in newest.items() if value is not None}


def local_state(world: World) -> dict[bytes, int]:
    return {
        key: number_of(value)
        for task, disk in world.disks.items()
        if task.startswith("number-")
        for key, value in disk.reader(STORE).scan()
    }


def assert_exactly_once(world: World) -> None:
    expected = Counter(WORDS)
    assert {word: len(numbers) for word, numbers in numbers_by_word(world).items()} == expected
    for word, numbers in numbers_by_word(world).items():
        assert numbers == list(range(1, expected[word] + 1)), word
    assert logged_state(world) == expected
    assert local_state(world) == expected


def assert_nothing_lost(world: World) -> None:
    expected = Counter(WORDS)
    state = logged_state(world)
    assert all(state[word] >= count for word, count in expected.items())
    assert local_state(world) == state


def live_and_die(guarantee: Guarantee, plan: CrashPlan, *, power_cut: bool) -> World:
    world = World(guarantee)
    world.feed(WORDS)
    try:
        worker = world.worker(plan)
        world.run_to_the_end(worker)
        worker.stop()
        worker.run()
    except Crash:
        if power_cut:
            world.power_cut()
        survivor = world.worker(CrashPlan())
        world.run_to_the_end(survivor)
        survivor.stop()
        survivor.run()
    return world


def calls_of_a_whole_life(guarantee: Guarantee) -> int:
    plan = CrashPlan()
    live_and_die(guarantee, plan, power_cut=False)
    return plan.calls


CASES: list[tuple[Guarantee, Callable[[World], None]]] = [
    ("exactly-once", assert_exactly_once),
    ("at-least-once", assert_nothing_lost),
]


@pytest.mark.parametrize(("guarantee", "check"), CASES, ids=[name for name, _ in CASES])
def test_without_a_crash(guarantee: Guarantee, check: Callable[[World], None]) -> None:
    world = live_and_die(guarantee, CrashPlan(), power_cut=False)
    check(world)
    assert_exactly_once(world)


@pytest.mark.parametrize("power_cut", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("guarantee", "check"), CASES, ids=[name for name, _ in CASES])
def test_killed_at_every_write(
    guarantee: Guarantee, check: Callable[[World], None], after: bool, power_cut: bool
) -> None:
    total = calls_of_a_whole_life(guarantee)
    assert total > 50, "a run must consist of many writes, or this test shows little"
    for call in range(1, total + 1):
        plan = CrashPlan(call, after=after)
        world = live_and_die(guarantee, plan, power_cut=power_cut)
        try:
            check(world)
        except AssertionError as error:
            raise AssertionError(f"killed {plan.died_at}, call {call} of {total}: {error}") from error
