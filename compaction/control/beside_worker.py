"""The closed loop beside a worker: in a thread of its own, in the one worker of an application that runs its task 0.

Exactly one worker runs a task at a time (its transactional id fences all others), so the application elects its
watcher without another protocol. The loop has connections of its own and touches nothing of the worker: when its
sensors fail it looks again later, and when a worker hangs or dies the next owner of the task begins anew from what
stands on the broker. Should an owner that hung wake up beside its successor, both decide by the same rules on the
same topics, and the settings in force are read before every decision.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from stateflow.catalog.names import task_id
from stateflow.checkpoint.progress import Progress
from stateflow.compaction.control.decision_log import DecisionLog
from stateflow.compaction.control.several import SeveralWatchers
from stateflow.compaction.model.workload import RestoreRate
from stateflow.errors import StateflowError
from stateflow.operators.topology.topology import Topology

_LOG = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
LEARN_RECORDS_MIN = 20_000
"""A shorter restore tells more about the connection than about the rate."""
_STOP_SECONDS = 15.0
_RESTORE_ERROR = 0.25

Opened = AbstractContextManager[SeveralWatchers]
OpenWatchers = Callable[[RestoreRate | None], Opened]
"""Connect, measure, and give the loops of all changelogs; closes the connections afterwards. The restore rate is
the one that this worker's own restores had, where they were long enough to tell.
"""


def elected_task(topology: Topology) -> str | None:
    """The task whose owner watches: task 0 of the first stage that keeps state; None when no stage does."""
    stage = next((stage for stage in topology.stages if stage.stores), None)
    return None if stage is None else task_id(stage.name, 0)


class WatchBesideWorker:
    """Implements ``runtime.worker.observing.WorkerObserver``: runs the loop while this worker owns the elected task.

    Leaving the block ends the loop, and waits for it for as long as a look may take.
    """

    def __init__(
        self,
        elected: str | None,
        open_watchers: OpenWatchers,
        log: DecisionLog,
        *,
        interval_seconds: float = 1.0,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._elected, self._open, self._log = elected, open_watchers, log
        self._interval_seconds, self._retry_seconds = interval_seconds, retry_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._learnt: RestoreRate | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def is_watching(self) -> bool:
        """True while the loop's thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def on_restore(self, task: str, progress: Progress) -> None:  # noqa: ARG002 - any task's restore tells the rate
        """Learn how fast restores are, from the longest one so far that is over."""
        if not progress.slots_remaining and progress.records_total >= LEARN_RECORDS_MIN:
            rate = progress.records_per_second
            self._learnt = RestoreRate(rate, 0.0, "a restore of this worker", _RESTORE_ERROR)

    def on_restore_stopped(self, task: str) -> None:
        """It tells nothing of how long a whole one takes."""

    def on_running(self, task: str) -> None:
        """Begin to watch when it is the elected task."""
        if task != self._elected:
            return
        self._end()
        self._stop = threading.Event()
        arguments = (self._stop, self._learnt)
        self._thread = threading.Thread(
            target=self._watch, args=arguments, name="compaction-watch", daemon=True
        )
        self._thread.start()

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None:
        """What matters here stands in the topics."""

    def on_released(self, task: str) -> None:
        """Stop watching when it is the elected task. Does not wait: the poll thread calls this in a rebalance."""
        if task == self._elected:
            self._end()

    def _end(self) -> None:
        self._stop.set()

    def _watch(self, stop: threading.Event, learnt: RestoreRate | None) -> None:
        while not stop.is_set():
            try:
                with self._open(learnt) as watchers:
                    self._look_until(stop, watchers)
            except (StateflowError, OSError) as error:  # also of files: what is learnt of costs is in one
                _LOG.warning("Compaction is not watched for %g s: %s", self._retry_seconds, error)
                stop.wait(self._retry_seconds)

    def _look_until(self, stop: threading.Event, watchers: SeveralWatchers) -> None:
        while not stop.wait(self._interval_seconds):
            for topic, decision in watchers.look():
                self._log.add(topic, decision)
                if decision.action == "change":
                    _LOG.info("Compaction of %s changed: %s (%s)", topic, decision.reason, decision.changes)
