"""While commits are in flight a worker goes on with other tasks, and waits before what needs them to be over."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from stateflow.errors import BrokerUnreachable, StateflowError, TransactionAborted
from stateflow.lab.faults.simulation.parked import ParkedExecutor
from stateflow.runtime.background import OWN_THREADS, Executors
from stateflow.runtime.worker.figures import WorkerNews
from stateflow.runtime.worker.worker import Worker
from tests.sim.asking_world import AskingWorld
from tests.sim.test_worker_crashes import WORDS, assert_exactly_once

TASKS = 5
INTERVAL_MS = 1_000
NOTHING = 1
ENOUGH = 1_000
OUT_OF_THE_GROUP_MS = 301_000


class Held(AskingWorld):
    """The numbering application; what its commits wait for goes on only when a test says so, or the worker waits."""

    def __init__(
        self,
        before_commit: Callable[[], None] = lambda: None,
        openings: ParkedExecutor | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(before_commit)
        usual = {"commit_interval_seconds": 1, "commit_interval_min_seconds": 1, "poll_timeout_seconds": 0}
        self.set(**{**usual, **settings})
        self.commits = ParkedExecutor()
        self.under_test = self.begin(Executors(openings))

    def begin(self, executors: Executors = OWN_THREADS, news: WorkerNews | None = None) -> Worker:
        return super().begin(executors._replace(commits=self.commits), news)

    def turn(self, turns: int = 20) -> None:
        for _ in range(turns):
            self.under_test.step()

    def processed(self, stage: str) -> int:
        return sum(
            task.records_total for name, task in self.under_test.tasks.items() if name.startswith(f"{stage}-")
        )

    def begin_commits(self) -> None:
        """Process words, and let the first stage's commits begin."""
        self.turn()
        assert len(self.under_test.tasks) == TASKS
        self.feed(WORDS)
        self.turn()
        assert self.processed("rekey") == len(WORDS)
        self.clock.advance(ms=INTERVAL_MS)
        self.under_test.step()

    def end(self) -> None:
        """Until all is done, however long commits take."""
        for _ in range(20):
            self.commits.drive(NOTHING)
            self.turn(5)
            self.clock.advance(ms=INTERVAL_MS)
        self.under_test.stop()
        self.under_test.run()


ABORTED = TransactionAborted("it was aborted.", action="open it again.")
NO_ANSWER = BrokerUnreachable("no broker answered.", action="wait.")


def fails_once(failure: StateflowError = ABORTED) -> Callable[[], None]:
    """Fails the first transaction that is to be committed."""
    failures = [failure]

    def before_commit() -> None:
        if failures:
            raise failures.pop()

    return before_commit


def test_other_tasks_go_on_and_the_one_that_commits_waits() -> None:
    world = Held()
    world.turn()
    world.clock.advance(ms=INTERVAL_MS)
    world.under_test.step()
    world.commits.drive(NOTHING)  # the first stage has announced its event time
    world.feed_second_stage(WORDS)
    world.turn()
    world.clock.advance(ms=INTERVAL_MS)
    world.under_test.step()
    world.feed_second_stage(WORDS)
    world.feed(WORDS)
    world.turn(40)
    assert world.processed("rekey") == len(WORDS)
    assert world.processed("number") == len(WORDS), "nothing goes into the epoch that is being committed"
    assert not world.under_test.is_quiet
    assert any(task.is_dirty for task in world.under_test.tasks.values())
    world.commits.drive(NOTHING)
    world.turn()
    assert world.processed("number") == 2 * len(WORDS)
    world.end()


def test_what_fails_in_flight_costs_its_own_task_an_epoch_and_no_other() -> None:
    world = Held(fails_once())
    world.begin_commits()
    running = dict(world.under_test.tasks)
    world.turn()
    assert world.under_test.tasks == running, "nobody knows yet"
    world.commits.drive(NOTHING)
    world.turn()
    assert len(world.under_test.tasks) == TASKS
    assert sum(world.under_test.tasks[name] is not task for name, task in running.items()) == 1, (
        "it was opened again"
    )
    world.end()
    assert_exactly_once(world)


def test_a_task_whose_commit_fails_begins_anew_and_waits_for_no_other() -> None:
    world = Held(fails_once())
    world.begin_commits()
    first, second = world.commits._open
    running = dict(world.under_test.tasks)
    assert first.exception() is not None
    world.turn()
    assert len(world.under_test.tasks) == TASKS
    assert sum(world.under_test.tasks[name] is not task for name, task in running.items()) == 1
    assert not second.done(), "only a test lets it go on"
    world.end()
    assert_exactly_once(world)


def test_an_outage_fails_the_commits_that_it_met_and_none_that_begin_later() -> None:
    world = Held(fails_once(NO_ANSWER))
    world.begin_commits()
    first, second = world.commits._open
    assert isinstance(first.exception(), BrokerUnreachable)
    world.turn()
    world.clock.advance(ms=INTERVAL_MS)
    world.turn()  # what was processed again is committed, while the second one still waits for its thread
    later = world.commits._open[2:]
    assert later
    assert [commit.exception() for commit in later] == [None] * len(later), "the brokers are back"
    assert isinstance(second.exception(), BrokerUnreachable), (
        "it does not wait for what the first one waited for"
    )
    world.end()
    assert_exactly_once(world)


