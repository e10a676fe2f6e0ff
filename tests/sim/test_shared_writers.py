"""Tasks of a worker that share a writer: one transaction, one fate, and whoever takes a task over fences the writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from stateflow import failpoints
from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import FORMAT_SHARED_WRITERS, Guarantee
from stateflow.checkpoint.tails import read_tails
from stateflow.errors import BrokerRefused, ProducerFenced, StateflowError, TransactionAborted
from stateflow.lab.faults.simulation.history import generate
from stateflow.lab.faults.simulation.simulate import run
from stateflow.lab.quiet import quiet
from stateflow.log.base import GroupMetadata
from stateflow.log.memory import MemoryWriter
from stateflow.runtime.opening.claims import ClaimsLog
from stateflow.runtime.opening.fencing import Fencing
from stateflow.runtime.opening.opening import OpenedTask, Opener
from stateflow.runtime.opening.shared_writers import SharedWriters, writers_of
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from tests.sim.asking_writer import AskingWriter
from tests.sim.counting import STORE
from tests.sim.crashing import Crash, CrashPlan
from tests.sim.test_worker_crashes import (
    WORDS,
    World,
    assert_exactly_once,
    assert_nothing_lost,
    local_state,
    logged_state,
)

FEW = b"to be or not to be".split()
TASKS = 5


class NoMembers:
    """The group's side of a task that no worker runs."""

    def metadata(self) -> GroupMetadata | None:
        return None

    def renewed(self, proof: GroupMetadata) -> GroupMetadata:
        return proof

    def commit(self, offsets: object) -> None:
        """At least once: whether the group learns of it does not matter here."""


class SharingWorld(World):
    """The numbering application; its workers share writers. It is the cluster, too, and knows every writer of it."""

    def __init__(self, guarantee: Guarantee = "exactly-once", writers: int = 1) -> None:
        super().__init__(guarantee)
        self.set(shared_writers=writers)
        self.made: dict[str, list[MemoryWriter]] = {}
        self.fenced: list[str] = []
        self.before_commit: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def writer(self, transactional_id: str | None = None) -> Any:
        made = self.cluster.writer(transactional_id)
        if transactional_id is None:
            return made
        assert isinstance(made, MemoryWriter)
        self.made.setdefault(transactional_id, []).append(made)
        return AskingWriter(made, lambda: self.before_commit()) if "-writer-" in transactional_id else made

    def fence(self, transactional_id: str) -> None:
        self.fenced.append(transactional_id)
        self.cluster.fence(transactional_id)

    def begin(self, member: str = "w0") -> Worker:
        def open_stores(wiring: Any, _cancelled: object) -> MemoryTaskStores:
            names = [store.name for store in wiring.stage.stores]
            return self.disks.setdefault(wiring.id, MemoryTaskStores(names, self.clock))

        return Worker(self, self.wiring, open_stores, replace(self.settings, member=member), self.clock)

    def until(self, workers: list[Worker], condition: Callable[[], bool]) -> None:
        for _ in range(500):
            for worker in workers:
                worker.step()
            self.clock.advance(ms=10)
            if condition():
                return
        raise AssertionError("this never came true")

    @property
    def open_ids(self) -> list[str]:
        """Transactional ids with a writer that is not closed."""
        return [name for name, made in self.made.items() if not all(writer._closed for writer in made)]

    def claims(self) -> dict[str, list[str]]:
        """Task → the writers that claim it."""
        with closing(ClaimsLog(self.cluster, self.wiring.topology.app, self.clock)) as log:
            found = log.read()
            return {
                task: [c.writer for c in found.of(task)] for task in {c.task for c in found.by_key.values()}
            }


def finish(worker: Worker) -> None:
    worker.stop()
    worker.run()


def shared(world: World) -> SharedWriters:
    made = writers_of(world.cluster, world.wiring, replace(world.settings, shared_writers=1), world.clock)
    assert made is not None
    return made


def opened(world: World, wiring: TaskWiring, writers: SharedWriters | None) -> OpenedTask:
    """A task opened by hand, with an empty disk."""

    def open_stores(_wiring: TaskWiring, _cancelled: object) -> MemoryTaskStores:
        return MemoryTaskStores([store.name for store in wiring.stage.stores], world.clock)

    opener = Opener(world.cluster, open_stores, world.settings, world.clock, None, writers)
    return opener.open(wiring, lambda: False)


