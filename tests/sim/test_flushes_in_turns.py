"""Tasks that were opened together are flushed a few at a time, and not behind the commits of others."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from stateflow.runtime.task.task import Task
from stateflow.runtime.worker import commits
from stateflow.runtime.worker.worker import Worker
from tests.sim.test_commits_together import TIMEOUT_SECONDS, Threaded, finish
from tests.sim.test_worker_crashes import WORDS

TASKS = 5
ROUND_MS = 1_000
INTERVAL_MS = 10_000


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each task was flushed."""
    counts: Counter[str] = Counter()

    def counted(task: Task) -> None:
        flush(task)
        counts[task.wiring.id] += 1

    flush = Task.flush
    monkeypatch.setattr(Task, "flush", counted)
    return counts


def opened(world: Threaded) -> Worker:
    worker = world.begin()
    world.until(worker, lambda: len(worker.tasks) == TASKS)
    return worker


def test_a_few_at_a_time_and_each_in_its_turn(monkeypatch: pytest.MonkeyPatch, flushed: Counter[str]) -> None:
    monkeypatch.setattr(commits, "FLUSHES_AT_A_TIME", 2)
    world = Threaded(lambda: None)
    worker = opened(world)
    world.clock.advance(ms=INTERVAL_MS)
    totals = []
    for _ in range(4):
        worker.step()
        totals.append(flushed.total())
        world.clock.advance(ms=ROUND_MS)
    assert totals == [2, 4, 5, 5]
    assert set(flushed.values()) == {1}, "none is flushed twice before all were"
    worker.stop()
    worker.run()


def test_flushes_do_not_wait_for_commits(monkeypatch: pytest.MonkeyPatch, flushed: Counter[str]) -> None:
    monkeypatch.setattr(commits, "COMMITS_AT_ONCE", 1)
    may_commit = threading.Event()

    def before_commit() -> None:
        assert may_commit.wait(TIMEOUT_SECONDS)

    world = Threaded(before_commit)
    worker = opened(world)
    world.feed(WORDS)
    tasks = worker.tasks
    world.until(worker, lambda: sum(task.records_total for task in tasks.values()) == len(WORDS))
    world.clock.advance(ms=INTERVAL_MS)
    worker.step()  # begins commits, whose only thread waits
    flushed.clear()
    world.clock.advance(ms=INTERVAL_MS)
    worker.step()
    assert flushed, "tasks that commit nothing are flushed meanwhile"
    may_commit.set()
    finish(world, worker)
