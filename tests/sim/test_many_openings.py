"""What it takes to open one task of many, and to keep it while nothing comes: little, and no client of its own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from stateflow.catalog.names import control_topic
from stateflow.checkpoint.tails import read_tails
from stateflow.errors import BrokerUnreachable
from stateflow.record import TopicPartition
from stateflow.runtime.opening.opening import Opener
from stateflow.runtime.opening.shared_writers import writers_of
from stateflow.runtime.opening.starting import StartingTasks
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from tests.sim.test_shared_writers import TASKS, SharingWorld, finish
from tests.sim.test_worker_crashes import WORDS, assert_exactly_once

QUESTIONS = ("describe", "ranges", "ends", "committed", "topic_config")
QUESTIONS_MAX = 24
READERS_MAX = 2
"""Of the catalog, and of claims; one more where the changelog has anything."""
THREADS = 8
FOREVER_SECONDS = 3600.0
JOIN_SECONDS = 20.0


class CountingCluster:
    """Counts what is asked of a cluster, and the clients that are made."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.asked: Counter[str] = Counter()
        self.writers: Counter[str | None] = Counter()

    def __getattr__(self, name: str) -> Any:
        if name in (*QUESTIONS, "reader", "fence"):
            self.asked[name] += 1
        return getattr(self._real, name)

    def writer(self, transactional_id: str | None = None) -> Any:
        self.writers[transactional_id] += 1
        return self._real.writer(transactional_id)


def stores_of(wiring: TaskWiring, _cancelled: object) -> MemoryTaskStores:
    return MemoryTaskStores([store.name for store in wiring.stage.stores])


def test_an_opening_makes_no_producer_and_asks_little() -> None:
    world = SharingWorld()
    counting: Any = CountingCluster(world.cluster)
    writers = writers_of(counting, world.wiring, replace(world.settings, shared_writers=1), world.clock)
    assert writers is not None
    opener = Opener(counting, stores_of, world.settings, world.clock, None, writers)
    first, *others = [task for task in world.wiring.tasks() if task.changelogs]
    opened = [opener.open(first, lambda: False)]
    for wiring in others:
        counting.asked.clear()
        counting.writers.clear()
        opened.append(opener.open(wiring, lambda: False))
        assert sum(counting.writers.values()) == 0, counting.writers
        assert counting.asked["reader"] <= READERS_MAX, counting.asked
        assert counting.asked["fence"] == 1, "its own id"
        assert sum(counting.asked[name] for name in QUESTIONS) <= QUESTIONS_MAX, counting.asked
    for each in opened:
        each.abandon()
    writers.close()


def test_threads_that_open_tasks_at_once_fence_nobody_of_their_own() -> None:
    """They fenced each other's writer of the catalog once, when they announced that writers are shared."""
    world = SharingWorld()
    counting: Any = CountingCluster(world.cluster)
    settings = replace(world.settings, shared_writers=1, restore_threads=2)
    writers = writers_of(counting, world.wiring, settings, world.clock)
    assert writers is not None
    opener = Opener(counting, stores_of, settings, world.clock, None, writers)
    with ThreadPoolExecutor(THREADS) as pool:
        opened = list(pool.map(lambda wiring: opener.open(wiring, lambda: False), world.wiring.tasks()))
    control = control_topic(world.wiring.topology.app)
    stateless = [wiring for wiring in world.wiring.tasks() if not wiring.changelogs]
    assert counting.writers.pop(control) <= 1 + len(stateless), (
        "once that they are shared, and first positions"
    )
    assert len({each.claimed.writer for each in opened if each.claimed is not None}) == 1
    assert [name for name, made in counting.writers.items() if name and made > 1] == []
    for each in opened:
        each.abandon()
    writers.close()


class ByHand(Executor):
    """Runs nothing: a test says what comes of each job."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


def test_who_waits_for_openings_goes_on_with_the_first_whatever_its_place() -> None:
    world, pool = SharingWorld(), ByHand()
    opener = Opener(world.cluster, stores_of, world.settings, world.clock)
    starting = StartingTasks(opener, world.settings, world.clock, pool)
    starting.wait_a_while(FOREVER_SECONDS)  # there is none
    for number, wiring in enumerate(world.wiring.tasks()):
        starting.submit(TopicPartition("in", number), wiring)
    waiting = threading.Thread(target=starting.wait_a_while, args=(FOREVER_SECONDS,), daemon=True)
    waiting.start()
    pool.futures[1].set_exception(BrokerUnreachable("no answer.", action="wait."))
    waiting.join(JOIN_SECONDS)
    assert not waiting.is_alive()
    assert not pool.futures[0].done()


def test_all_that_start_together_write_their_first_commit_records_in_one_transaction() -> None:
    world = SharingWorld()
    commits: list[None] = []
    world.before_commit = lambda: commits.append(None)
    worker = world.begin()
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    with_state = [task for task in world.wiring.tasks() if task.changelogs]
    assert len(with_state) > 1
    for task in with_state:
        assert all(tail.last is not None for tail in read_tails(world.cluster, task.changelogs).values())
    assert len(commits) <= 2, "of all that were opened in a turn together"
    finish(worker)


def settle(world: SharingWorld, worker: Worker) -> None:
    for _ in range(1_000):
        worker.step()
        world.clock.advance(ms=10)
        if worker.is_quiet and not worker._visits.awake:
            return
    raise AssertionError(f"these never rest: {list(worker._visits.awake)}")


def test_a_turn_visits_no_task_that_has_nothing_to_do() -> None:
    world = SharingWorld()
    world.set(idle_seconds=0.1)
    worker = world.begin()
    world.until([worker], lambda: len(worker.tasks) == TASKS)
    world.feed(WORDS[1:])
    settle(world, worker)
    before = {name: task.commits_total for name, task in worker.tasks.items()}
    world.feed(WORDS[:1])
    worker.step()
    awake = {running.task.wiring.id for running in worker._visits.awake.values()}
    assert len(awake) < TASKS, "only who has got something"
    settle(world, worker)
    committed = {name for name, task in worker.tasks.items() if task.commits_total > before[name]}
    assert committed, "and what it has got is committed"
    world.run_to_the_end(worker)
    finish(worker)
    assert_exactly_once(world)