def process_all(world: World, task: OpenedTask) -> None:
    """Feed the task everything in its repartition topic from where it starts."""
    with closing(world.cluster.reader()) as reader:
        (source,) = task.starts
        reader.assign({source: task.starts[source]})
        while batches := reader.read(100, 0):
            for batch in batches:
                task.task.process(batch)


@pytest.mark.parametrize("writers", [1, 2])
def test_a_worker_has_so_many_writers_however_many_tasks(writers: int) -> None:
    world = SharingWorld(writers=writers)
    world.feed(WORDS)
    worker = world.begin()
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    assert len(world.open_ids) == writers
    assert all("-writer-" in name for name in world.open_ids)
    assert sorted(world.claims()) == sorted(worker.tasks)
    world.run_to_the_end(worker)
    finish(worker)
    assert_exactly_once(world)
    assert world.claims() == {}, "nobody need be fenced"
    assert world.open_ids == []


def test_the_setting_is_off_unless_it_is_made() -> None:
    assert WorkerSettings().shared_writers == 0
    world = SharingWorld(writers=0)
    worker = world.begin()
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    assert len(world.open_ids) == TASKS
    assert not any(topic.endswith("-claims") for topic in world.cluster.list_topics())
    app = ControlTopic(world.cluster, world.wiring.topology.app).load().app
    assert (app.shared_writers, app.format < FORMAT_SHARED_WRITERS) == (False, True)
    finish(worker)


def test_tasks_are_committed_in_one_transaction() -> None:
    world = SharingWorld()
    world.set(commit_interval_seconds=1)
    commits: list[None] = []
    world.before_commit = lambda: commits.append(None)
    worker = world.begin()
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    world.feed(FEW)
    world.until([worker], lambda: sum(task.records_total for task in worker.tasks.values()) == len(FEW))
    commits.clear()
    dirty = [task for task in worker.tasks.values() if task.is_dirty]
    assert len(dirty) > 1
    world.clock.advance(ms=1_000)
    worker.step()
    assert len(commits) == 1
    assert not any(task.is_dirty for task in dirty)
    finish(worker)


@pytest.mark.parametrize("error", [TransactionAborted, ProducerFenced])
def test_a_commit_that_fails_costs_all_tasks_of_the_writer_their_epochs(error: type[StateflowError]) -> None:
    world = SharingWorld()
    refused: list[int] = []

    def refuse() -> None:
        if not refused:
            refused.append(1)
            raise error("it was aborted.", action="open it again.")

    worker = world.begin()
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    (first,) = world.open_ids
    world.feed(WORDS)
    world.before_commit = refuse
    world.fenced.clear()
    world.until([worker], lambda: bool(refused))
    world.clock.advance(ms=2_000)
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    assert {name for names in world.claims().values() for name in names}.isdisjoint({first})
    assert first in world.fenced, "whoever opens a task fences the life that was given up"
    world.run_to_the_end(worker)
    finish(worker)
    assert_exactly_once(world)


def test_endless_aborts_end_the_worker() -> None:
    world = SharingWorld()

    def refuse() -> None:
        raise TransactionAborted("the broker aborted it.", action="read the input again.")

    worker = world.begin()
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    world.before_commit = refuse
    world.feed(FEW)

    def turn() -> bool:
        world.clock.advance(seconds=5)
        return False

    with pytest.raises(BrokerRefused, match=r"20 transactions of task .* were aborted in a row"):
        world.until([worker], turn)


def test_tasks_that_go_to_another_worker_fence_nobody() -> None:
    world = SharingWorld()
    fences: list[str] = []
    with failpoints.handled(lambda point: fences.append(point) if point == "fence.each" else None):
        first = world.begin("w0")
        world.feed(WORDS[:20])
        world.until([first], lambda: len(first.tasks) == TASKS)
        second = world.begin("w1")
        both = [first, second]
        world.until(both, lambda: bool(second.tasks) and len(first.tasks) + len(second.tasks) == TASKS)
        world.feed(WORDS[20:])
        for worker in both * 40:
            worker.step()
            world.clock.advance(ms=10)
        finish(second)
        world.run_to_the_end(first)
        finish(first)
    assert fences == []
    assert_exactly_once(world)


