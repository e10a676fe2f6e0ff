"""Bringing a task to life: fence, position, restore, build. The order matters.

1. With a shared writer the task is claimed (``claims``). Every predecessor is fenced, so what is committed now is
   final, and the task must be one of the active generation (``fencing``); what the brokers have left open is ended
   (``hanging_transactions``).
2. The committed input offsets are read, waiting for transactions that still hold them; of a task without changelogs
   that has none yet the first ones are committed (``first_positions``).
3. The local stores are opened, which needs their directory's lock; an image may be fetched before, if that is shorter
   (``process.launch``, ``checkpoint.image_selection``).
4. The newest commit records tell what the last commit was, and where its input ended (``takeover``).
5. The changelog tail is applied, up to a target fixed after the fence (``checkpoint.planner``, ``checkpoint.restore``).
6. What a torn commit left visible is repaired (``takeover``), by the task's own transactional id; a shared writer
   is the poll thread's, which does it before the task runs (``runtime.worker.start``).
7. The stage is built over the restored stores and their indexes (``state.index``), its global tables are read
   (``task.global_tables``); what an eventual changelog left out is computed again (``replay``).

None of it belongs on a poll thread: it may take as long as the changelog is long. Most of it is waiting, so many tasks
are opened side by side, and what they ask of the cluster at the same time is asked together (``log.together``). What
takes memory, restoring above all, only ``restore_threads`` of them do at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from stateflow.changelog.position import InputPosition
from stateflow.changelog.sequences import CommittedEnd, Tail
from stateflow.checkpoint.planner import TaskPlan, plan_task, undone_stores
from stateflow.checkpoint.progress import Progress
from stateflow.checkpoint.recovery import ATTEMPTS_MAX
from stateflow.checkpoint.restore import Restoration, RestoreSettings
from stateflow.checkpoint.tails import read_tails
from stateflow.clock import Clock
from stateflow.errors import ChangelogTrimmed, TransactionAborted
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, Writer
from stateflow.log.reading import read_range
from stateflow.log.together import AskingTogether, Together
from stateflow.record import OffsetRange, RecordBatch, TopicPartition
from stateflow.runtime.opening.fencing import Fencing
from stateflow.runtime.opening.first_positions import FirstPositions
from stateflow.runtime.opening.restore_turns import RestoreTurns, check_cancelled
from stateflow.runtime.opening.shared_writers import Claimed, SharedWriters
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.global_tables import GlobalTables, TaskTables
from stateflow.runtime.task.removed_input import removed_input
from stateflow.runtime.task.replay import replay_of
from stateflow.runtime.task.size_limits import SizeLimits
from stateflow.runtime.task.takeover import (
    CommitSequence,
    Repair,
    lacks_commit_records,
    recovery_point,
    repair_of,
    resolved,
    write_repairs,
)
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.state.index import DerivedIndex, bring_up
from stateflow.store.base import TaskStores

_LOG = logging.getLogger(__name__)

_ABORTED_REPAIRS_MAX = 3
"""How often in a row the repair of a torn commit may be aborted before the opening fails."""
_Tails = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Tail]]

StoreOpener = Callable[[TaskWiring, Callable[[], bool]], TaskStores]
"""Opens a task's local stores; raises ``Interrupted`` soon after the function turns true, if it takes long at all."""


class OpeningObserver(Protocol):
    """Told how the opening of tasks goes, from whichever thread it runs on."""

    def on_restore(self, task: str, progress: Progress) -> None:
        """A restore has advanced; called a few times a second at most."""
        ...

    def on_restore_stopped(self, task: str) -> None:
        """A restore has ended before it was whole: it was cancelled, or has failed."""
        ...


@dataclass(frozen=True, slots=True)
class OpenedTask:
    """A task ready to run, and where each of its inputs goes on."""

    task: Task
    starts: Mapping[TopicPartition, int]
    claimed: Claimed | None = None
    """What it has of a shared writer; None with a writer of its own."""
    repair: Repair | None = None
    """What the shared writer has to commit before the task runs; None where all is in order."""

    @property
    def starts_text(self) -> str:
        """Where its inputs go on, to be read."""
        return ", ".join(f"{source}@{offset}" for source, offset in self.starts.items())

    def abandon(self) -> None:
        """Let go of a task that has never run."""
        self.task.abandon()
        if self.claimed is not None:
            self.claimed.give_back()


