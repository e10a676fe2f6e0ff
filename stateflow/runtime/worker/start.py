"""How a worker begins to run tasks that are opened. Used by the poll thread alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.failpoints import reach
from stateflow.record import TopicPartition
from stateflow.runtime.event_time.idleness import IdleSources
from stateflow.runtime.opening.opening import OpenedTask
from stateflow.runtime.task.shared_writer import SharedWriter
from stateflow.runtime.task.takeover import write_repairs
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.commits import RunningTask
from stateflow.runtime.worker.intake import Intake
from stateflow.runtime.worker.memory import TaskMemory
from stateflow.runtime.worker.observing import WorkerObserver
from stateflow.runtime.worker.visits import Visits

_LOG = logging.getLogger(__name__)

Failed = dict[TopicPartition, tuple[TaskWiring, StateflowError]]
"""Tasks that were let go of, and why."""


class TaskStart:
    """What torn commits left is repaired, where that is a shared writer's to do; then inputs are read."""

    def __init__(
        self,
        tasks: dict[TopicPartition, RunningTask],
        visits: Visits,
        memory: TaskMemory,
        idle_sources: IdleSources,
        observer: WorkerObserver | None,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._visits = visits
        self._memory = memory
        self._idle_sources = idle_sources
        self._observer = observer
        self._clock = clock
        self._ready: dict[TopicPartition, OpenedTask] = {}
        """Opened, and not running yet: empty between two turns, unless one has failed."""

    def take(self, primary: TopicPartition, opened: OpenedTask) -> None:
        """A task is opened, and belongs here until it runs."""
        self._ready[primary] = opened

    def run(self, intake: Intake, commit: Callable[[Sequence[TopicPartition]], None]) -> Failed:
        """Run the tasks that were taken; of those that could not repair what they had to, why: they are let go of."""
        if not self._ready:
            return {}
        failed = self._repair(commit)
        for primary, opened in list(self._ready.items()):
            self._tasks[primary] = RunningTask(opened, self._clock.monotonic_seconds())
            del self._ready[primary]
            self._begin(primary, opened, intake)
        self._memory.divide()
        return failed

    def close(self) -> None:
        """Abandon what was taken and does not run."""
        while self._ready:
            self._ready.popitem()[1].task.abandon()

    def _repair(self, commit: Callable[[Sequence[TopicPartition]], None]) -> Failed:
        """Those that share a writer do it in one transaction, before which the others commit what they have sent."""
        failed: Failed = {}
        for writer, to_repair in _by_writer(self._ready).items():
            parts = {each.claimed.part for each in to_repair.values() if each.claimed is not None}
            repairs = [each.repair for each in to_repair.values() if each.repair is not None]
            try:
                if writer.has_sent:
                    commit([next(p for p, each in self._tasks.items() if _writer_of(each) is writer)])
                write_repairs(repairs, partial(writer.commit, parts))
            except StateflowError as error:
                failed.update({primary: (to_repair[primary].task.wiring, error) for primary in to_repair})
        for primary in failed:  # their claims stay: whoever opens one next fences the writer
            self._ready.pop(primary).task.abandon()
        return failed

    def _begin(self, primary: TopicPartition, opened: OpenedTask, intake: Intake) -> None:
        task = opened.task
        self._memory.begin(primary, task)
        reach("handover.before_start")
        intake.start(
            opened.starts,
            task.context.records_at_once,
            task.context.mark_ms,
            calls_application=task.calls_application,
        )
        self._idle_sources.begin(task.wiring.sources)
        self._visits.wake([primary])
        _LOG.info("Task %s is running from %s.", task.wiring.id, opened.starts_text)
        if self._observer is not None:
            self._observer.on_running(task.wiring.id)


def _writer_of(running: RunningTask) -> SharedWriter | None:
    return None if running.claimed is None else running.claimed.writer


def _by_writer(
    ready: Mapping[TopicPartition, OpenedTask],
) -> dict[SharedWriter, dict[TopicPartition, OpenedTask]]:
    """Those that have something to repair."""
    found: dict[SharedWriter, dict[TopicPartition, OpenedTask]] = {}
    for primary, opened in ready.items():
        if opened.repair is not None and opened.claimed is not None:
            found.setdefault(opened.claimed.writer, {})[primary] = opened
    return found
