"""What an executor's Python process keeps between micro-batches: the connection, the graph, RocksDB's
cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from stateflow.catalog.model import Catalog
from stateflow.clock import SystemClock
from stateflow.operators.topology.topology import Topology
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import Wiring
from stateflow.spark.connection import Connection
from stateflow.spark.epoch import EpochRange, EpochResult, run_epoch
from stateflow.spark.failure import Failure, result_or_failure
from stateflow.spark.kept_connection import spare_what_stays
from stateflow.store.rocks import RocksResources


@dataclass(frozen=True, slots=True)
class PipelineTask:
    """The function that Spark runs over the rows of a micro-batch; everything in it travels to executors."""

    run_id: str
    """Of this run of the query: a process that served another run begins anew."""
    connection: Connection
    load: Callable[[], Topology]
    """Builds the graph on the executor; a module-level function, so that no user object has to travel."""
    catalog: Catalog
    settings: WorkerSettings

    def __call__(self, rows: Iterable[Any]) -> Iterator[EpochResult | Failure]:
        """One result per row. An error that no further attempt can cure comes back as a ``Failure``."""
        for row in rows:
            yield result_or_failure(partial(self._run, row), retries=True)

    def _run(self, row: Any) -> EpochResult:
        process = _process_for(self)
        wiring = process.wiring.task(process.wiring.topology.stage(row.stage), row.task_partition)
        todo = EpochRange.of_row(*row)
        opener = rocks_opener(process.cluster, self.settings, process.resources)
        return run_epoch(process.cluster, wiring, todo, opener, self.settings, SystemClock())


class _Process:
    """Made once per Python process and run."""

    def __init__(self, task: PipelineTask) -> None:
        self.run_id = task.run_id
        self.cluster = task.connection.open()
        self.wiring = Wiring(task.load(), task.catalog)
        self.resources = RocksResources.within(task.settings.memory)
        spare_what_stays()


_kept: list[_Process] = []


def _process_for(task: PipelineTask) -> _Process:
    if _kept and _kept[0].run_id == task.run_id:
        return _kept[0]
    while _kept:
        _kept.pop().cluster.close()
    _kept.append(_Process(task))
    return _kept[0]
