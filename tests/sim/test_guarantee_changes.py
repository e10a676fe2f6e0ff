"""The guarantee and the commit mode are changed between two lives: nothing is lost, nothing is counted twice.

Commit records are written under both guarantees, so state never stands for input that another life counts again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Guarantee
from stateflow.errors import ProducerFenced
from stateflow.runtime.opening.inline import InlineExecutor
from stateflow.runtime.opening.opening import OpenedTask, Opener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.rotating_producer import RotatingProducer
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.prepare import prepare
from stateflow.store.memory import MemoryTaskStores
from tests.sim.counting import STORE, topology
from tests.sim.crashing import Crash, CrashPlan
from tests.sim.test_worker_crashes import (
    WORDS,
    World,
    assert_exactly_once,
    local_state,
    logged_state,
    numbers_by_word,
)

FEW = WORDS[:9]


def live(world: World, guarantee: Guarantee, words: list[bytes] | None = None) -> None:
    """One life under a guarantee, to the end of its input and a clean stop."""
    change(world, guarantee)
    if words:
        world.feed(words)
    worker = world.worker(CrashPlan())
    world.run_to_the_end(worker)
    worker.stop()
    worker.run()


def change(world: World, guarantee: Guarantee) -> None:
    world.wiring = prepare(world.cluster, topology(), guarantee, 3, world.clock)
    world.guarantee = guarantee


def clean(world: World) -> None:
    """A pass of the broker's cleaner over the changelog."""
    world.cluster.compact(changelog(world))


def changelog(world: World) -> str:
    return world.wiring.task(world.wiring.topology.stage("number"), 0).changelogs[STORE].topic


def assert_counted_once(world: World, lives: int) -> None:
    expected = Counter(WORDS * lives)
    assert logged_state(world) == expected
    assert local_state(world) == expected
    assert {word: len(numbers) for word, numbers in numbers_by_word(world).items()} == expected


@pytest.mark.parametrize("disk_lost", [False, True], ids=["disk", "no disk"])
@pytest.mark.parametrize("cleaned", [False, True], ids=["", "cleaned"])
@pytest.mark.parametrize("purged", [False, True], ids=["", "purged"])
def test_there_and_back(disk_lost: bool, cleaned: bool, purged: bool) -> None:
    world = World("exactly-once")
    if purged:
        world.set(purge_interval_seconds=0)
    live(world, "exactly-once", WORDS)
    live(world, "at-least-once", WORDS)
    if cleaned:
        clean(world)
    if disk_lost:
        world.disks.clear()
    live(world, "exactly-once")
    assert_counted_once(world, 2)
    live(world, "at-least-once", WORDS)
    assert_counted_once(world, 3)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_write_of_a_life_at_least_once(after: bool) -> None:
    """Nothing is lost whenever it is killed; what was sent to a re-key step may come again, and counts again."""
    call = 0
    while True:
        call += 1
        world = World("exactly-once")
        live(world, "exactly-once", FEW)
        change(world, "at-least-once")
        world.feed(FEW)
        plan = CrashPlan(call, after=after)
        try:
            worker = world.worker(plan)
            world.run_to_the_end(worker)
            worker.stop()
            worker.run()
        except Crash:
            live(world, "exactly-once")
            died = f"killed {plan.died_at}, call {call}"
            state, outputs = logged_state(world), numbers_by_word(world)
            for word, count in Counter(FEW * 2).items():
                assert state[word] >= count, died
                assert set(outputs[word]) == set(range(1, state[word] + 1)), died
            assert local_state(world) == state, died
            continue
        assert call > 50, "a life must consist of many writes, or this test shows little"
        return


def test_a_worker_in_another_commit_mode_fences_the_one_before() -> None:
    """A paranoid owner hangs with its second id in use; its successor runs in the standard mode."""
    world = World("exactly-once")
    wiring = world.wiring.task(world.wiring.topology.stage("number"), 0)
    paranoid = replace(world.settings, commit_mode="paranoid")
    opened(world, wiring, paranoid).task.abandon()  # it has told the catalog that there are two ids
    zombie = RotatingProducer(world.cluster, wiring.transactional_id, InlineExecutor())
    place = wiring.changelogs[STORE]
    zombie.begin()
    zombie.send(place.topic, b"k", b"1", partition=place.partition)
    zombie.commit()
    zombie.begin()
    zombie.send(place.topic, b"k", b"OLD", partition=place.partition)
    successor = opened(world, wiring, replace(paranoid, commit_mode="standard"))
    with pytest.raises(ProducerFenced):
        zombie.commit()
    successor.task.abandon()


def opened(world: World, wiring: TaskWiring, settings: WorkerSettings) -> OpenedTask:
    """A task of the application, opened by hand."""

    def open_stores(_wiring: TaskWiring, _cancelled: object) -> MemoryTaskStores:
        return MemoryTaskStores([store.name for store in wiring.stage.stores], world.clock)

    return Opener(world.cluster, open_stores, settings, world.clock).open(wiring, lambda: False)


def test_a_second_id_is_remembered_over_changes_of_the_code() -> None:
    world = World("exactly-once")
    live(world, "exactly-once", WORDS)
    world.settings = replace(world.settings, commit_mode="paranoid")
    live(world, "exactly-once")
    assert ControlTopic(world.cluster, world.wiring.topology.app).load().app.two_ids
    world.settings = replace(world.settings, commit_mode="standard")
    live(world, "exactly-once")
    assert ControlTopic(world.cluster, world.wiring.topology.app).load().app.two_ids
    assert_exactly_once(world)
