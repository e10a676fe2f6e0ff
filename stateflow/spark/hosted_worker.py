"""A local worker inside a long-running Spark task: the same loop, a member of the same consumer group.

It runs until its driver leaves the group ``<app>-spark`` (``presence.py``), and then commits and closes. Its name in
the consumer group is that of its lane: a task that Spark starts again after a crash takes its predecessor's place at
once, without a rebalance. State stays open, and warm, for as long as the task runs.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from stateflow.catalog.model import Catalog
from stateflow.clock import SystemClock
from stateflow.operators.topology.topology import Topology
from stateflow.runtime.process.launch import run_worker
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import Wiring
from stateflow.spark.connection import Connection
from stateflow.spark.failure import Failure, result_or_failure
from stateflow.spark.presence import stopped_with_driver
from stateflow.spark.worker_reports import CommittedRecords, reporting

_LOG = logging.getLogger(__name__)


def member_name(app: str, lane: int) -> str:
    """What a lane's worker is called in the application's consumer group."""
    return f"{app}-spark-{lane}"


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker that stopped in order: everything it did is committed."""

    lane: int
    seconds: float


@dataclass(frozen=True, slots=True)
class HostedWorker:
    """The function that Spark runs; everything in it travels to executors."""

    connection: Connection
    load: Callable[[], Topology]
    """Builds the graph on the executor."""
    catalog: Catalog
    settings: WorkerSettings
    driver: str
    """Member id of the driver in ``<app>-spark``."""
    run: str
    """Of the driver."""
    is_reporting: bool = False
    """Whether the driver is told what was committed (``worker_reports.py``)."""

    def __call__(self, lanes: Iterable[int]) -> Iterator[Ended | Failure]:
        """One result per lane. An error that no further attempt can cure comes back as a ``Failure``."""
        for lane in lanes:
            yield result_or_failure(partial(self._run, lane), retries=True)

    def _run(self, lane: int) -> Ended:
        from stateflow.log.kafka import KafkaOptions

        begun_seconds, app, settings = time.monotonic(), self.catalog.app.app, self.settings
        clients = KafkaOptions.within(
            settings.memory, settings.restore_threads, settings.commit_interval_seconds
        )
        cluster = self.connection.open(clients)
        committed = CommittedRecords() if self.is_reporting else None
        with ExitStack() as stack:
            stack.callback(cluster.close)
            if committed is not None:
                told = reporting(cluster, app, committed, self.run, lane, SystemClock())
                stack.enter_context(told)
            run_worker(
                cluster,
                Wiring(self.load(), self.catalog),
                replace(settings, member=member_name(app, lane)),
                observer=committed,
                watched=functools.partial(stopped_with_driver, cluster, app, self.driver),
            )
        return Ended(lane, time.monotonic() - begun_seconds)
