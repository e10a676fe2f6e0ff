"""`--runner spark`: an application's workers inside long-running Spark tasks, watched by the driver.

Each *lane* is a Spark job of one task that hosts a local worker (``hosted_worker.py``) and holds a slot until it is
stopped. The workers are members of the application's consumer group, which gives each its partitions; so one that is
lost leaves its partitions to the others until its lane runs again. A lane that Spark gives up is started again here, on
whichever executor has a slot, with back-off. One that says that a source has got more partitions is started again at
once, for what is prepared anew here. To stop, the driver leaves its own group: the workers see it, commit and
end; so they do when the driver dies and they do not.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stateflow.clock import Clock, SystemClock
from stateflow.errors import BrokerUnreachable, JobFailed, PartitionsAdded, StateflowError
from stateflow.log.base import Cluster
from stateflow.runtime.process.lives import wiring_of_added_partitions
from stateflow.runtime.process.signals import stopped_by_signals
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import Wiring
from stateflow.spark.connection import Connection
from stateflow.spark.driver import Driving, Pipeline, driving, travelling
from stateflow.spark.failure import Failure, last_line
from stateflow.spark.hosted_worker import Ended, HostedWorker, member_name
from stateflow.spark.progress import ProgressFile
from stateflow.spark.session import SparkSettings
from stateflow.spark.slots import workers_for
from stateflow.spark.transient import Restarts, cause_of
from stateflow.spark.worker_reports import WorkerReports

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_SAY_SECONDS = 10.0
_LONG_LIFE_SECONDS = 60.0
"""A worker that ran so long before it was lost counts as one that works: back-off begins anew."""
_MISSING_SECONDS_MAX = 120.0
"""A worker that Spark says runs and the group has not known for so long hangs: its task is killed."""
_STOP_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRunSettings:
    """How the workers are placed."""

    workers: int | None = None
    """Long-running tasks; None for one per slot, at most one for each task of the application."""
    progress_file: Path | None = None
    """Where a line of JSON is appended every ten seconds (``progress.py``)."""
    spark: SparkSettings = field(
        default_factory=lambda: SparkSettings(app_name="stateflow-pipeline", ui=True)
    )


@dataclass(slots=True)
class LongRunTotals:
    """What a run did."""

    workers: int = 0
    restarts_total: int = 0
    """Workers that were lost and started again by the driver; Spark's own attempts before that do not count."""
    slots_total: int = 0
    """Offset slots of input committed by all stages meanwhile."""


def run_long(
    pipeline: Pipeline,
    connection: Connection,
    worker: WorkerSettings,
    *,
    settings: LongRunSettings | None = None,
    stopping: threading.Event | None = None,
    clock: Clock | None = None,
) -> LongRunTotals:
    """Run until SIGINT or SIGTERM, or until ``stopping`` is set; everything is committed on return.

    ``worker.state_dir`` must be a local folder on every executor. Raises ``StillRunning`` while workers or another
    driver of this application run, ``SetupError`` without Spark, ``ConfigError`` when there are fewer slots than
    workers were asked for, ``JobFailed`` when a worker was lost again and again, and any typed error of a worker.
    """
    settings, clock, worker = settings or LongRunSettings(), clock or SystemClock(), travelling(worker)
    stopping = stopping or threading.Event()
    if worker.standby_replicas:
        _LOG.warning("Workers on Spark keep no standby copies: the setting standby_replicas is left out.")
        worker = replace(worker, standby_replicas=0)
    cluster = connection.open()
    try:
        with driving(cluster, pipeline, worker, clock, settings.spark) as driver:
            tasks = len(list(driver.wiring.tasks()))
            workers = workers_for(driver.session, settings.workers, tasks)
            lanes = _Lanes(cluster, driver, pipeline, connection, worker, workers)
            with (
                _progress_file(settings, cluster, driver.wiring, lanes.run_id, clock) as progress,
                stopped_by_signals(stopping.set),
            ):
                lanes.run(stopping, progress)
            return lanes.totals
    finally:
        cluster.close()


