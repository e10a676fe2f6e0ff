"""What must not end a worker: records that cannot be purged yet, partitions that it has lost."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from stateflow.errors import BrokerRefused, BrokerUnreachable, DiskFull, StateflowError
from stateflow.log.forwarding import ForwardingWriter
from stateflow.record import TopicPartition
from stateflow.runtime.task.task import Task
from stateflow.runtime.worker.observing import WorkerObserver
from stateflow.runtime.worker.purge import RETRY_SECONDS_MAX, RETRY_SECONDS_MIN
from stateflow.runtime.worker.worker import Worker
from tests.sim.counting import OUTPUT, STORE
from tests.sim.crashing import CrashPlan
from tests.sim.test_worker_crashes import WORDS, World, assert_exactly_once

UNREACHABLE = BrokerUnreachable("No answer", action="look at the broker.", bootstrap="b:1")
REFUSED = BrokerRefused("POLICY_VIOLATION", action="look at the topic.")


class Trims:
    """Stands where the cluster drops records; fails as long as ``fails`` is set."""

    def __init__(self, world: World, fails: StateflowError | None) -> None:
        self.fails = fails
        self.tried_seconds: list[float] = []
        self._world = world
        self._real = world.cluster.trim
        world.cluster.trim = self  # type: ignore[method-assign]

    def __call__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.tried_seconds.append(self._world.clock.monotonic_seconds())
        if self.fails is not None:
            raise self.fails
        self._real(offsets)


def waiting_slots(world: World) -> int:
    """Offset slots of the repartition topic that are still there."""
    partitions = [TopicPartition("numbered-by-word-repartition", p) for p in range(3)]
    return sum(log.slots for log in world.cluster.ranges(partitions).values())


@pytest.mark.parametrize("failure", [UNREACHABLE, REFUSED], ids=["unreachable", "refused"])
def test_records_that_cannot_be_purged_are_purged_later(
    failure: StateflowError, caplog: pytest.LogCaptureFixture
) -> None:
    world = World("exactly-once")
    world.set(purge_interval_seconds=0)
    trims = Trims(world, failure)
    world.feed(WORDS)
    worker = world.worker(CrashPlan())
    world.run_to_the_end(worker)
    assert waiting_slots(world) > 0
    (warned,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert failure.message in warned.message
    assert "numbered-by-word-repartition" in warned.message

    trims.fails = None
    world.clock.advance(ms=int(RETRY_SECONDS_MIN * 1000))
    world.feed(WORDS[:1])
    world.run_to_the_end(worker)
    world.clock.advance(ms=1)
    worker.stop()
    worker.run()
    assert waiting_slots(world) <= 3, (
        "what was not purged then is now; the last commits wait for the next time"
    )


def test_a_purge_that_keeps_failing_is_tried_less_and_less_often() -> None:
    world = World("exactly-once")
    world.set(purge_interval_seconds=0)
    trims = Trims(world, UNREACHABLE)
    worker = world.worker(CrashPlan())
    for _ in range(60):
        world.feed(WORDS[:2])
        world.run_to_the_end(worker)
        world.clock.advance(ms=60_000)
    tried = trims.tried_seconds
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses[0] < RETRY_SECONDS_MAX / 4
    assert RETRY_SECONDS_MAX <= pauses[-1] < RETRY_SECONDS_MAX + 120, (
        "it looks at each commit, a minute apart"
    )


def worked_half_way(observer: WorkerObserver | None = None) -> tuple[World, Worker]:
    """A worker whose tasks have open transactions."""
    world = World("exactly-once")
    world.feed(WORDS)
    world.set(commit_interval_seconds=1000)
    worker = world.worker(CrashPlan(), observer)
    for _ in range(6):
        worker.step()
        world.clock.advance(ms=10)
    assert any(task.context.has_sent for task in worker.tasks.values())
    return world, worker


def test_partitions_that_were_lost_with_an_open_transaction_are_let_go() -> None:
    world, worker = worked_half_way()
    lost = [task.wiring.inputs[0] for task in worker.tasks.values()]
    for task in worker.tasks.values():  # their new owners fence them
        world.cluster.writer(task.wiring.transactional_id).close()
    worker.on_lost(lost)
    assert worker.tasks == {}

    worker.close()
    world.set(commit_interval_seconds=0)
    successor = world.worker(CrashPlan())
    world.run_to_the_end(successor)
    successor.stop()
    successor.run()
    assert_exactly_once(world)


class Failing(ForwardingWriter):
    """A writer whose transaction cannot be aborted, and that cannot be closed in peace."""

    def abort(self) -> None:
        raise UNREACHABLE

    def close(self) -> None:
        super().close()
        raise UNREACHABLE


def abandoned(worker: Worker, **parts: Any) -> Task:
    """A task whose writer fails, after it was asked to let go."""
    task = next(task for task in worker.tasks.values() if OUTPUT in task.wiring.stage.outputs)
    task._writer = Failing(task._writer)
    for name, part in parts.items():
        setattr(task._stores, name, part)
    task.abandon()
    return task


def test_a_broker_that_is_gone_does_not_keep_a_task_from_being_abandoned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, worker = worked_half_way()
    task = abandoned(worker)
    assert UNREACHABLE.message in caplog.text
    assert task.wiring.id in caplog.text
    world.cluster.writer(task.wiring.transactional_id).close()
    stores = world.disks[task.wiring.id]
    assert stores.reader(STORE).get(b"to") is None, "nothing of the open epoch was kept"


def full() -> None:
    raise DiskFull("full", action="free space.", path="d")


def test_a_disk_that_is_full_is_still_told() -> None:
    _, worker = worked_half_way()
    with pytest.raises(DiskFull):
        abandoned(worker, close=full)


class Released:
    """An observer that notes which tasks were let go of."""

    def __init__(self) -> None:
        self.tasks: list[str] = []

    def on_restore(self, task: str, progress: object) -> None:
        """Not asked about here."""

    def on_restore_stopped(self, task: str) -> None:
        """Not asked about here."""

    def on_running(self, task: str) -> None:
        """Not asked about here."""

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None:
        """Not asked about here."""

    def on_released(self, task: str) -> None:
        self.tasks.append(task)


@pytest.mark.parametrize("is_committed", [False, True], ids=["abandoned", "committed"])
def test_who_watches_is_told_of_all_tasks_where_letting_go_of_one_fails(is_committed: bool) -> None:
    observer = Released()
    _, worker = worked_half_way(observer)
    held = list(worker.tasks.values())
    lost = [task.wiring.inputs[0] for task in held]
    held[0]._stores.close = full  # type: ignore[method-assign]
    let_go = worker.on_revoked if is_committed else worker.on_lost
    with pytest.raises(DiskFull):
        let_go(lost)
    assert sorted(observer.tasks) == sorted(task.wiring.id for task in held)
    assert worker.tasks == {}
