"""Savepoints of a running application: every word before the offset vector is in them exactly once."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Guarantee, RoutingEntry
from stateflow.checkpoint.locations import AllowedLocations
from stateflow.errors import AuditFailed, SavepointFailed, SavepointMissing, StillRunning
from stateflow.failpoints import handled
from stateflow.savepoint import lookup as kept
from tests.sim.savepoint_world import APP, PARTITIONS, World

pytestmark = pytest.mark.slow

WORDS = b"to be or not to be that is the question whether tis nobler in the mind to suffer".split()


def words(count: int, seed: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.choice(WORDS) for _ in range(count)]


def running(folder: Path, seed: int, guarantee: Guarantee = "exactly-once") -> World:
    """Two workers in the midst of their work, with more input to come."""
    world = World(folder, seed, guarantee)
    world.feed(words(60, seed))
    world.begin("w0", "w1")
    for _ in range(world.random.randrange(5, 60)):
        world.turn()
    world.waiting = words(120, seed + 1)
    return world


@pytest.mark.parametrize("seed", range(12))
def test_a_savepoint_of_a_running_application_is_exact(quick_path: Path, seed: int) -> None:
    world = running(quick_path, seed)
    savepoint = world.create()
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.run()
    assert world.state() == world.expected()
    world.stop()


@pytest.mark.parametrize("seed", range(6))
def test_a_savepoint_of_workers_that_have_read_more_than_they_processed(quick_path: Path, seed: int) -> None:
    """Every slice takes 20 ms, which is more than a turn of these workers may."""
    waited: list[int] = []

    def at(point: str) -> None:
        if point == "process.after_operators":
            world.clock.advance(ms=20)
        elif point == "barrier.after_commit":
            waited.extend(len(worker._intake) for worker, _ in world.workers.values())

    world = World(quick_path, seed)
    world.feed(words(200, seed))
    with handled(at):
        world.begin("w0", "w1")
        for _ in range(10 + seed):
            world.turn()
        savepoint = world.create()
        assert any(waited), "no input waited at any place"
        assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.run()
    assert world.state() == world.expected()
    world.stop()


@pytest.mark.parametrize("seed", range(6))
def test_restored_as_another_application_it_comes_to_the_same_end(quick_path: Path, seed: int) -> None:
    world = running(quick_path, seed)
    savepoint = world.create()
    world.run()
    world.stop()
    restored = world.restore(savepoint, "other")
    assert restored.generation == 0
    world.begin("w0", "w1", app="other")
    world.run("other")
    world.stop()
    assert world.state("other") == world.expected()
    assert world.state() == world.expected(), "the first application is as it was"


@pytest.mark.parametrize("seed", range(6))
def test_the_same_application_goes_back_to_the_savepoint(quick_path: Path, seed: int) -> None:
    world = running(quick_path, seed)
    savepoint = world.create()
    world.run()
    world.stop()
    restored = world.restore(savepoint)
    assert restored.generation == 1
    world.begin("w0", "w1")
    world.run()
    world.stop()
    assert world.state() == world.expected()


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "goes"])
def test_an_application_that_starts_while_its_savepoint_is_made_takes_part(
    quick_path: Path, stays: bool
) -> None:
    world = running(quick_path, 5)
    world.run()
    world.stop()
    times_all: list[int] = []

    def start(parts: int, total: int) -> None:
        if parts == total:
            times_all.append(parts)
        if parts == 2 and not world.workers and not times_all:
            world.waiting = words(50, 7)
            world.begin("w0", "w1")
            world.run()
            if not stays:
                world.stop()

    savepoint = world.create(report=start, pause=lambda _: world.turn())
    assert len(times_all) == 2, "it was not begun again"
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    assert list(ControlTopic(world.cluster, APP).load().savepoints) == ["one"]
    world.stop()


def test_keys_that_no_task_would_look_for_where_they_are_fail_the_audit(quick_path: Path) -> None:
    """As in a repartition's audit: where a key belongs is worked out as running tasks do it."""
    world = running(quick_path, 3)
    savepoint = world.create()
    world.run()
    world.stop()
    other = RoutingEntry(kind="ranges", partitions=PARTITIONS, bounds=(0, 1 << 29, 1 << 30), owners=(2, 1, 0))
    with pytest.raises(AuditFailed, match="belong to other partitions"):
        world.restore(msgspec.structs.replace(savepoint, routing=other), "other")
    assert world.restore(savepoint, "third").generation == 0, "by its own routing it is in order"


