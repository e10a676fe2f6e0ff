"""Two owners of one task: one hangs in its commit, another takes over, the first wakes up and must do no harm."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from stateflow import failpoints
from stateflow.catalog.model import Guarantee
from stateflow.errors import StateflowError
from stateflow.log.base import GroupMetadata
from stateflow.runtime.opening.opening import OpenedTask, Opener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.memory import MemoryTaskStores
from tests.sim.counting import STORE
from tests.sim.crashing import CrashPlan
from tests.sim.test_worker_crashes import World, logged_state

WORDS = b"to be or not to be".split()
LATER = b"be that is the question".split()
HANGS_AT = ("commit.before_drain", "commit.before_changes", "commit.after_changes", "commit.before_end")
WAIT_SECONDS = 20.0


class NoMembers:
    """The group's side of a task that no worker runs."""

    def metadata(self) -> GroupMetadata | None:
        return None

    def renewed(self, proof: GroupMetadata) -> GroupMetadata:
        return proof

    def commit(self, offsets: object) -> None:
        """At least once: whether the group learns of it does not matter here."""


def opened(world: World, wiring: TaskWiring, settings: WorkerSettings) -> tuple[OpenedTask, MemoryTaskStores]:
    disk = MemoryTaskStores([STORE], world.clock)
    opener = Opener(world.cluster, lambda *_: disk, settings, world.clock)
    return opener.open(wiring, lambda: False), disk


def process_all(world: World, task: OpenedTask) -> None:
    """Feed the task everything in its repartition topic from where it starts."""
    with_reader = world.cluster.reader()
    (source,) = task.starts
    with_reader.assign({source: task.starts[source]})
    while batches := with_reader.read(100, 0):
        for batch in batches:
            task.task.process(batch)
    with_reader.close()


@pytest.mark.parametrize("point", HANGS_AT)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_an_owner_that_hung_cannot_write_old_state_over_new(guarantee: Guarantee, point: str) -> None:
    world = World(guarantee)
    settings = world.worker(CrashPlan())._settings
    wiring = world.wiring.task(world.wiring.topology.stage("number"), 0)
    world.feed_second_stage(WORDS)
    zombie, _ = opened(world, wiring, settings)
    process_all(world, zombie)
    hung, awake = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def hang(reached: str) -> None:
        if reached == point and threading.current_thread().name == "zombie":
            hung.set()
            assert awake.wait(WAIT_SECONDS)

    def commit() -> None:
        try:
            zombie.task.commit(NoMembers())
        except StateflowError as error:
            raised.append(error)

    with failpoints.handled(hang):
        thread = threading.Thread(target=commit, name="zombie")
        thread.start()
        assert hung.wait(WAIT_SECONDS)
        world.feed_second_stage(LATER)
        successor, disk = opened(world, wiring, settings)
        process_all(world, successor)
        assert successor.task.commit(NoMembers())
        awake.set()
        thread.join(WAIT_SECONDS)

    assert [type(error).__name__ for error in raised] == ["ProducerFenced"]
    assert logged_state(world) == Counter(WORDS + LATER)
    assert disk.position(STORE) is not None
    restored, fresh = opened(world, wiring, settings)
    assert dict(fresh.reader(STORE).scan()) == dict(disk.reader(STORE).scan())
    restored.task.abandon()
