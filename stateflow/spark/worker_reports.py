"""What workers that Spark hosts have committed, told to their driver on the members' topic while they run.

Spark's accumulators of Python tasks reach the driver only when a task has ended, and these tasks do not end.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from stateflow.catalog.names import control_topic
from stateflow.checkpoint.progress import Progress
from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.log.base import Cluster
from stateflow.runtime.standby.membership_log import MembershipLog
from stateflow.runtime.worker.member_records import (
    ProgressReport,
    TaskProgress,
    create_membership_topic,
    encode_progress,
    membership_partition,
)

_LOG = logging.getLogger(__name__)

TELL_SECONDS = 5.0
"""What a killed worker has committed since it last told is missing in the driver's totals, and in nothing else."""
_READS_MAX = 50


class CommittedRecords:
    """A ``WorkerObserver`` that counts what each task has committed here. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, TaskProgress] = {}
        self._since_opened: dict[str, tuple[int, int]] = {}

    def on_restore(self, task: str, progress: Progress) -> None:
        """Nothing is committed by it."""

    def on_restore_stopped(self, task: str) -> None:
        """Nor by one that does not come to its end."""

    def on_running(self, task: str) -> None:
        """It counts from zero, each time that it is opened."""
        with self._lock:
            self._since_opened[task] = 0, 0

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None:
        """Add what is new since its last commit."""
        with self._lock:
            records, sent = self._since_opened.get(task, (0, 0))
            self._since_opened[task] = records_total, sent_total
            before = self._totals.get(task, TaskProgress())
            self._totals[task] = TaskProgress(
                records_total=before.records_total + records_total - records,
                sent_total=before.sent_total + sent_total - sent,
                commits_total=before.commits_total + 1,
            )

    def on_released(self, task: str) -> None:
        """What it has committed stays counted."""
        with self._lock:
            self._since_opened.pop(task, None)

    def totals(self) -> tuple[dict[str, TaskProgress], tuple[str, ...]]:
        """By task what it has committed, and the tasks that are here at present."""
        with self._lock:
            return dict(self._totals), tuple(sorted(self._since_opened))


@contextmanager
def reporting(
    cluster: Cluster, app: str, committed: CommittedRecords, run: str, lane: int, clock: Clock
) -> Iterator[None]:
    """Inside, the driver is told that this worker is there, then what is new, and at the end all of it."""
    ended, life = threading.Event(), uuid.uuid4().hex[:8]

    def report() -> None:
        log = MembershipLog(cluster, app)
        told, is_last = None, False
        try:
            while True:
                tasks, running = totals = committed.totals()
                if totals != told:
                    now_ms = clock.now_ms()
                    said = ProgressReport(
                        run=run, lane=lane, life=life, tasks=tasks, running=running, written_ms=now_ms
                    )
                    told = totals if _is_told(log, said) else told
                if is_last:
                    return
                is_last = ended.wait(TELL_SECONDS)
        finally:
            log.close()

    thread = threading.Thread(target=report, name="progress-report", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _is_told(log: MembershipLog, report: ProgressReport) -> bool:
    try:
        log.write(*encode_progress(report))
    except StateflowError as error:
        _LOG.info("The driver cannot be told of the progress: %s", error.message)
        return False
    return True


class WorkerReports:
    """What the workers of one run have told, in their driver. Used by one thread."""

    def __init__(self, cluster: Cluster, app: str, run: str) -> None:
        """Creates the members' topic, if there is none yet."""
        self.run = run
        self._cluster = cluster
        self._place = membership_partition(app)
        control = control_topic(app)
        create_membership_topic(cluster, app, cluster.describe([control])[control].replication)
        self._log = MembershipLog(cluster, app)

    def read(self) -> list[ProgressReport]:
        """The newest report of each worker that this run has started, those that were lost included.

        Raises ``BrokerUnreachable``.
        """
        end = self._cluster.ranges([self._place])[self._place].offset_next
        self._log.read_to(end, _READS_MAX)
        reports = self._log.membership.progress.values()
        return [report for report in reports if report.run == self.run]

    def close(self) -> None:
        """Release the connection."""
        self._log.close()