@pytest.mark.parametrize(
    "modes", [(True, True), (True, False), (False, True)], ids=["shared", "to own", "to shared"]
)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_an_owner_that_hung_in_its_commit_is_fenced_whatever_either_writes_with(
    guarantee: Guarantee, modes: tuple[bool, bool]
) -> None:
    world = World(guarantee)
    wiring = world.wiring.task(world.wiring.topology.stage("number"), 0)
    world.feed_second_stage(FEW)
    zombie = opened(world, wiring, shared(world) if modes[0] else None)
    process_all(world, zombie)
    hung: list[OpenedTask] = []

    def hang(point: str) -> None:
        if point == "commit.before_end" and not hung:
            world.feed_second_stage([b"be"])
            hung.append(opened(world, wiring, shared(world) if modes[1] else None))
            process_all(world, hung[0])
            assert hung[0].task.commit(NoMembers())

    with failpoints.handled(hang), pytest.raises(ProducerFenced):
        zombie.task.commit(NoMembers())
    assert logged_state(world) == Counter([*FEW, b"be"])
    successor = opened(world, wiring, shared(world))
    assert dict(successor.task.stores.reader(STORE).scan()) == dict(hung[0].task.stores.reader(STORE).scan())
    successor.task.abandon()


def test_of_two_that_open_a_task_at_once_the_later_claim_wins() -> None:
    world = World("exactly-once")
    wiring = world.wiring.task(world.wiring.topology.stage("number"), 0)
    first, second = shared(world), shared(world)
    early, late = first.claim(wiring), second.claim(wiring)
    with pytest.raises(ProducerFenced, match="claimed"):
        Fencing(world.cluster, world.settings, world.clock, first.claims).predecessors(
            wiring, early.claim
        ).take_over()
    fencing = Fencing(world.cluster, world.settings, world.clock, second.claims)
    assert fencing.predecessors(wiring, late.claim).take_over() is None, "it writes by the shared one"
    with pytest.raises(ProducerFenced):
        _send_something(early.part, wiring)
    _send_something(late.part, wiring)
    assert early.writer.is_over
    assert not late.writer.is_over


def _send_something(part: Any, wiring: TaskWiring) -> None:
    place = wiring.changelogs[STORE]
    part.begin()
    part.send(place.topic, b"k", b"v", partition=place.partition)
    part.flush()


def test_a_task_that_was_claimed_and_not_opened_is_given_back() -> None:
    """Its next owner would otherwise fence the writer, and cost all other tasks their epochs."""
    world = SharingWorld()
    wiring = world.wiring.task(world.wiring.topology.stage("number"), 0)
    writers = shared(world)

    def refuse(*_: object) -> MemoryTaskStores:
        raise TransactionAborted("no", action="nothing.", passing=True)

    opener = Opener(world.cluster, refuse, world.settings, world.clock, None, writers)
    with pytest.raises(TransactionAborted):
        opener.open(wiring, lambda: False)
    assert world.claims() == {}
    opened(world, wiring, writers).abandon()
    assert world.claims() == {}
    writers.close()


def test_a_shared_writer_commits_for_no_task_that_has_no_commit_record() -> None:
    """Half of a first commit would be taken for state: nothing tells it from a log without commit records."""
    world = SharingWorld()
    worker = world.begin()
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    tasks = [task for task in world.wiring.tasks() if task.changelogs]
    assert tasks
    for task in tasks:
        assert all(tail.last is not None for tail in read_tails(world.cluster, task.changelogs).values())
    finish(worker)


def test_a_first_commit_that_was_torn_is_no_state() -> None:
    """A history that the simulation found: one stage had committed by the writer, the other had not."""
    with quiet():
        assert not run(replace(generate(7005, "torn"), writers=(0, 1, 2))).findings


CHECKS: dict[Guarantee, Callable[[World], None]] = {
    "exactly-once": assert_exactly_once,
    "at-least-once": assert_nothing_lost,
}


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_killed_at_every_third_write(guarantee: Guarantee) -> None:
    """The successor has a writer per task, or shares them, in turn."""
    for call in range(1, 1_000, 3):
        world = World(guarantee)
        world.set(shared_writers=1)
        world.feed(WORDS)
        plan = CrashPlan(call, after=call % 2 == 0)
        try:
            worker = world.worker(plan)
            world.run_to_the_end(worker)
            finish(worker)
        except Crash:
            world.set(shared_writers=call % 4)
            survivor = world.worker(CrashPlan())
            world.run_to_the_end(survivor)
            finish(survivor)
            try:
                CHECKS[guarantee](world)
            except AssertionError as error:
                raise AssertionError(f"killed {plan.died_at}, call {call}: {error}") from error
            continue
        assert call > 50, "a life must consist of many writes, or this test shows little"
        assert local_state(world) == logged_state(world)
        return
