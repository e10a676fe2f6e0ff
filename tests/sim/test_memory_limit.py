"""The state that all tasks of a worker have changed is bounded together, and so are their read caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.memory import ENTRY_BYTES, memory_shares
from stateflow.record import TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.intake import Intake
from stateflow.runtime.worker.worker import Worker
from stateflow.store.dirty import DirtyStore
from tests.sim.counting import STORE
from tests.sim.crashing import CrashPlan
from tests.sim.test_worker_crashes import World, numbers_by_word

WORDS = [b"word-%04d" % number for number in range(1_200)]
LIMIT_BYTES = 16 * 100 * ENTRY_BYTES
"""Room for about 200 changed keys."""
POLLED = 40


def begun(**settings: Any) -> tuple[World, Worker]:
    """Both stages run, and nothing is committed by the clock. At least once, so that what is sent can be read."""
    world = World("at-least-once")
    world.set(commit_interval_seconds=100_000, poll_records_max=POLLED, **settings)
    return world, world.worker(CrashPlan())


def counting(worker: Worker) -> list[DirtyStore]:
    """The stores of the tasks that run."""
    return [
        task.context.stores[STORE]
        for name, task in sorted(worker.tasks.items())
        if name.startswith("number-")
    ]


def test_the_sum_of_changed_state_is_bounded() -> None:
    world, worker = begun(memory_bytes=LIMIT_BYTES)
    share_bytes = memory_shares(LIMIT_BYTES).dirty_bytes
    world.feed(WORDS)
    held_bytes = []
    for _ in range(300):
        worker.step()
        held_bytes.append(sum(store.held_bytes for store in counting(worker)))
    assert len(numbers_by_word(world)) == len(WORDS), "all is processed"
    a_turn_bytes = 2 * POLLED * (ENTRY_BYTES + 20)
    assert max(held_bytes) <= share_bytes + a_turn_bytes
    commits = sum(task.commits_total for name, task in worker.tasks.items() if name.startswith("number-"))
    assert 3 <= commits <= len(WORDS) * (ENTRY_BYTES + 20) // (share_bytes // 4), "the largest ones, not all"
    worker.stop()
    worker.run()


def test_without_a_limit_in_reach_nothing_commits_early() -> None:
    world, worker = begun()
    world.feed(WORDS)
    for _ in range(300):
        worker.step()
    assert sum(store.held_bytes for store in counting(worker)) > len(WORDS) * ENTRY_BYTES
    worker.stop()
    worker.run()


@pytest.mark.parametrize("own_bytes", [None, 5_000])
def test_read_caches_share_what_there_is(own_bytes: int | None) -> None:
    _, worker = begun(memory_bytes=LIMIT_BYTES, read_cache_bytes=own_bytes)
    for _ in range(20):
        worker.step()
    tasks = len(worker.tasks)
    assert tasks == 5, "two of the source, three behind the re-key step"
    share_bytes = memory_shares(LIMIT_BYTES).read_caches_bytes
    each_bytes = {store._cache._bytes_max for store in counting(worker)}
    assert each_bytes == {share_bytes // tasks if own_bytes is None else own_bytes}
    worker.on_revoked([lead for lead in worker._tasks if lead.topic == "words"])
    each_bytes = {store._cache._bytes_max for store in counting(worker)}
    assert each_bytes == {share_bytes // 3 if own_bytes is None else own_bytes}
    worker.close()


class Assigned:
    """Reads every partition that the group assigns, from its beginning, as soon as ``intake`` is there."""

    def __init__(self) -> None:
        self.intake: Intake | None = None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.intake is not None
        self.intake.start(dict.fromkeys(partitions, 0))

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing is kept."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing is kept."""


def test_large_records_that_wait_are_bounded_in_bytes() -> None:
    cluster, listener = MemoryCluster(ManualClock(1_000)), Assigned()
    cluster.create([TopicSpec("large", 1)])
    group = cluster.group_consumer("g", ["large"], listener)
    intake = listener.intake = Intake(group, WorkerSettings(memory_bytes=160_000))
    writer = cluster.writer()
    for _ in range(4):
        intake.poll(0)
    waiting = []
    for _ in range(30):
        for _ in range(5):
            writer.send("large", b"k", b"v" * 999, partition=0)
        writer.commit()
        intake.poll(0)
        waiting.append(len(intake))
    assert waiting[:3] == [5, 10, 11], "ten records of 1,000 bytes fill half of the input's share"
    assert waiting[-1] <= 10 + 30, "then the group is served, with a record at a time"
    offsets = []
    while intake.first is not None:
        offsets += intake.take(1_000.0).offsets
        intake.poll(0)
    assert offsets == list(range(150)), "all come, in order"
    group.close()


def test_more_tasks_than_the_limit_provides_for_are_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, worker = begun(memory_bytes=LIMIT_BYTES)
    for _ in range(20):
        worker.step()
    (warned,) = [record for record in caplog.records if "memory_bytes" in record.message]
    assert "More than 1 tasks" in warned.message
    worker.close()
