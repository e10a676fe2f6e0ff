"""Committing the tasks of a worker, beside the processing of others.

A commit is mostly waiting: for acknowledgements, for the end of a transaction, for the disk. So what runs the
application's code, and what asks the group's consumer, is done on the poll thread, one task after the other, and the
rest on a few threads. From ``begin`` until its outcome is taken a task's commit is *in flight*: only the thread that
writes it is within the task, its writer and its stores. The poll thread hands it no records, and goes on with other
tasks; there is never a second epoch of a task. The consumer is left to the poll thread: from another one it was seen
never to answer while the poll thread stood in a callback of a rebalance.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.failpoints import reach
from stateflow.record import TopicPartition
from stateflow.runtime.opening.inline import Outcome, done_at_once, inline_without
from stateflow.runtime.opening.opening import OpenedTask
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.commit import PreparedCommit, write_epochs
from stateflow.runtime.task.input_group import CommitProof, InputGroup, Proof
from stateflow.runtime.task.shared_writer import SharedWriter
from stateflow.runtime.task.task import Task
from stateflow.runtime.worker.observing import WorkerObserver

_LOG = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

COMMITS_AT_ONCE = 8
"""More are limited by the broker and by Python itself; those that are written together end together, and late."""
FLUSHES_AT_ONCE = 2
"""On threads of their own: behind the commits that wait for a thread the poll thread would wait for those, too."""
FLUSHES_AT_A_TIME = 16
"""Tasks that were opened together are due together, and the poll thread waits for those that are flushed."""
COMMITS_AT_A_TIME_MAX = 128
"""So many tasks that are due may be in flight: no more wait for a thread, and for their input meanwhile."""


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
        self.commit_begun_seconds = now_seconds
        self.commit_seconds_total, self.commits_total = 0.0, 0
        self.flushed_seconds = now_seconds

    @property
    def has_nothing_to_do(self) -> bool:
        """True when only news of its inputs, or of the worker, would make it do anything."""
        task = self.task
        return not (task.needs_turns or task.barrier_point is not None or task.is_dirty) and task.is_quiet


class _BrokersAway:
    """What one commit has waited for in vain, those that were begun by then do not wait for again."""

    def __init__(self) -> None:
        self._error: BrokerUnreachable | None = None

    @property
    def is_known(self) -> bool:
        """Whether a commit has waited in vain. Says nothing of one that begins now: brokers may be back."""
        return self._error is not None

    def guard(self, part: Callable[[], T]) -> T:
        """Do it, unless brokers have not answered another."""
        if self._error is not None:
            raise BrokerUnreachable(self._error.message, action=self._error.action)
        try:
            return part()
        except BrokerUnreachable as error:
            self._error = error
            raise


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A commit that was begun."""

    task: Task
    prepared: PreparedCommit
    written: Future[float]
    """CPU seconds that it took the thread which wrote it."""


