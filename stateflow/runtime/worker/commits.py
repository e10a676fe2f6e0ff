"""Committing the tasks of a worker side by side.

A commit is mostly waiting: for acknowledgements, for the end of a transaction, for the disk. One after the other, those
of 256 tasks took as long as a hundred commit intervals are. So what runs the application's code, and what asks the
group's consumer, is done on the poll thread, one task after the other, and the rest on a few threads, while the poll
thread waits for all of them: no two threads are within a task, or its writer, at any time. The consumer is left to the
poll thread: from another one it was seen never to answer while the poll thread stood in a callback of a rebalance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.base import GroupMetadata
from stateflow.record import TopicPartition
from stateflow.runtime.opening.inline import Outcome, done_at_once
from stateflow.runtime.opening.opening import OpenedTask
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.commit import InputGroup, PreparedCommit, write_epochs
from stateflow.runtime.task.shared_writer import SharedWriter

_LOG = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

COMMITS_AT_ONCE = 16
"""More are limited by the broker and by Python itself."""
COMMITS_PER_TURN_MAX = 128
"""So many may hold up the group, and the processing of others, for a round."""


class RunningTask:
    """A running task and when things last happened to it, in seconds of the worker's clock."""

    def __init__(self, opened: OpenedTask, now_seconds: float) -> None:
        self.task = opened.task
        self.primary = opened.task.wiring.inputs[0]
        self.starts = opened.starts
        self.claimed = opened.claimed
        """What it has of a shared writer; None with one of its own."""
        self.ended: set[TopicPartition] = set()
        """Source partitions that it was told the end of."""
        self.committed_seconds = now_seconds
        self.flushed_seconds = now_seconds


class _BrokersAway:
    """What one commit has waited for in vain, those that begin later do not wait for again."""

    def __init__(self) -> None:
        self._error: BrokerUnreachable | None = None

    def guard(self, part: Callable[[], T]) -> T:
        """Do it, unless brokers have not answered another."""
        if self._error is not None:
            raise BrokerUnreachable(self._error.message, action=self._error.action)
        try:
            return part()
        except BrokerUnreachable as error:
            self._error = error
            raise


class Commits:
    """Commits tasks, and makes them durable on disk when that is due. Used by the poll thread alone."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._has_threads = settings.restore_threads > 0
        self._pool: Executor | None = None

    def commit(
        self,
        tasks: Mapping[TopicPartition, RunningTask],
        group: InputGroup,
        *,
        complete: Collection[TopicPartition] = (),
    ) -> Iterator[tuple[TopicPartition, bool | StateflowError]]:
        """Commit all of them. For each what became of it: whether there was anything to commit, or what went wrong.

        Of tasks that share a writer all that have sent anything must be among them (``sharing``). Those
        ``complete`` bring eventual changelogs up to date. Everything else that is raised, as an application's bug,
        comes out of here.
        """
        prepared: dict[TopicPartition, PreparedCommit] = {}
        for primary, running in tasks.items():
            try:
                each = running.task.prepare_commit(complete=primary in complete)
            except StateflowError as error:
                if running.claimed is not None:
                    running.claimed.part.give_up(error)
                yield primary, error
                continue
            if each is None:
                yield primary, False
            else:
                prepared[primary] = each
        if not prepared:
            return
        member, away = group.metadata(), _BrokersAway()
        writing: dict[TopicPartition, Callable[[], None]] = {}
        for writer, primaries in _by_writer(prepared, tasks).items():
            if writer is None:
                for primary in primaries:
                    write = partial(tasks[primary].task.write_commit, prepared[primary], member)
                    writing[primary] = partial(away.guard, write)
            else:
                sharing = {tasks[primary]: prepared[primary] for primary in primaries}
                try:
                    applying = away.guard(partial(_commit_shared, writer, sharing, member))
                except StateflowError as error:
                    yield from ((primary, error) for primary in primaries)
                else:
                    writing.update(zip(primaries, applying, strict=True))
        for primary, future in self._together(writing).items():
            try:
                future.result()
                tasks[primary].task.end_commit(prepared[primary], group)
            except StateflowError as error:
                yield primary, error
            else:
                yield primary, True

    def sharing(
        self, primaries: Iterable[TopicPartition], running: Mapping[TopicPartition, RunningTask]
    ) -> dict[TopicPartition, RunningTask]:
        """These of the running tasks, and all that share a writer with any of them: their transaction is one."""
        wanted = {primary: running[primary] for primary in primaries}
        writers = {task.claimed.writer for task in wanted.values() if task.claimed is not None}
        if not writers:
            return wanted
        sharing = {
            primary: task
            for primary, task in running.items()
            if task.claimed is not None and task.claimed.writer in writers
        }
        return {**wanted, **sharing}

    def without_writer(
        self, running: Mapping[TopicPartition, RunningTask]
    ) -> dict[TopicPartition, StateflowError]:
        """Tasks whose shared writer has come to its end, for whatever reason, and why."""
        return {
            primary: task.claimed.writer.failure_of_others()
            for primary, task in running.items()
            if task.claimed is not None and task.claimed.writer.is_over
        }

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

    def abandon_tasks(self, tasks: Iterable[RunningTask]) -> None:
        """Let go of tasks without committing; then raises the first of what waiting does not cure."""
        failure: StateflowError | None = None
        for running, future in self._together({running: running.task.abandon for running in tasks}).items():
            try:
                future.result()
            except StateflowError as error:
                failure = failure or (None if error.is_retriable else error)
                _LOG.warning("Task %s was let go of with an error: %s", running.task.wiring.id, error)
        if failure is not None:
            raise failure

    def _together(
        self, work: Mapping[K, Callable[[], None]]
    ) -> Mapping[K, Future[None]] | Mapping[K, Outcome[None]]:
        """Do it all, each part on a thread of its own if there is more than one; on return all is done."""
        if len(work) <= 1 or not self._has_threads:
            return {key: done_at_once(part) for key, part in work.items()}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(COMMITS_AT_ONCE, thread_name_prefix="commit")
        futures = {key: self._pool.submit(part) for key, part in work.items()}
        wait(futures.values())  # nobody may be within any of the tasks when their outcomes are acted upon
        return futures

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)


def _by_writer(
    primaries: Iterable[TopicPartition], tasks: Mapping[TopicPartition, RunningTask]
) -> dict[SharedWriter | None, list[TopicPartition]]:
    found: dict[SharedWriter | None, list[TopicPartition]] = {}
    for primary in primaries:
        claimed = tasks[primary].claimed
        found.setdefault(None if claimed is None else claimed.writer, []).append(primary)
    return found


def _commit_shared(
    writer: SharedWriter, tasks: Mapping[RunningTask, PreparedCommit], member: GroupMetadata | None
) -> list[Callable[[], None]]:
    """Commit the transaction of tasks that share a writer; for each, in order, what its local stores are to do."""
    parts = {running.claimed.part for running in tasks if running.claimed is not None}
    epochs = [running.task.epoch(prepared) for running, prepared in tasks.items()]
    appended = write_epochs(epochs, member, partial(writer.commit, parts))
    return [partial(epoch.apply, appended) for epoch in epochs]