class _Lanes:
    """The workers of one run, in the driver: a thread for each waits for its Spark job."""

    def __init__(
        self,
        cluster: Cluster,
        driver: Driving,
        pipeline: Pipeline,
        connection: Connection,
        worker: WorkerSettings,
        workers: int,
    ) -> None:
        self.totals = LongRunTotals(workers=workers)
        self._cluster = cluster
        self._driver = driver
        self._wiring = driver.wiring
        """What workers are started with: at first that of the start."""
        self._preparing = threading.Lock()
        self._pipeline = pipeline
        self._connection = connection
        self._worker = worker
        self._context: SparkContext = driver.session.sparkContext
        self.run_id = uuid.uuid4().hex[:8]
        self._is_reporting = False
        self._stopping = threading.Event()
        self._error: StateflowError | None = None
        self._missing_since: dict[int, float] = {}

    def run(self, stopping: threading.Event, progress: ProgressFile | None) -> None:
        """Start all, watch them until the end, stop them; raises what ended them otherwise."""
        from pyspark import InheritableThread

        before = said = _slots_done(self._cluster, self._wiring)
        self._stopping, self._is_reporting = stopping, progress is not None
        threads = {
            lane: InheritableThread(target=self._keep, args=(lane,), daemon=True)
            for lane in range(self.totals.workers)
        }
        for thread in threads.values():
            thread.start()
        said_at = time.monotonic()
        try:
            while not stopping.wait(_LOOK_SECONDS):
                self._driver.presence.check()
                self._end_hanging()
                if (seconds := time.monotonic() - said_at) >= _SAY_SECONDS:
                    said_at, done = time.monotonic(), _slots_done(self._cluster, self._wiring)
                    _LOG.info(
                        "%d offsets of input committed, %.0f/s.", done - before, (done - said) / seconds
                    )
                    said = done
                    if progress is not None:
                        progress.look_at(self._wiring.catalog)
                        progress.write()
        finally:
            self._stop(threads)
            if progress is not None:
                progress.look_at(self._wiring.catalog)
                progress.write(has_ended=True)
        if self._error is not None:
            raise self._error
        self.totals.slots_total = _slots_done(self._cluster, self._wiring) - before

    # --- one lane ---------------------------------------------------------------------------------------

    def _keep(self, lane: int) -> None:
        """Keep a worker running until the end."""
        lives = _Lives()
        restarts = Restarts(lives.long_total)
        while not self._stopping.is_set():
            lives.begin()
            wiring = self._wiring
            error, cause = self._life(lane, wiring)
            lives.end()
            if self._stopping.is_set():
                return
            if isinstance(error, PartitionsAdded):
                refused = self._prepare_anew(wiring, error)
                if refused is None:
                    continue
                error, cause = refused, refused.message if refused.is_retriable else None
            pause_seconds = None if cause is None else restarts.pause_seconds()
            if pause_seconds is None:
                self._error = self._error or error
                self._stopping.set()
                return
            self.totals.restarts_total += 1
            _LOG.warning("Worker %d is started again in %.0f s: %s", lane, pause_seconds, cause)
            self._stopping.wait(pause_seconds)

    def _prepare_anew(self, before: Wiring, error: PartitionsAdded) -> StateflowError | None:
        """Have all workers started with the partitions that were added, once for all lanes; what refuses it, if so."""
        with self._preparing:
            if self._wiring is not before:
                return None
            _LOG.warning("All workers are started anew: %s", error.message)
            try:
                found = wiring_of_added_partitions(before, self._driver.prepared_anew, error, self._stopping)
            except StateflowError as refused:
                return refused
            self._wiring = found or before
            return None

    def _life(self, lane: int, wiring: Wiring) -> tuple[StateflowError, str | None]:
        """Run a worker to its end; the error that this is if nobody asked for it, and its cause if it may pass."""
        from py4j.protocol import Py4JJavaError

        work = HostedWorker(
            self._connection,
            self._pipeline.checked,
            wiring.catalog,
            self._worker,
            self._driver.presence.member_id,
            self.run_id,
            self._is_reporting,
        )
        name = member_name(self._pipeline.topology.app, lane)
        self._context.setJobGroup(self._job_group(lane), f"worker {name}, until it is stopped")
        try:
            (result,) = self._context.parallelize([lane], 1).mapPartitions(work).collect()
        except Py4JJavaError as error:
            failure = str(error.java_exception)
            said = last_line(failure)
            cause = said if lane in self._missing_since else cause_of(failure)
            self._missing_since.pop(lane, None)
            return _lost(lane, said), cause
        if isinstance(result, Failure):
            return result.to_error(), None
        assert isinstance(result, Ended)
        # It did not see this driver any more: the driver's membership was lost for a while.
        said = f"it ended after {result.seconds:.0f} s, as it did not see the driver on Kafka"
        return _lost(lane, said), said

    def _job_group(self, lane: int) -> str:
        return f"stateflow-{self.run_id}-{lane}"

    # --- all lanes --------------------------------------------------------------------------------------

    def _end_hanging(self) -> None:
        """Kill tasks that run, as Spark says, and whose workers the group has not known for long."""
        try:
            members = self._cluster.group_members(self._pipeline.topology.app)
        except StateflowError as error:
            _LOG.info("The members of the group cannot be seen: %s", error.message)
            return
        now = time.monotonic()
        for lane in range(self.totals.workers):
            name = member_name(self._pipeline.topology.app, lane)
            if not self._is_active(lane) or any(member.startswith(f"{name}-") for member in members):
                self._missing_since.pop(lane, None)
            elif now - self._missing_since.setdefault(lane, now) > _MISSING_SECONDS_MAX:
                _LOG.warning("Worker %d hangs: the group has not heard of it. Its task is killed.", lane)
                self._context.cancelJobGroup(self._job_group(lane))

    def _is_active(self, lane: int) -> bool:
        """True while a task of the lane runs on an executor."""
        status = self._context.statusTracker()
        jobs = [status.getJobInfo(job) for job in status.getJobIdsForGroup(self._job_group(lane))]
        stages = [status.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)

    def _stop(self, threads: Mapping[int, threading.Thread]) -> None:
        """Let the workers commit and end; those that wait for a slot, and those that do not end, are cancelled."""
        self._stopping.set()
        self._driver.presence.leave()
        deadline = time.monotonic() + _STOP_SECONDS_MAX
        for lane, thread in threads.items():
            while thread.is_alive() and self._is_active(lane) and time.monotonic() < deadline:
                thread.join(_LOOK_SECONDS / 4)
            if thread.is_alive():
                if self._is_active(lane):
                    _LOG.warning(
                        "Worker %d does not stop; killing it. Its open transaction will be aborted.", lane
                    )
                self._context.cancelJobGroup(self._job_group(lane))
                thread.join()