class Commits:
    """Commits tasks, and makes them durable on disk when that is due. Used by the poll thread alone.

    ``executor`` takes the place of its own threads.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        executor: Executor | None = None,
        observer: WorkerObserver | None = None,
    ) -> None:
        self._observer = observer
        self._settings = settings
        self._clock = clock
        self._cpu_seconds = 0.0
        self._writing = executor or inline_without(settings.restore_threads)
        self._pool: ThreadPoolExecutor | None = None
        self._flushing: ThreadPoolExecutor | None = None
        self._away = _BrokersAway()
        self._in_flight: dict[TopicPartition, _InFlight] = {}
        self._let_go_total = 0
        """How often tasks were let go of, or found to be others'."""
        self._known: list[tuple[TopicPartition, bool | StateflowError]] = []
        """Outcomes that did not have to be waited for."""
        self.sources: set[TopicPartition] = set()
        """Inputs of the tasks whose commits are in flight."""

    def __contains__(self, primary: object) -> bool:
        """Whether a commit of this task is in flight: nothing else may be asked of it."""
        return primary in self._in_flight

    def __len__(self) -> int:
        """How many are in flight."""
        return len(self._in_flight)

    @property
    def oldest(self) -> list[TopicPartition]:
        """The one in flight that was begun first, if there is any."""
        return list(islice(self._in_flight, 1))

    def begin(
        self,
        tasks: Mapping[TopicPartition, RunningTask],
        group: InputGroup,
        *,
        complete: Collection[TopicPartition] = (),
    ) -> None:
        """Begin to commit all of them; ``outcomes`` tells of each what became of it.

        Of tasks that share a writer all that have sent anything must be among them (``sharing``): their transaction is
        over on return. Those ``complete`` bring eventual changelogs up to date. What is raised that is no
        ``StateflowError``, as an application's bug, comes out of here or of ``outcomes``.
        """
        prepared: dict[TopicPartition, PreparedCommit] = {}
        for primary, running in tasks.items():
            try:
                each = running.task.prepare_commit(complete=primary in complete)
            except StateflowError as error:
                if running.claimed is not None:
                    running.claimed.part.give_up(error)
                self._known.append((primary, error))
                continue
            if each is None:
                self._known.append((primary, False))
            else:
                prepared[primary] = each
        if not prepared:
            return
        if self._away.is_known:
            self._away = _BrokersAway()
        proof, away = self._proof(group), self._away
        for writer, primaries in _by_writer(prepared, tasks).items():
            if writer is None:
                for primary in primaries:
                    write = partial(tasks[primary].task.write_commit, prepared[primary], proof)
                    self._write(primary, tasks[primary].task, prepared[primary], partial(away.guard, write))
                continue
            sharing = {tasks[primary]: prepared[primary] for primary in primaries}
            began_seconds = self._clock.thread_cpu_seconds()
            try:
                applying = away.guard(partial(_commit_shared, writer, sharing, proof))
            except StateflowError as error:
                self._known += [(primary, error) for primary in primaries]
                continue
            self._cpu_seconds += self._clock.thread_cpu_seconds() - began_seconds
            for primary, apply in zip(primaries, applying, strict=True):
                self._write(primary, tasks[primary].task, prepared[primary], apply)
            self.wait_until_written(primaries)
        reach("commit.in_flight")

    def _proof(self, group: InputGroup) -> CommitProof:
        let_go_total = self._let_go_total
        return CommitProof(group, lambda: self._let_go_total == let_go_total)

    def lost(self) -> None:
        """Tasks are others' by now, for all that is known: no commit in flight is to prove its membership anew."""
        self._let_go_total += 1

    def _write(
        self, primary: TopicPartition, task: Task, prepared: PreparedCommit, part: Callable[[], None]
    ) -> None:
        def timed() -> float:
            began_seconds = self._clock.thread_cpu_seconds()
            part()
            return self._clock.thread_cpu_seconds() - began_seconds

        self._in_flight[primary] = _InFlight(task, prepared, (self._writing or self._threads()).submit(timed))
        self.sources.update(task.wiring.inputs)

    def outcomes(self, group: InputGroup) -> Iterator[tuple[TopicPartition, bool | StateflowError]]:
        """What became of commits that are written: whether there was anything to commit, or what went wrong."""
        known, self._known = self._known, []
        yield from known
        for primary in [primary for primary, each in self._in_flight.items() if each.written.done()]:
            each = self._forget(primary)
            try:
                self._cpu_seconds += each.written.result()
                reach("commit.written")
                each.task.end_commit(each.prepared, group)
            except StateflowError as error:
                yield primary, error
            else:
                self._tell(each.task)
                yield primary, True

    def _tell(self, task: Task) -> None:
        if self._observer is not None:
            self._observer.on_commit(task.wiring.id, task.records_total, task.context.sent_total)

    def take_cpu_seconds(self) -> float:
        """CPU of the threads that wrote the commits whose outcomes were taken since this was asked last."""
        taken, self._cpu_seconds = self._cpu_seconds, 0.0
        return taken

    def wait_until_written(self, primaries: Iterable[TopicPartition] | None = None) -> None:
        """Until these, or all that are in flight, are written or have failed: no other thread is within a task then."""
        for primary in list(self._in_flight if primaries is None else primaries):
            self._in_flight[primary].written.exception()

    def wait_a_while(self, timeout_seconds: float, *, for_all: bool) -> None:
        """Until one of those in flight is written, or all are, or the time is over."""
        written = [each.written for each in self._in_flight.values()]
        if (all if for_all else any)(future.done() for future in written):
            return
        wait(written, timeout_seconds, return_when=ALL_COMPLETED if for_all else FIRST_COMPLETED)

    def _forget(self, primary: TopicPartition) -> _InFlight:
        each = self._in_flight.pop(primary)
        self.sources.difference_update(each.task.wiring.inputs)
        return each

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
        """Make some durable on the local disk that have not been for the flush interval, those first that wait longest.

        To be called once a second, so that many tasks get their turns within an interval.
        """
        interval_seconds = self._settings.flush_interval_seconds
        tasks = list(tasks)
        due = [running for running in tasks if now_seconds - running.flushed_seconds >= interval_seconds]
        if interval_seconds:
            most = max(FLUSHES_AT_A_TIME, math.ceil(len(tasks) / interval_seconds))
            due = sorted(due, key=lambda running: running.flushed_seconds)[:most]
        if self._writing is None and due:
            self._flushing = self._flushing or ThreadPoolExecutor(FLUSHES_AT_ONCE, "flush")
        work = {running: running.task.flush for running in due}
        for running, future in self._together(work, self._flushing).items():
            future.result()
            running.flushed_seconds = now_seconds

    def close_tasks(self, tasks: Iterable[RunningTask]) -> None:
        """Let go of tasks that are committed."""
        self.lost()
        for future in self._together({running: running.task.close for running in tasks}).values():
            future.result()

    def abandon_tasks(self, tasks: Sequence[RunningTask]) -> None:
        """Let go of tasks without committing; then raises the first of what waiting does not cure.

        What became of their commits that are in flight is for the next owners to find out.
        """
        gone = {running.primary for running in tasks}
        self.wait_until_written(gone & self._in_flight.keys())
        self._known = [(primary, outcome) for primary, outcome in self._known if primary not in gone]
        abandoned = [self._forget(primary) for primary in gone & self._in_flight.keys()]
        failure = next((met for each in abandoned if _is_bug(met := each.written.exception())), None)
        for running, future in self._together({running: running.task.abandon for running in tasks}).items():
            try:
                future.result()
            except StateflowError as error:
                failure = failure or (None if error.is_retriable else error)
                _LOG.warning("Task %s was let go of with an error: %s", running.task.wiring.id, error)
        if failure is not None:
            raise failure

    def _together(
        self, work: Mapping[K, Callable[[], None]], pool: Executor | None = None
    ) -> Mapping[K, Future[None]] | Mapping[K, Outcome[None]]:
        """Do it all, each part on a thread of its own if there is more than one; on return all is done."""
        if len(work) <= 1 or self._writing is not None:
            return {key: done_at_once(part) for key, part in work.items()}
        pool = pool or self._threads()
        futures = {key: pool.submit(part) for key, part in work.items()}
        wait(futures.values())  # nobody may be within any of the tasks when their outcomes are acted upon
        return futures

    def _threads(self) -> Executor:
        self._pool = self._pool or ThreadPoolExecutor(COMMITS_AT_ONCE, thread_name_prefix="commit")
        return self._pool

    def close(self) -> None:
        """End the threads."""
        for pool in (self._pool, self._flushing):
            if pool is not None:
                pool.shutdown(wait=True)


def _is_bug(error: BaseException | None) -> bool:
    return error is not None and not isinstance(error, StateflowError)


def _by_writer(
    primaries: Iterable[TopicPartition], tasks: Mapping[TopicPartition, RunningTask]
) -> dict[SharedWriter | None, list[TopicPartition]]:
    found: dict[SharedWriter | None, list[TopicPartition]] = {}
    for primary in primaries:
        claimed = tasks[primary].claimed
        found.setdefault(None if claimed is None else claimed.writer, []).append(primary)
    return found


def _commit_shared(
    writer: SharedWriter, tasks: Mapping[RunningTask, PreparedCommit], proof: Proof
) -> list[Callable[[], None]]:
    """Commit the transaction of tasks that share a writer; for each, in order, what its local stores are to do."""
    parts = {running.claimed.part for running in tasks if running.claimed is not None}
    epochs = [running.task.epoch(prepared) for running, prepared in tasks.items()]
    appended = write_epochs(epochs, proof, partial(writer.commit, parts))
    return [partial(epoch.apply, appended) for epoch in epochs]