def test_a_rebalance_amid_a_commit_costs_no_epoch() -> None:
    world = Held(member=None)
    world.begin_commits()
    assert len(world.under_test._commits) == 2
    running = dict(world.under_test.tasks)
    second = world.begin()  # the group is of another generation from here on
    for _ in range(40):
        world.under_test.step()
        second.step()
    kept = world.under_test.tasks
    assert 0 < len(kept) < TASKS
    assert {name: running[name] for name in kept} == kept, "none has begun anew"
    assert sum(running[name].commits_total for name in running) == 2
    for worker in (world.under_test, second):
        worker.stop()
        worker.run()
    assert_exactly_once(world)


def test_a_member_that_was_put_out_amid_a_commit_proves_nothing() -> None:
    world = Held(member=None)
    world.begin_commits()
    world.clock.advance(ms=OUT_OF_THE_GROUP_MS)
    second = world.begin()
    second.step()
    app, inputs = world.wiring.topology.app, set(world.under_test._commits.sources)
    before = world.cluster.committed(app, inputs)
    world.commits.drive(ENOUGH)
    after = world.cluster.committed(app, inputs)
    assert after == before, "its client has joined again by then, and nobody has told the worker"
    for _ in range(40):
        world.under_test.step()
        second.step()
        world.commits.drive(ENOUGH)
        world.clock.advance(ms=INTERVAL_MS)
    for worker in (world.under_test, second):
        worker.stop()
        worker.run()
    assert_exactly_once(world)


def test_a_rebalance_meets_commits_in_flight() -> None:
    world = Held(member=None)
    world.begin_commits()
    second = world.begin()
    for _ in range(40):
        world.under_test.step()
        second.step()
    assert world.under_test.tasks
    assert second.tasks
    for _ in range(10):
        world.clock.advance(ms=INTERVAL_MS)
        world.commits.drive(NOTHING)
        world.under_test.step()
        second.step()
    for worker in (world.under_test, second):
        worker.stop()
        worker.run()
    assert_exactly_once(world)


@pytest.mark.parametrize("is_written", [False, True], ids=["under way", "written"])
def test_a_worker_that_closes_leaves_a_commit_in_flight_to_the_next_owner(*, is_written: bool) -> None:
    world = Held()
    world.begin_commits()
    if is_written:
        world.commits.drive(NOTHING)
    world.under_test.close()
    world.under_test = world.begin()
    world.end()
    assert_exactly_once(world)


def test_a_worker_whose_memory_is_full_waits_for_commits() -> None:
    world = Held(memory_bytes=4096)
    world.turn()
    world.feed_second_stage(WORDS * 20)
    world.turn(150)
    assert world.processed("number") == 20 * len(WORDS)
    assert max(task.commits_total for task in world.under_test.tasks.values()) > 2, (
        "no test has let them go on"
    )
    world.end()


def test_a_worker_whose_memory_is_full_waits_for_the_oldest_commit_alone() -> None:
    world = Held(memory_bytes=1 << 16)
    for _ in range(3):  # the first stage announces its event time, and the second commits what it was told
        world.turn()
        world.clock.advance(ms=INTERVAL_MS)
        world.under_test.step()
        world.commits.drive(ENOUGH)
    world.turn()

    def begin_commit(partition: int, keys: int) -> Future[Any]:
        world.feed_second_stage([b"%02d" % key for key in range(keys)], partition)
        world.turn()
        world.clock.advance(ms=INTERVAL_MS)
        world.under_test.step()
        return world.commits._open[-1]

    large = begin_commit(partition=0, keys=20)
    small = begin_commit(partition=1, keys=5)
    assert len(world.under_test._commits) == 2
    assert not world.under_test._memory.is_over
    third = world.under_test.tasks["number-2"]
    words = [b"%02d" % key for key in range(15)]
    world.feed_second_stage(words, partition=2)
    world.turn()
    assert large.done(), "the memory was full until it was written"
    world.feed_second_stage(words, partition=2)
    world.turn()
    assert third.records_total == 2 * len(words)
    assert not small.done(), "only a test lets it go on"
    world.end()


def test_an_input_that_falls_idle_amid_a_commit_holds_up_nobody() -> None:
    world = Held(idle_seconds=1.5)
    world.begin_commits()
    busy = set(world.under_test._commits.sources)
    world.clock.advance(ms=INTERVAL_MS)
    world.turn()
    assert set(world.under_test._commits.sources) == busy, (
        "nothing has waited for what only a test lets go on"
    )
    world.commits.drive(NOTHING)
    world.turn()
    assert not world.under_test._commits.sources
    world.end()
    assert_exactly_once(world)


def test_a_task_that_starts_amid_a_commit_waits_for_nobody() -> None:
    openings = ParkedExecutor()
    world = Held(openings=openings)
    world.turn()
    for opening in openings._open[:2]:
        opening.result()
    world.turn()
    assert len(world.under_test.tasks) == 2, "the others are being opened"
    world.feed_second_stage(WORDS)
    world.turn()
    world.clock.advance(ms=INTERVAL_MS)
    world.under_test.step()
    busy = set(world.under_test._commits.sources)
    assert busy
    while len(world.under_test.tasks) < TASKS:
        openings.drive(NOTHING)
        world.under_test.step()
    assert set(world.under_test._commits.sources) >= busy
    world.end()
    assert_exactly_once(world)
