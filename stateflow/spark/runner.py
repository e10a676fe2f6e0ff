"""`--runner spark` in micro-batches, for backfills: an application as a Structured Streaming query.

The query's rows say how far each task may go; ``foreachBatch`` runs one Spark task per row, which is the
local worker's task for the time of a micro-batch (``epoch.run_epoch``). State, changelogs and committed
offsets are the local runner's, so an application may change its runner at any commit.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateflow.catalog.control import ControlTopic
from stateflow.clock import Clock, SystemClock
from stateflow.errors import (
    BrokerUnreachable,
    JobFailed,
    OffsetOutOfRange,
    StateflowError,
    TopicMissing,
    TopicRecreated,
)
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.runtime.opening.inline import InlineExecutor
from stateflow.runtime.process.lives import run_with_added_partitions
from stateflow.runtime.process.signals import stopped_by_signals
from stateflow.runtime.progress.lag import is_drained, source_ends
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.snapshots.savepoint_participant import abort_savepoint
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.purge import Purge
from stateflow.runtime.worker.topic_watch import TopicWatch
from stateflow.spark.connection import Connection
from stateflow.spark.driver import Driving, Pipeline, driving, travelling
from stateflow.spark.epoch import EpochResult
from stateflow.spark.executor import PipelineTask
from stateflow.spark.failure import Failure, error_in, last_line
from stateflow.spark.progress import ProgressFile
from stateflow.spark.session import SparkSettings
from stateflow.spark.transient import Restarts, cause_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from stateflow.spark.progress_listener import ProgressListener

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.3
_QUIET_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """How the query runs."""

    trigger_seconds: float = 0.5
    """Shortest time between the beginnings of two micro-batches."""
    slots_per_batch_max: int = 500_000
    """Offset slots per input partition and micro-batch."""
    checkpoint_dir: str | Path | None = None
    """Where Spark keeps the query's progress, on any file system that it knows; None for a folder of this run.
    What was processed is on Kafka.
    """
    progress_file: Path | None = None
    """Where a line of JSON is appended for each micro-batch (``progress.py``)."""
    spark: SparkSettings = field(
        default_factory=lambda: SparkSettings(app_name="stateflow-pipeline", ui=True)
    )


@dataclass(slots=True)
class PipelineTotals:
    """What a run did. Rows that found their work done by an earlier attempt count no records."""

    epochs_total: int = 0
    tasks_total: int = 0
    records_total: int = 0


def run_spark(
    pipeline: Pipeline,
    connection: Connection,
    worker: WorkerSettings,
    *,
    until_idle: bool = False,
    end_of_input: bool = False,
    settings: PipelineSettings | None = None,
    clock: Clock | None = None,
) -> PipelineTotals:
    """Run until SIGINT or SIGTERM or, with ``until_idle``, until the application has drained.

    With ``end_of_input`` the input ends where it ends now, and what waits for event time fires and closes then.

    When a source gets more partitions the query is ended, the application prepared anew, and the query goes on with the
    new tasks.

    ``worker.state_dir`` must be a local folder on every executor. Raises ``StillRunning`` while workers or
    another query of this application run, ``SetupError`` without Spark, ``JobFailed`` when a task failed in
    all attempts, and any typed error of a task.
    """
    settings, clock, worker = settings or PipelineSettings(), clock or SystemClock(), travelling(worker)
    cluster = connection.open()
    try:
        with driving(cluster, pipeline, worker, clock, settings.spark) as driver:
            app = pipeline.topology.app
            abort_savepoint(ControlTopic(cluster, app), None, "a Spark query began to run the application")
            totals, stopping = PipelineTotals(), threading.Event()
            with (
                _checkpoint(settings) as checkpoint,
                _telling(settings.progress_file, driver, cluster, clock) as listener,
                stopped_by_signals(stopping.set),
            ):

                def live(wiring: Wiring) -> None:
                    if listener is not None:
                        listener.look_at(wiring.catalog)
                    run = _Run(
                        cluster, wiring, pipeline, connection, worker, clock, totals, stopping, listener
                    )
                    ends = source_ends(cluster, wiring.catalog) if end_of_input else None
                    run.follow(
                        lambda: run.started(driver.session, settings, checkpoint, ends),
                        until_idle=until_idle,
                        check=driver.presence.check,
                    )

                run_with_added_partitions(live, driver.wiring, driver.prepared_anew, stopping)
            return totals
    finally:
        cluster.close()


def _telling(
    file: Path | None, driver: Driving, cluster: Cluster, clock: Clock
) -> AbstractContextManager[ProgressListener | None]:
    """Inside, progress is written to a file, if there is one."""
    if file is None:
        return nullcontext()
    from stateflow.spark.progress_listener import listening

    progress = ProgressFile(file, cluster, driver.wiring.catalog, clock)
    return listening(driver.session, progress, _query_name(driver.wiring))


def _query_name(wiring: Wiring) -> str:
    return f"stateflow-{wiring.topology.app}"


@contextmanager
def _checkpoint(settings: PipelineSettings) -> Iterator[str]:
    if settings.checkpoint_dir is not None:
        yield str(settings.checkpoint_dir)
        return
    with tempfile.TemporaryDirectory(prefix="stateflow-query-") as folder:
        yield folder


class _Run:
    """One run of the query, in the driver, with the tasks that there are at its start."""

    def __init__(
        self,
        cluster: Cluster,
        wiring: Wiring,
        pipeline: Pipeline,
        connection: Connection,
        worker: WorkerSettings,
        clock: Clock,
        totals: PipelineTotals | None = None,
        stopping: threading.Event | None = None,
        listener: ProgressListener | None = None,
    ) -> None:
        """``totals`` are those of earlier runs, to go on from; ``stopping`` asks for the end."""
        self.totals = totals or PipelineTotals()
        self._cluster = cluster
        self._wiring = wiring
        self._connection = connection
        self._worker = worker
        self._task = PipelineTask(uuid.uuid4().hex, connection, pipeline.checked, wiring.catalog, worker)
        self._purge = Purge(cluster, worker.purge_interval_seconds, clock, InlineExecutor())
        self._topics = TopicWatch(cluster, wiring.catalog, clock, check_counts=wiring.check_counts)
        self._stopping = stopping or threading.Event()
        self._ending = threading.Event()
        """No further micro-batch does anything."""
        self._error: StateflowError | None = None
        self._listener = listener
        self._begun_total = self._done_total = 0
        self._unseen = {task.id for task in wiring.tasks() if _has_timers(task)}
        """Tasks that may have something due and were not looked at yet."""
        self._unended: set[str] = set()

    def started(
        self,
        session: SparkSession,
        settings: PipelineSettings,
        checkpoint: str,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> StreamingQuery:
        """The query, running. ``ends`` is where input ends for good."""
        if ends is not None:
            self._unended = {task.id for task in self._wiring.tasks() if task.sources}
        from stateflow.spark.ranges import SOURCE_NAME, RangeOptions, RangeSource, TaskInputs, offset_key

        options = RangeOptions(
            connection=self._connection,
            group=self._wiring.topology.app,
            tasks=tuple(
                TaskInputs(
                    task.stage.name,
                    task.partition,
                    task.inputs,
                    announces=bool(task.rekeys),
                    has_timers=_has_timers(task),
                )
                for task in self._wiring.tasks()
            ),
            slots_per_batch_max=settings.slots_per_batch_max,
            idle_seconds=self._worker.idle_seconds,
            from_end=self._worker.start_from == "latest",
            run=self._task.run_id,
            ends=None if ends is None else {offset_key(source): end for source, end in ends.items()},
        )
        session.dataSource.register(RangeSource)
        rows = session.readStream.format(SOURCE_NAME).option("ranges", options.to_json()).load()
        return (
            rows.writeStream.foreachBatch(self._on_batch)
            .queryName(_query_name(self._wiring))
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime=f"{round(settings.trigger_seconds * 1000)} milliseconds")
            .start()
        )

    def follow(
        self, start: Callable[[], StreamingQuery], *, until_idle: bool, check: Callable[[], object]
    ) -> None:
        """Wait for the end of the query; raises what ended it. A failure that passes by itself starts it again.

        ``check`` is called now and then, and ends the run with what it raises. So do topics that were created again,
        and sources with more partitions than at its start: they are looked at every few seconds, and before the end of
        the input is believed.

        That the end was reached is seen once and for all: what comes later, a stage that fell silent and says so
        if nothing else, is for the next run.
        """
        drained, restarts = False, Restarts(self._progress)
        query = start()
        try:
            while not drained and not self._stopping.wait(_POLL_SECONDS):
                check()
                self._topics.turn()
                if query.isActive:
                    drained = until_idle and self._has_drained()
                elif not self._may_restart(query, restarts):
                    break
                else:
                    query = start()
        finally:
            self._ending.set()
            self._topics.close()
            _let_finish(query)
            failure = query.exception()
            query.stop()
        if self._error is not None:
            raise self._judged(self._error)
        if failure is not None and not self._stopping.is_set():  # else it may have met the signal, too
            raise self._judged(error_in(str(failure)) or _ended_by(failure)) from failure
        if not self._stopping.is_set() and not drained:
            raise JobFailed(  # ended from outside, without a word
                "the query ended before its input was processed, and Spark gives no reason.",
                action="start again: every task goes on from its committed offset.",
            )

    def _judged(self, error: StateflowError) -> StateflowError:
        """What ended the query, or that a topic is another one by now, where that may be the cause of it."""
        if isinstance(error, OffsetOutOfRange | TopicMissing):
            try:
                self._topics.look()
            except TopicRecreated as recreated:
                return recreated
            except StateflowError as unseen:
                _LOG.info("Cannot see whether topics were created again: %s", unseen.message)
        return error

    def _may_restart(self, query: StreamingQuery, restarts: Restarts) -> bool:
        """After a query has ended: True, and a pause later, when it failed for a cause that passes by itself."""
        failure = query.exception()
        cause = None if failure is None or self._error is not None else cause_of(failure)
        pause_seconds = None if cause is None else restarts.pause_seconds()
        if pause_seconds is None:
            return False
        _LOG.warning("The query failed and begins again in %.0f s: %s", pause_seconds, cause)
        self._done_total = self._begun_total  # the micro-batch that failed is run again
        return not self._stopping.wait(pause_seconds)

    def _progress(self) -> object:
        """What is committed so far of all input."""
        sources = [source for task in self._wiring.tasks() for source in task.inputs]
        try:
            return self._cluster.committed(self._wiring.topology.app, sources, stable=False)
        except BrokerUnreachable as error:
            _LOG.warning("Cannot see what was committed: %s", error.message)
            return None

    def _has_drained(self) -> bool:
        """All input is processed in all stages, every task with timers was looked at, and nothing happened meanwhile.

        A micro-batch ends with nothing due and all watermarks told. Raises what is wrong with the topics by then.
        """
        begun = self._begun_total
        if begun != self._done_total or self._unseen or self._unended:
            return False
        if not is_drained(self._cluster, self._wiring.catalog) or self._begun_total != begun:
            return False
        self._topics.look()
        return True

    def _on_batch(self, rows: DataFrame, epoch: int) -> None:
        """One micro-batch: Spark calls this with a row per task that has something to do."""
        if self._stopping.is_set() or self._ending.is_set():
            return
        self._begun_total += 1
        started_at = time.monotonic()
        results: list[EpochResult | Failure] = rows.rdd.mapPartitions(self._task).collect()
        self._note(results)
        if self._listener is not None:
            self._listener.note(epoch, [result for result in results if isinstance(result, EpochResult)])
        if results:
            done = sum(result.records_total for result in results if isinstance(result, EpochResult))
            seconds = time.monotonic() - started_at
            _LOG.info("Micro-batch %d: %d tasks, %d records in %.1f s.", epoch, len(results), done, seconds)
        self._done_total += 1

    def _note(self, results: Sequence[EpochResult | Failure]) -> None:
        for result in results:
            if isinstance(result, Failure):
                self._error = result.to_error()
                raise self._error
            self.totals.records_total += result.records_total
            if result.is_opened:
                self._unseen.discard(result.task)
            if result.has_ended:
                self._unended.discard(result.task)
            if result.is_rekeyed:
                self._purge.consumed(result.offsets)
        self.totals.epochs_total += bool(results)
        self.totals.tasks_total += len(results)


def _ended_by(failure: Exception) -> JobFailed:
    return JobFailed(
        f"the query ended: {last_line(str(failure))}",
        action="cure the cause and start again: every task goes on from its committed offset.",
    )


def _has_timers(task: TaskWiring) -> bool:
    return any(store.kind == "timers" for store in task.stage.stores)


def _let_finish(query: StreamingQuery) -> None:
    """Wait until no micro-batch is running, so that stopping the query interrupts nothing."""
    deadline = time.monotonic() + _QUIET_SECONDS_MAX
    while query.isActive and _is_busy(query.status) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS / 10)


def _is_busy(status: dict[str, Any]) -> bool:
    return bool(status["isTriggerActive"])
