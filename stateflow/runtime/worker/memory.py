"""What the running tasks of a worker hold together: changed state and read caches, each within its share."""

from __future__ import annotations

import logging
from collections.abc import Container

from stateflow.config import WorkerOptions
from stateflow.memory import SHARING_TASK_BYTES, TASK_BYTES
from stateflow.record import TopicPartition
from stateflow.runtime.task.task import Task
from stateflow.runtime.worker.descriptors import (
    SHARING_TASK_DESCRIPTORS,
    TASK_DESCRIPTORS,
    DescriptorLimit,
)

_LOG = logging.getLogger(__name__)
_SHARE = " With shared_writers=1 they take half of that, and start sooner: docs/operating.md, “Many tasks”."


class TaskMemory:
    """Says which task has to commit early, and divides the read caches. Used by the poll thread alone.

    Another thread is within the tasks that are ``busy``: their caches are limited when they are noted next.
    """

    def __init__(self, settings: WorkerOptions, busy: Container[TopicPartition] = ()) -> None:
        self._busy = busy
        self._shares = settings.memory
        self._task_dirty_bytes_max = settings.task_dirty_bytes_max
        self._cache_bytes = settings.read_cache_bytes
        self._tasks: dict[TopicPartition, Task] = {}
        self._held: dict[TopicPartition, int] = {}
        self._held_bytes = 0
        self._undivided: set[TopicPartition] = set()
        """Their caches have not been limited since the last division: they were busy then."""
        self._has_warned = False
        self._shares_writers = bool(settings.shared_writers)
        self._task_bytes = SHARING_TASK_BYTES if self._shares_writers else TASK_BYTES
        self._tasks_max = self._shares.tasks_max * TASK_BYTES // self._task_bytes
        self._descriptors = DescriptorLimit(
            SHARING_TASK_DESCRIPTORS if self._shares_writers else TASK_DESCRIPTORS
        )

    @property
    def held_bytes(self) -> int:
        """Changed state of all tasks, as of when each was last looked at."""
        return self._held_bytes

    @property
    def is_over(self) -> bool:
        """True when all tasks together hold more than their share, what is being committed included."""
        return self._held_bytes > self._shares.dirty_bytes

    def begin(self, primary: TopicPartition, task: Task) -> None:
        """A task runs from now on; ``divide`` follows, which makes all caches smaller."""
        self._tasks[primary] = task
        self._descriptors.note(len(self._tasks))
        if len(self._tasks) > self._tasks_max and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "More than %d tasks run in this process. Each takes about %d KiB by itself, idle, which memory_bytes"
                " (%d MiB) does not provide for: raise it, or run more workers.%s",
                self._tasks_max,
                self._task_bytes >> 10,
                self._shares.limit_bytes >> 20,
                "" if self._shares_writers else _SHARE,
            )

    def end(self, primary: TopicPartition) -> None:
        """A task runs no more; what it leaves is for the others."""
        self._held_bytes -= self._held.pop(primary, 0)
        if self._tasks.pop(primary, None) is not None:
            self.divide()

    def note(self, primary: TopicPartition) -> None:
        """Look at what a task that is not busy holds now."""
        if primary in self._undivided:
            self._limit(primary)
        held_bytes = self._tasks[primary].context.held_bytes
        self._held_bytes += held_bytes - self._held.get(primary, 0)
        self._held[primary] = held_bytes

    def is_full(self, primary: TopicPartition) -> bool:
        """True when a task should commit early: it holds too much, or all do and none holds more."""
        self.note(primary)
        if self._tasks[primary].is_full(self._task_dirty_bytes_max):
            return True
        if not self.is_over:
            return False
        return self._held[primary] == max(self._held.values())

    def divide(self) -> None:
        """Give each of the tasks that run now its share of the read caches."""
        if self._cache_bytes is None:
            self._undivided = {primary for primary in self._tasks if primary in self._busy}
            for primary in self._tasks.keys() - self._undivided:
                self._limit(primary)

    def _limit(self, primary: TopicPartition) -> None:
        self._undivided.discard(primary)
        self._tasks[primary].context.limit_cache(self._shares.read_cache_bytes_each(len(self._tasks)))
