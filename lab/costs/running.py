"""One worker in this process, measured from its first running task to the end of its input."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from stateflow.changelog.format import is_reserved
from stateflow.clock import SystemClock
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.record import TopicPartition
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.worker import Worker
from stateflow.store.resources import RocksResources

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Took:
    """Wall time, and CPU of this process (the Kafka client included, the broker not), in seconds."""

    seconds: float
    cpu_seconds: float


class Stopwatch:
    """CPU of this process and wall time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def took(self) -> Took:
        """Up to now."""
        return Took(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def logged_state(cluster: Cluster, changelogs: Iterable[TopicPartition]) -> tuple[int, int]:
    """State records in changelog partitions, and the bytes of their keys and values."""
    records = size_bytes = 0
    for changelog in changelogs:
        for batch in read_range(cluster, changelog, cluster.ranges([changelog])[changelog]):
            for key, value in zip(batch.keys, batch.values, strict=True):
                if key is not None and not is_reserved(key):
                    records += 1
                    size_bytes += len(key) + len(value or b"")
    return records, size_bytes


@contextmanager
def drained_worker(
    cluster: Cluster, wiring: Wiring, settings: WorkerSettings
) -> Iterator[tuple[Worker, Took]]:
    """A worker that has processed and committed its input, and what that took; it dies with the block.

    Starting, joining the group and restoring are not counted: the watch starts with the first running task.
    """
    worker = Worker(
        cluster, wiring, rocks_opener(cluster, settings, RocksResources()), settings, SystemClock()
    )
    with closing(worker):
        while not worker.tasks:
            worker.step()
        watch = Stopwatch()
        while worker.starting or not is_drained(cluster, wiring.catalog):
            until = time.monotonic() + _LOOK_SECONDS
            while time.monotonic() < until:
                worker.step()
        yield worker, watch.took()
