"""Killed at every failpoint of making and restoring a savepoint: whole or not there, and no record lost or twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.checkpoint.savepoints import Savepoint, find_savepoints
from stateflow.errors import GenerationUnfinished, SavepointFailed
from stateflow.failpoints import handled
from stateflow.savepoint.target_generation import abort_restore
from tests.sim.savepoint_world import World
from tests.sim.test_savepoints import running, words

pytestmark = pytest.mark.slow


class Killed(BaseException):
    """The process is gone: nothing handles it."""


class KillAt:
    """Dies at the n-th visit of a point, and at every point after it until it is told that the process is another."""

    def __init__(self, point: str, visit: int = 1) -> None:
        self._point = point
        self._left = visit
        self.is_dead = False
        self.has_killed = False

    def __call__(self, point: str) -> None:
        if point == self._point and not self.has_killed:
            self._left -= 1
            self.is_dead = self.has_killed = self._left == 0
        if self.is_dead:
            raise Killed(point)


def lose_workers(world: World) -> None:
    """The machine of all workers is gone between two instructions, with what was not flushed."""
    for worker, _ in world.workers.values():
        for task in worker.tasks.values():
            task._writer.kill()  # type: ignore[attr-defined]  # as SIGKILL: nothing is aborted or flushed
    world.workers.clear()
    for disk in world.disks.values():
        disk.crash()
    world.cluster.end_sessions("chain")


POINTS = (
    "barrier.before_commit",
    "barrier.after_commit",
    "barrier.after_checkpoint",
    "barrier.before_part",
    "barrier.after_part",
)
COMMITS = ("commit.before_records", "commit.before_end", "commit.after_end", "commit.after_apply")


STRIKES = [(point, visit) for point in POINTS for visit in (1, 3, 5)]
STRIKES += [(point, visit) for point in COMMITS for visit in (3, 12)]


@pytest.mark.parametrize(("point", "visit"), STRIKES)
def test_workers_killed_while_they_take_their_places(quick_path: Path, point: str, visit: int) -> None:
    """It goes on with their successors or is given up; nothing is lost either way, and what is kept is exact."""
    world = running(quick_path, visit)
    killed = KillAt(point, visit)

    def turn(_seconds: float) -> None:
        try:
            world.turn()
        except Killed:
            lose_workers(world)
            killed.is_dead = False
            world.begin("w2", "w3")

    kept_or_not(world, turn, killed)


def kept_or_not(world: World, turn: Callable[[float], None], killed: KillAt) -> None:
    savepoint: Savepoint | None = None
    with handled(killed):
        try:
            savepoint = world.create(timeout_seconds=2, pause=turn)
        except SavepointFailed:
            assert find_savepoints(DirectoryObjects(world.place), "chain") == []
    if savepoint is not None:
        assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    if not world.workers:
        world.begin("w2", "w3")
    world.run()
    assert world.state() == world.expected()
    second = world.create("second")
    assert world.contents(second) == world.expected(world.vector(second))
    world.stop()


MAKING = (
    "savepoint.before_open",
    "savepoint.after_open",
    "savepoint.after_parts",
    "savepoint.after_queue",
    "savepoint.before_manifest",
    "savepoint.after_manifest",
    "savepoint.after_list",
)


@pytest.mark.parametrize("point", MAKING)
def test_whoever_makes_it_is_killed(quick_path: Path, point: str) -> None:
    world = running(quick_path, len(point))
    with handled(KillAt(point)), pytest.raises(Killed):
        world.create()
    is_whole = point in ("savepoint.after_manifest", "savepoint.after_list")
    found = find_savepoints(DirectoryObjects(world.place), "chain")
    assert found == ([("one", 1)] if is_whole else [])
    world.run()
    assert world.state() == world.expected()
    for _ in range(30):  # past the deadline, in strides that leave no transaction open for too long
        world.clock.advance(seconds=4)
        for worker, _savepoints in world.workers.values():
            worker.step()
    world.waiting = words(40, 5)
    savepoint = world.create("next")
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.run()
    world.stop()
    whole = find_savepoints(DirectoryObjects(world.place), "chain")
    assert [name for name, _ in whole] == (["one", "next"] if point == "savepoint.after_list" else ["next"])
    assert sorted(ControlTopic(world.cluster, "chain").load().savepoints) == sorted(n for n, _ in whole)


RESTORING = (
    "refill.after_generation",
    "refill.after_topics",
    "refill.before_commit",
    "refill.after_commit",
    "refill.before_active",
    "refill.after_active",
)


VISITS = [(point, 1) for point in RESTORING] + [("refill.before_commit", 4), ("refill.after_commit", 7)]


@pytest.mark.parametrize(("point", "visit"), VISITS)
@pytest.mark.parametrize("app", ["chain", "other"])
def test_a_restore_killed_anywhere_is_finished_by_starting_it_again(
    quick_path: Path, app: str, point: str, visit: int
) -> None:
    world = running(quick_path, visit)
    savepoint = world.create()
    world.run()
    world.stop()
    before = world.state()
    killed = KillAt(point, visit)
    with handled(killed):
        try:
            world.restore(savepoint, app)
        except Killed:
            killed.is_dead = False
    assert killed.has_killed
    if point != "refill.after_active":
        with pytest.raises(GenerationUnfinished, match="savepoint"):
            world.begin("w0", app=app)
        assert world.state() == before, "what was active is active and as it was"
    with handled(lambda _: None):
        world.restore(savepoint, app)
    world.begin("w0", "w1", app=app)
    world.run(app)
    world.stop()
    assert world.state(app) == world.expected()


@pytest.mark.parametrize("point", RESTORING[:-1])
@pytest.mark.parametrize("app", ["chain", "other"])
def test_a_restore_killed_anywhere_can_be_undone(quick_path: Path, app: str, point: str) -> None:
    world = running(quick_path, 2)
    savepoint = world.create()
    world.run()
    world.stop()
    topics = set(world.cluster.list_topics())
    with handled(KillAt(point)), pytest.raises(Killed):
        world.restore(savepoint, app)
    abort_restore(world.cluster, app)
    assert set(world.cluster.list_topics()) == topics
    world.feed(words(20, 3))
    world.begin("w0")
    world.run()
    world.stop()
    assert world.state() == world.expected(), "the application goes on from where it was"
    world.restore(savepoint, app)
    world.begin("w1", app=app)
    world.run(app)
    world.stop()
    assert world.state(app) == world.expected()
    assert sum(Counter.total(part) for part in world.state(app)) > 0