class Opener:
    """Opens tasks of one application on one cluster. Thread-safe.

    With ``writers`` tasks write by these; without, each by a transactional id of its own.
    """

    def __init__(
        self,
        cluster: Cluster,
        open_stores: StoreOpener,
        settings: WorkerSettings,
        clock: Clock,
        observer: OpeningObserver | None = None,
        writers: SharedWriters | None = None,
    ) -> None:
        self._writers = writers
        self._restoring = RestoreTurns(settings.restore_threads)
        if settings.restore_threads:
            cluster = AskingTogether(cluster)
        self._tails: _Tails = Together(self._read_tails) if settings.restore_threads else self._read_tails
        self._global_tables = GlobalTables(cluster, clock)
        self._first_positions = FirstPositions(cluster, settings)
        self._fencing = Fencing(cluster, settings, clock, None if writers is None else writers.claims)
        self._cluster = cluster
        self._open_stores = open_stores
        self._settings = settings
        self._clock = clock
        self._observer = observer
        each_bytes = settings.memory.restore_bytes_each(settings.restore_threads)
        self._restore_settings = RestoreSettings(epoch_bytes_max=each_bytes // 2)

    def open(self, wiring: TaskWiring, cancelled: Callable[[], bool]) -> OpenedTask:
        """A restored task. Raises ``Interrupted`` soon after ``cancelled`` turns true, with everything released.

        The transaction that repairs a torn commit may be aborted like any other; then the task is opened anew, with
        a producer epoch of its own again. Raises ``TransactionAborted`` after several in a row: a worker then tries
        again after a pause (``retries.py``).
        """
        for attempt in range(1, _ABORTED_REPAIRS_MAX + 1):
            try:
                return self._open(wiring, cancelled)
            except TransactionAborted as error:
                if attempt == _ABORTED_REPAIRS_MAX or cancelled():
                    raise
                _LOG.warning("Task %s is opened again: %s", wiring.id, error.message)
        raise AssertionError("the last attempt returns or raises")

    def _open(self, wiring: TaskWiring, cancelled: Callable[[], bool]) -> OpenedTask:
        reach("open.before_fence")
        if self._writers is None:
            return self._open_fenced(wiring, cancelled, None)
        claimed = self._writers.claim(wiring)
        try:
            return self._open_fenced(wiring, cancelled, claimed)
        except BaseException:
            claimed.give_back()
            raise

    def _open_fenced(
        self, wiring: TaskWiring, cancelled: Callable[[], bool], claimed: Claimed | None
    ) -> OpenedTask:
        claim = None if claimed is None else claimed.claim
        predecessors = self._fencing.predecessors(wiring, claim, shares=claimed is not None)
        own_writer = predecessors.take_over()  # 1
        writer = own_writer if claimed is None else claimed.part
        assert writer is not None, "who shares none has one of its own"
        try:
            committed = predecessors.committed()  # 2
            committed = self._first_positions.completed(wiring, predecessors.catalog, committed)
            predecessors.remove_claims()
            reach("open.after_offsets")
            stores = self._opened_stores(wiring, cancelled)  # 3
        except BaseException:
            writer.close()
            raise
        task: Task | None = None
        try:
            reach("open.after_stores")
            tails = self._tails_of(wiring)
            committed_end = resolved(tails, committed)  # 4
            reach("open.after_resolve")
            commit_sequence = CommitSequence.after(committed_end)
            position = recovery_point(wiring.inputs, committed_end, committed)
            starts = self._starts(wiring, position)
            stores = self._restored(wiring, stores, tails, committed_end, cancelled)  # 5
            reach("open.after_restore")
            repair = None  # 6
            if wiring.changelogs:
                must_prove = claimed is not None and lacks_commit_records(tails, committed_end)
                own = (wiring, writer, stores, commit_sequence)
                repair = repair_of(*own, committed_end, position, committed, must_prove=must_prove)
            if repair is not None and claimed is None:
                write_repairs([repair], writer.commit)
                repair = None
            reach("open.before_build")
            for index in wiring.indexes:
                self._bring_up(wiring, stores, index, cancelled)
            tables = TaskTables(self._global_tables, cancelled)
            task = self._build(wiring, writer, stores, position, commit_sequence, tables)  # 7
            self._replay(task, position, cancelled)
            reach("open.after_build")
            return OpenedTask(task, starts, claimed, repair)
        except BaseException:
            if task is None:
                _release(writer, stores)
            else:
                task.abandon()  # its steps may have threads and leases of global tables
            raise

    def _opened_stores(self, wiring: TaskWiring, cancelled: Callable[[], bool]) -> TaskStores:
        if wiring.log_policy.images(self._settings.images) is None:
            return self._open_stores(wiring, cancelled)
        with self._restoring.taken(wiring.id, cancelled):  # an image may have to be fetched
            return self._open_stores(wiring, cancelled)

    def _tails_of(self, wiring: TaskWiring) -> dict[str, Tail]:
        found = self._tails(wiring.changelogs.values())
        return {
            store: found[changelog] for store, changelog in wiring.changelogs.items() if changelog in found
        }

    def _read_tails(self, changelogs: Collection[TopicPartition]) -> dict[TopicPartition, Tail]:
        by_name = {str(changelog): changelog for changelog in changelogs}
        found = read_tails(self._cluster, by_name, self._clock)
        return {by_name[name]: tail for name, tail in found.items()}

    def _build(
        self,
        wiring: TaskWiring,
        writer: Writer,
        stores: TaskStores,
        position: InputPosition,
        commit_sequence: CommitSequence,
        tables: TaskTables,
    ) -> Task:
        cache_bytes = self._settings.read_cache_bytes
        if cache_bytes is None:  # whoever runs it among others divides what there is
            cache_bytes = self._settings.memory.read_cache_bytes_each(1)
        limits = SizeLimits(self._cluster, self._clock)
        return Task(
            wiring, writer, stores, position, self._clock, cache_bytes, commit_sequence, limits, tables
        )

    def _bring_up(
        self, wiring: TaskWiring, stores: TaskStores, index: DerivedIndex, cancelled: Callable[[], bool]
    ) -> None:
        began_seconds = self._clock.monotonic_seconds()
        with self._restoring.taken(wiring.id, cancelled):
            entries = bring_up(stores, index, cancelled)
        if entries:
            seconds = self._clock.monotonic_seconds() - began_seconds
            _LOG.info(
                "Task %s: the indexes of %s were made of %d entries in %.1f s.",
                wiring.id,
                index.store,
                entries,
                seconds,
            )

    def _replay(self, task: Task, position: InputPosition, cancelled: Callable[[], bool]) -> None:
        replay = replay_of(task.wiring, position)
        if replay is not None:
            records = read_range(self._cluster, replay.source, replay.offsets)
            with self._restoring.taken(task.wiring.id, cancelled):
                task.replay(replay, _until_cancelled(records, task, cancelled))

    def _starts(self, wiring: TaskWiring, position: InputPosition) -> dict[TopicPartition, int]:
        ranges = self._cluster.ranges(wiring.inputs)
        return {
            source: self._start(wiring, source, position.offsets.get(source), ranges[source])
            for source in wiring.inputs
        }

    def _start(
        self, wiring: TaskWiring, source: TopicPartition, offset_next: int | None, log: OffsetRange
    ) -> int:
        if offset_next is None:
            return log.offset_first if self._settings.start_from == "earliest" else log.offset_next
        if offset_next < log.offset_first:
            raise removed_input(wiring, source, offset_next, *log)
        return offset_next

    def _restored(
        self,
        wiring: TaskWiring,
        stores: TaskStores,
        tails: Mapping[str, Tail],
        committed_end: CommittedEnd,
        cancelled: Callable[[], bool],
    ) -> TaskStores:
        """The stores, restored; others than those given when these had to begin with another image.

        The beginning of a changelog may move past its restore, as whoever owned the task trimmed it behind an image.
        """
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._restore(wiring, stores, tails, committed_end, cancelled)
                return stores
            except ChangelogTrimmed as error:
                stores.close()
                if attempt == ATTEMPTS_MAX:
                    raise
                _LOG.warning("Task %s is planned anew, from an image: %s", wiring.id, error.message)
                stores = self._opened_stores(wiring, cancelled)
            except BaseException:
                stores.close()
                raise
        raise AssertionError("the last attempt returns or raises")

    def _restore(
        self,
        wiring: TaskWiring,
        stores: TaskStores,
        tails: Mapping[str, Tail],
        committed_end: CommittedEnd,
        cancelled: Callable[[], bool],
    ) -> None:
        if not wiring.changelogs:
            return
        ends = committed_end.restore_next
        plan = plan_task(
            self._cluster,
            wiring.id,
            wiring.changelogs,
            wiring.topic_ids,
            stores,
            self._clock,
            ends=ends,
            log_policy=wiring.log_policy,
            undone=undone_stores(self._cluster, wiring.changelogs, tails, stores),
        )
        with nullcontext() if plan.is_done else self._restoring.taken(wiring.id, cancelled):
            self._carry_out(plan, wiring, stores, cancelled)

    def _carry_out(
        self, plan: TaskPlan, wiring: TaskWiring, stores: TaskStores, cancelled: Callable[[], bool]
    ) -> None:
        restoration = Restoration(self._cluster, plan, stores, self._clock, self._restore_settings)
        try:
            while not restoration.done:
                check_cancelled(wiring.id, cancelled)
                progress = restoration.step(self._settings.restore_records_per_step)
                if self._observer is not None:
                    self._observer.on_restore(wiring.id, progress)
        except BaseException:
            if self._observer is not None:
                self._observer.on_restore_stopped(wiring.id)
            raise
        finally:
            restoration.close()
        done = restoration.progress
        _LOG.info(
            "Task %s was restored in %.3f s: %d records read over %d offset slots.",
            wiring.id,
            done.seconds,
            done.records_total,
            done.slots_total,
        )


def _until_cancelled(
    batches: Iterator[RecordBatch], task: Task, cancelled: Callable[[], bool]
) -> Iterator[RecordBatch]:
    for batch in batches:
        check_cancelled(task.wiring.id, cancelled)
        yield batch


def _release(writer: Writer, stores: TaskStores) -> None:
    try:
        writer.close()
    finally:
        stores.close()