class _Lives:
    """How long a lane's workers have lived."""

    def __init__(self) -> None:
        self._long_total = 0
        self._begun = 0.0

    def begin(self) -> None:
        """One starts."""
        self._begun = time.monotonic()

    def end(self) -> None:
        """It was lost."""
        self._long_total += time.monotonic() - self._begun >= _LONG_LIFE_SECONDS

    def long_total(self) -> int:
        """Those that lived long: lanes that work, at last, are given all their attempts anew."""
        return self._long_total


@contextmanager
def _progress_file(
    settings: LongRunSettings, cluster: Cluster, wiring: Wiring, run: str, clock: Clock
) -> Iterator[ProgressFile | None]:
    if settings.progress_file is None:
        yield None
        return
    with closing(WorkerReports(cluster, wiring.topology.app, run)) as reports:
        yield ProgressFile(settings.progress_file, cluster, wiring.catalog, clock, reports)


def _slots_done(cluster: Cluster, wiring: Wiring) -> int:
    """The sum of all committed positions; 0 while brokers do not answer."""
    sources = [source for task in wiring.tasks() for source in task.inputs]
    try:
        found = cluster.committed(wiring.topology.app, sources, stable=False)
    except BrokerUnreachable as error:
        _LOG.warning("Cannot see what was committed: %s", error.message)
        return 0
    return sum(committed.offset_next for committed in found.values())


def _lost(lane: int, why: str) -> JobFailed:
    return JobFailed(
        f"worker {lane} was lost: {why}",
        action="cure the cause and start again: every task goes on from its last commit.",
    )
