"""How a worker lets go of running tasks, after a commit or without one. Used by the poll thread alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from stateflow.errors import StateflowError
from stateflow.failpoints import reach
from stateflow.runtime.event_time.idleness import IdleSources
from stateflow.runtime.opening.shared_writers import SharedWriters
from stateflow.runtime.opening.starting import StartingTasks
from stateflow.runtime.worker.commits import Commits, RunningTask
from stateflow.runtime.worker.intake import Intake
from stateflow.runtime.worker.memory import TaskMemory
from stateflow.runtime.worker.observing import WorkerObserver

_LOG = logging.getLogger(__name__)


class TaskRelease:
    """Reading stops, writers and stores are closed, claims are removed; on return others may have the tasks."""

    def __init__(
        self,
        commits: Commits,
        starting: StartingTasks,
        writers: SharedWriters | None,
        memory: TaskMemory,
        idle_sources: IdleSources,
        observer: WorkerObserver | None,
    ) -> None:
        self._commits = commits
        self._starting = starting
        self._writers = writers
        self._memory = memory
        self._idle_sources = idle_sources
        self._observer = observer

    def of_committed(self, tasks: Sequence[RunningTask], intake: Intake) -> None:
        """Close tasks that have nothing left to commit."""
        self._stop_reading(tasks, intake)
        with self._telling(tasks):
            self._commits.close_tasks(tasks)
            self._remove_claims(tasks)
            for _ in tasks:
                reach("handover.after_close")

    def without_commit(self, tasks: Sequence[RunningTask], intake: Intake) -> None:
        """Abandon what tasks have done since their last commits."""
        self._stop_reading(tasks, intake)
        with self._telling(tasks):
            self._commits.abandon_tasks(tasks)
            self._remove_claims(tasks)

    def _stop_reading(self, tasks: Iterable[RunningTask], intake: Intake) -> None:
        for running in tasks:
            self._memory.end(running.primary)
            self._idle_sources.end(running.task.wiring.inputs)
            intake.stop(running.task.wiring.inputs)

    def _remove_claims(self, tasks: Iterable[RunningTask]) -> None:
        """The next owners need not fence the writers that these tasks shared with others of this worker."""
        if self._writers is not None and not self._starting.is_unreachable:
            self._writers.release(running.claimed for running in tasks if running.claimed is not None)

    @contextmanager
    def _telling(self, tasks: Sequence[RunningTask]) -> Iterator[None]:
        """Tell the observer of all tasks afterwards; where letting go of one has failed, too: they are all closed."""
        try:
            yield
        except StateflowError:
            self._tell(tasks)
            raise
        self._tell(tasks)

    def _tell(self, tasks: Iterable[RunningTask]) -> None:
        for running in tasks:
            task = running.task.wiring.id
            _LOG.info("Task %s was released.", task)
            if self._observer is not None:
                self._observer.on_released(task)
