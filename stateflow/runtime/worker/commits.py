"""Committing the tasks of a worker side by side.

A commit is mostly waiting: for acknowledgements, for the end of a transaction, for the disk. One after the other, those
of 256 tasks took as long as a hundred commit intervals are. So what runs the application's code is done on the poll
thread, one task after the other, and the rest on a few threads, while the poll thread waits for all of them: no two
threads are within a task, or its writer, at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from stateflow.errors import StateflowError
from stateflow.record import TopicPartition
from stateflow.runtime.opening.inline import InlineExecutor
from stateflow.runtime.opening.opening import OpenedTask
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.commit import InputGroup, PreparedCommit

K = TypeVar("K")

COMMITS_AT_ONCE = 16
"""More are limited by the broker and by Python itself."""
COMMITS_PER_TURN_MAX = 128
"""So many may hold up the group, and the processing of others, for a round."""


class RunningTask:
    """A running task and when things last happened to it, in seconds of the worker's clock."""

    def __init__(self, opened: OpenedTask, now_seconds: float) -> None:
        self.task = opened.task
        self.starts = opened.starts
        self.ended: set[TopicPartition] = set()
        """Source partitions that it was told the end of."""
        self.committed_seconds = now_seconds
        self.flushed_seconds = now_seconds


class Commits:
    """Commits tasks, and makes them durable on disk when that is due. Used by the poll thread alone."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._pool: Executor | None = None if settings.restore_threads else InlineExecutor()

    def commit(
        self, tasks: Mapping[TopicPartition, RunningTask], group: InputGroup, *, complete: bool = False
    ) -> Iterator[tuple[TopicPartition, bool | StateflowError]]:
        """Commit all of them. For each what became of it: whether there was anything to commit, or what went wrong.

        Everything else that is raised, as an application's bug, comes out of here.
        """
        prepared: dict[TopicPartition, PreparedCommit] = {}
        for primary, running in tasks.items():
            try:
                each = running.task.prepare_commit(complete=complete)
            except StateflowError as error:
                yield primary, error
                continue
            if each is None:
                yield primary, False
            else:
                prepared[primary] = each
        futures = self._together(
            {
                primary: partial(tasks[primary].task.finish_commit, each, group)
                for primary, each in prepared.items()
            }
        )
        for primary, future in futures.items():
            try:
                future.result()
            except StateflowError as error:
                yield primary, error
            else:
                yield primary, True

    def flush(self, tasks: Iterable[RunningTask], now_seconds: float) -> None:
        """Make those durable on the local disk that have not been for the flush interval."""
        due = [
            running
            for running in tasks
            if now_seconds - running.flushed_seconds >= self._settings.flush_interval_seconds
        ]
        for running, future in self._together({running: running.task.flush for running in due}).items():
            future.result()
            running.flushed_seconds = now_seconds

    def close_tasks(self, tasks: Iterable[RunningTask]) -> None:
        """Let go of tasks that are committed."""
        for future in self._together({running: running.task.close for running in tasks}).values():
            future.result()

    def _together(self, work: Mapping[K, Callable[[], None]]) -> dict[K, Future[None]]:
        """Do it all, each part on a thread of its own if there is more than one; on return all is done."""
        if len(work) > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(COMMITS_AT_ONCE, thread_name_prefix="commit")
        pool = self._pool if len(work) > 1 and self._pool is not None else InlineExecutor()
        futures = {key: pool.submit(part) for key, part in work.items()}
        wait(futures.values())  # nobody may be within any of the tasks when their outcomes are acted upon
        return futures

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