def test_a_savepoint_of_a_stopped_application_is_its_last_commits(quick_path: Path) -> None:
    world = running(quick_path, 3)
    world.waiting = []
    for worker, savepoints in world.workers.values():  # killed, not stopped: input is left between the stages
        worker.close()
        savepoints.__exit__(None, None, None)
    world.workers.clear()
    world.cluster.end_sessions("chain")
    savepoint = world.create()
    assert savepoint.records_in_flight > 0
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.restore(savepoint, "other")
    world.begin("w0", app="other")
    world.run("other")
    world.stop()
    assert world.state("other") == world.expected()


def test_two_savepoints_share_nothing_that_deleting_one_takes_from_the_other(quick_path: Path) -> None:
    world = running(quick_path, 5)
    first = world.create("first")
    world.run()
    second = world.create("second")
    assert (first.number, second.number) == (1, 2)
    world.clock.advance(seconds=1)
    for _, participant in world.workers.values():
        participant.poll()
        assert not participant._published, "nothing is kept of barriers that are over"
    allowed = AllowedLocations([str(world.place)])
    kept.delete(world.cluster, "chain", "first", world.clock, allowed, grace_ms=0)
    assert list(ControlTopic(world.cluster, "chain").load().savepoints) == ["second"]
    with pytest.raises(SavepointMissing):
        world.saved(first).load()
    assert not [path for path in world.place.rglob("*") if "first" in path.name and path.is_file()]
    assert all(not problems for problems in kept.problems_of(world.saved(second), second).values())
    assert world.contents(second) == world.expected()
    world.stop()


def test_collecting_images_spares_savepoints(quick_path: Path) -> None:
    world = running(quick_path, 6)
    savepoint = world.create()
    for task in savepoint.tasks:
        collected = world.saved(savepoint).images(0, task.task).collect(keep=1, grace_ms=-1)
        assert collected.files == ()
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.stop()


def test_a_task_that_cannot_publish_gives_the_savepoint_up_and_nothing_of_it_stays(quick_path: Path) -> None:
    world = running(quick_path, 7)
    world.place.mkdir(exist_ok=True)
    world.place /= "blocked"
    world.place.write_text("a file where a folder should be")
    with pytest.raises(SavepointFailed, match="could not publish its part"):
        world.create()
    world.run()
    assert world.state() == world.expected()
    assert all(
        task.barrier_point is None for worker, _ in world.workers.values() for task in worker.tasks.values()
    )
    world.place = quick_path / "savepoints"
    savepoint = world.create()
    assert savepoint.number == 2
    assert world.contents(savepoint) == world.expected()
    world.stop()


def test_a_savepoint_whose_maker_was_killed_is_aborted_after_its_deadline(quick_path: Path) -> None:
    world = running(quick_path, 8)

    class Killed(BaseException):
        """The process that makes the savepoint is gone."""

    def die(point: str) -> None:
        if point == "savepoint.after_parts":
            raise Killed

    with handled(die), pytest.raises(Killed):
        world.create()
    with pytest.raises(StillRunning, match="is being made"):
        world.create("two")
    tasks = [task for worker, _ in world.workers.values() for task in worker.tasks.values()]
    assert any(task.barrier_point is not None for task in tasks)
    for _ in range(30):  # in strides that leave no transaction open for too long
        world.clock.advance(seconds=4)
        for worker, _savepoints in world.workers.values():
            worker.step()
    world.run()
    barrier = ControlTopic(world.cluster, "chain").load().barrier
    assert barrier is not None
    assert barrier.state == "aborted"
    world.run()
    assert world.state() == world.expected()
    savepoint = world.create("two")
    assert world.contents(savepoint) == world.expected()
    assert not [p for p in world.place.rglob("*") if "one.1" in str(p) and p.is_file()], "leftovers"
    world.stop()


def test_records_behind_a_barrier_that_is_over_are_ordinary(quick_path: Path) -> None:
    """Barrier ids stay in the log: a later savepoint takes what carries an earlier one's for what it is."""
    world = running(quick_path, 9)
    world.create("one")
    world.waiting = words(60, 77)
    for _ in range(10):
        world.turn()
    second = world.create("two")
    assert world.contents(second) == world.expected(world.vector(second))
    world.run()
    world.stop()
    world.restore(second, "other")
    world.begin("w0", app="other")
    world.run("other")
    world.stop()
    assert world.state("other") == world.expected()


def test_a_savepoint_under_at_least_once_is_exact_as_well(quick_path: Path) -> None:
    world = running(quick_path, 4, "at-least-once")
    savepoint = world.create()
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.run()
    world.stop()
    world.restore(savepoint, "other")
    world.begin("w0", app="other")
    world.run("other")
    world.stop()
    assert world.state("other") == world.expected()
