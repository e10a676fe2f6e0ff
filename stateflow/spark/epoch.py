"""One task's part of one micro-batch, as it runs on an executor. Free of Spark.

1. Open the task as a local worker does: fence its predecessor, read the committed offsets, restore the local
stores.
2. Read each input from the committed offset to the target, and process it. An offset committed at or behind
the target means that an earlier attempt at this epoch came so far: only the rest is done, or nothing.
3. Commit as a local worker does, at every commit interval: outputs, changelog and offsets in one Kafka transaction;
then RocksDB. At the target commit once more, and close.

So a micro-batch that Spark runs twice, on whichever executor, counts once, and an attempt that ends in the middle of a
long range leaves what it has committed: the next one goes on there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stateflow.clock import Clock
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.opening.opening import Opener, StoreOpener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.slices import SliceSize, turn_seconds
from stateflow.runtime.worker.standalone_group import StandaloneGroup


@dataclass(frozen=True, slots=True)
class EpochRange:
    """How far one task may go: per input partition the offset to stop before."""

    stage: str
    partition: int
    targets: Mapping[TopicPartition, int]
    idle: tuple[TopicPartition, ...] = ()
    """Inputs that have been silent at their ends for long: event time does not wait for them."""

    ended: tuple[TopicPartition, ...] = ()
    """Inputs that come to their ends for good with their targets."""
    look: bool = False
    """There may be something to do though all is processed: timers, or what idle and ended inputs were waited for."""

    @classmethod
    def of_row(
        cls,
        stage: str,
        partition: int,
        targets: Mapping[str, int],
        idle: Iterable[str],
        ended: Iterable[str],
        look: bool,
    ) -> EpochRange:
        """What a row of the data source says, which names inputs ``topic:partition``."""
        return cls(
            stage,
            partition,
            {_place(key): offset_next for key, offset_next in targets.items()},
            tuple(map(_place, idle)),
            tuple(map(_place, ended)),
            look,
        )


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What one task did in one micro-batch."""

    task: str
    records_total: int
    seconds: float
    offsets: Mapping[TopicPartition, int]
    """Committed ``offset_next`` per input."""
    is_rekeyed: bool
    is_opened: bool = True
    """False where an earlier attempt had done it all."""
    has_ended: bool = False
    """All its input is at its end for good, and nothing is pending."""


def run_epoch(
    cluster: Cluster,
    wiring: TaskWiring,
    todo: EpochRange,
    open_stores: StoreOpener,
    settings: WorkerSettings,
    clock: Clock,
) -> EpochResult:
    """Bring one task up to its targets and close it; on return everything is committed.

    Raises what opening, processing and committing a task raise; the task is abandoned then, and whoever
    opens it next begins at the last commit.
    """
    started_at = time.monotonic()
    if not todo.look and _is_done(cluster, wiring, todo):
        seconds = time.monotonic() - started_at
        return EpochResult(wiring.id, 0, seconds, {}, wiring.is_rekeyed, is_opened=False)
    cluster.fit_batches(wiring.written_topics)
    opened = Opener(cluster, open_stores, settings, clock).open(wiring, lambda: False)
    task, group = opened.task, StandaloneGroup(cluster, wiring.group)
    task.leave_barrier()  # the query aborted any savepoint when it began
    try:
        silent = [source for source in todo.idle if opened.starts[source] >= todo.targets[source]]
        for source in silent:  # before the records of the others: they need not wait
            task.become_idle(source)
        commits = _Commits(task, group, settings, clock)
        for source, offset_first in opened.starts.items():
            _process(cluster, task, OffsetRange(offset_first, todo.targets[source]), source, commits)
        for source in todo.idle:
            task.become_idle(source)
        for source in todo.ended:
            task.end_input(source)
        _commit_with_what_is_due(task, group, commits)
    except BaseException:
        task.abandon()
        raise
    offsets = dict(task.offsets)
    task.close()
    return EpochResult(
        wiring.id,
        task.records_total,
        time.monotonic() - started_at,
        offsets,
        wiring.is_rekeyed,
        has_ended=task.has_ended,
    )


class _Commits:
    """When a task commits before its targets are reached."""

    def __init__(self, task: Task, group: StandaloneGroup, settings: WorkerSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self._task = task
        self._group = group
        self._committed_seconds = clock.monotonic_seconds()

    def turn(self) -> None:
        """Commit if the interval is over, or if more has changed than should wait."""
        waited_seconds = self.clock.monotonic_seconds() - self._committed_seconds
        is_due = waited_seconds >= self.settings.commit_interval_seconds
        if is_due or self._task.is_full(self.settings.task_dirty_bytes_max):
            self._task.commit(self._group)
            self._committed_seconds = self.clock.monotonic_seconds()


def _commit_with_what_is_due(task: Task, group: StandaloneGroup, commits: _Commits) -> None:
    """The end of the epoch: timers that its input or the clock made due fire, in slices, and all is committed."""
    task.advance_time()
    while task.has_pending_timers:
        commits.turn()
        task.advance_time()
    task.commit(group, complete=True)  # the next micro-batch opens the task anew, and would replay


def _is_done(cluster: Cluster, wiring: TaskWiring, todo: EpochRange) -> bool:
    """True when an earlier attempt has committed all of it. A look from outside: too early is safe, it then
    opens.
    """
    committed = cluster.committed(wiring.group, wiring.inputs, stable=False)
    return all(
        source in committed and committed[source].offset_next >= todo.targets[source]
        for source in wiring.inputs
    )


def _process(
    cluster: Cluster, task: Task, offsets: OffsetRange, source: TopicPartition, commits: _Commits
) -> None:
    slices = SliceSize(
        commits.settings, task.context.records_at_once, calls_application=task.calls_application
    )
    seconds, clock = turn_seconds(commits.settings), commits.clock
    for batch in read_range(cluster, source, offsets):
        first = 0
        while first < len(batch):
            part = batch.rows(first, min(len(batch), first + slices.fitting(seconds)))
            begun_seconds = clock.monotonic_seconds()
            rest = task.process(part)
            done = len(part) - (0 if rest is None else len(rest))
            if done:
                slices.took(done, clock.monotonic_seconds() - begun_seconds)
            commits.turn()
            first += done
    task.reached(source, offsets.offset_next)


def _place(key: str) -> TopicPartition:
    topic, partition = key.rsplit(":", 1)
    return TopicPartition(topic, int(partition))
