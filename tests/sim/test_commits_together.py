"""The commits of many tasks wait for the broker at the same time, not one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stateflow.errors import TransactionAborted
from stateflow.runtime.worker.worker import Worker
from tests.sim.asking_world import AskingWorld
from tests.sim.test_worker_crashes import WORDS, assert_exactly_once
from tests.waiting import wait_until

TIMEOUT_SECONDS = 30.0
FIRST_STAGE_TASKS = 2


class Threaded(AskingWorld):
    """The numbering application, whose worker has threads of its own, as in production."""

    def __init__(self, before_commit: Callable[[], None]) -> None:
        super().__init__(before_commit)
        self.set(restore_threads=2, commit_interval_seconds=1, flush_interval_seconds=10)

    def until(self, worker: Worker, condition: Callable[[], bool], turn_ms: int = 0) -> None:
        """Turn the loop; what it waits for is done by threads, however many turns that takes."""

        def turn() -> None:
            worker.step()
            self.clock.advance(ms=turn_ms)

        wait_until(condition, "the worker's threads", turn, seconds=TIMEOUT_SECONDS, every_seconds=0.001)

    def run_to_the_end(self, worker: Worker) -> None:
        """As long as its threads need: a busy machine may not let them run for any number of turns."""
        self.until(worker, lambda: self.is_at_the_end(worker), turn_ms=10)


def finish(world: Threaded, worker: Worker) -> None:
    world.run_to_the_end(worker)
    worker.stop()
    worker.run()
    assert_exactly_once(world)


def test_tasks_wait_for_their_commits_together() -> None:
    meeting = threading.Barrier(FIRST_STAGE_TASKS)
    committing: list[str] = []

    def before_commit() -> None:
        committing.append(threading.current_thread().name)
        if len(committing) <= FIRST_STAGE_TASKS:
            meeting.wait(TIMEOUT_SECONDS)  # one after the other, the first would wait in vain

    world = Threaded(before_commit)
    worker = world.begin()
    world.until(worker, lambda: len(worker.tasks) == 5)
    world.feed(WORDS)
    tasks = worker.tasks
    world.until(worker, lambda: sum(task.records_total for task in tasks.values()) == len(WORDS))
    world.clock.advance(ms=1_000)
    worker.step()
    assert len(committing) >= FIRST_STAGE_TASKS
    assert all(name.startswith("commit") for name in committing[:FIRST_STAGE_TASKS])
    world.clock.advance(ms=1_000)
    finish(world, worker)


def test_a_commit_that_fails_costs_the_others_nothing() -> None:
    refused: list[int] = []
    lock = threading.Lock()

    def before_commit() -> None:
        with lock:
            if refused:
                return
            refused.append(1)
        raise TransactionAborted("it was aborted.", action="open it again.")

    world = Threaded(before_commit)
    worker = world.begin()
    world.until(worker, lambda: len(worker.tasks) == 5)
    world.feed(WORDS)
    tasks = worker.tasks
    world.until(worker, lambda: sum(task.records_total for task in tasks.values()) == len(WORDS))
    world.clock.advance(ms=1_000)
    worker.step()
    assert refused
    assert len(worker.tasks) == 4, "one is opened again, the others run on"
    world.until(worker, lambda: len(worker.tasks) == 5)
    world.clock.advance(ms=1_000)
    finish(world, worker)
