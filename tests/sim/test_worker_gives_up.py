"""A task whose transactions are aborted again and again ends its worker instead of turning for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import BrokerRefused, TransactionAborted
from stateflow.log.base import TopicSpec
from stateflow.log.forwarding import ForwardingWriter
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from tests.sim.counting import OUTPUT, SOURCE, topology

STEPS_MAX = 200


class Aborting(ForwardingWriter):
    """A writer whose commits the broker turns down while ``times`` lasts."""

    def __init__(self, real: Any, times: list[int]) -> None:
        super().__init__(real)
        self._times = times

    def commit(self, *arguments: Any, **options: Any) -> Any:
        if self._times[0] > 0:
            self._times[0] -= 1
            super().abort()
            raise TransactionAborted("the broker aborted it.", action="read the input again.")
        return super().commit(*arguments, **options)


class AbortingCluster(MemoryCluster):
    def __init__(self, times: list[int], **options: Any) -> None:
        super().__init__(**options)
        self._times = times

    def writer(self, transactional_id: str | None = None) -> Any:
        real = super().writer(transactional_id)
        return Aborting(real, self._times) if transactional_id and "-0-number-" in transactional_id else real


def worked(aborts: int) -> tuple[Worker, list[int]]:
    """A worker driven over three records while that many commits of the second stage are aborted."""
    clock, times = ManualClock(1_000_000), [0]
    cluster = AbortingCluster(times, clock=clock)
    cluster.create([TopicSpec(SOURCE, 1), TopicSpec(OUTPUT, 1)])
    wiring = prepare(cluster, topology(), "exactly-once", 1, clock)
    settings = WorkerSettings(
        state_dir=Path("unused"),
        commit_interval_seconds=0,
        poll_timeout_seconds=0,
        restore_threads=0,
        member="w0",
    )
    writer = cluster.writer()
    for word in (b"a", b"b", b"a"):
        writer.send(SOURCE, None, word, partition=0)
    writer.commit()
    worker = Worker(
        cluster,
        wiring,
        lambda task, *_: MemoryTaskStores([store.name for store in task.stage.stores], clock),
        settings,
        clock,
    )
    while "number-0" not in worker.tasks:
        worker.step()
    times[0] = aborts
    for _ in range(STEPS_MAX):
        worker.step()
        clock.advance(seconds=5)
    return worker, times


def test_a_few_aborts_are_borne() -> None:
    worker, left = worked(aborts=5)
    assert left == [0]
    assert worker.tasks["number-0"].commits_total > 0
    worker.stop()
    worker.run()


def test_endless_aborts_end_the_worker() -> None:
    with pytest.raises(BrokerRefused, match="20 transactions of task number-0 were aborted in a row"):
        worked(aborts=1_000_000)
