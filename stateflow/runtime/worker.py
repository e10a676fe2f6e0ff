"""The local worker: one group member, its poll loop, and the tasks dealt to it.

The poll thread does three things in turn: process what was read, start tasks that are restored, commit what is
due. Everything slow (fencing, restoring) happens on a few threads beside it, so the group never waits.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from typing import Protocol

from stateflow.checkpoint.progress import Progress
from stateflow.clock import Clock
from stateflow.errors import MembershipLost, StateflowError, TransactionAborted
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, GroupConsumer
from stateflow.record import RecordBatch, TopicPartition
from stateflow.runtime.cuts import Cuts
from stateflow.runtime.draining import QuietListener
from stateflow.runtime.opening import OpenedTask, Opener, StoreOpener
from stateflow.runtime.purge import Purge
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.silence import Silence
from stateflow.runtime.starting import StartingTasks
from stateflow.runtime.task import Task
from stateflow.runtime.untimely_news import UntimelyNews
from stateflow.runtime.wiring import TaskWiring, Wiring

_LOG = logging.getLogger(__name__)

# The epoch is gone, the worker is not: its input is read again, here or, if the group has moved on, by the next owner.
_EPOCH_LOST = (TransactionAborted, MembershipLost)
_LOST_EPOCHS_MAX = 20
"""Epochs lost in a row, without a commit between, before a worker gives up on a task."""


class WorkerObserver(Protocol):
    """Told what happens to tasks. ``on_restore`` is called from other threads than the rest."""

    def on_restore(self, task: str, progress: Progress) -> None:
        """A restore has advanced."""
        ...

    def on_running(self, task: str) -> None:
        """A task is restored and reads its input."""
        ...

    def on_released(self, task: str) -> None:
        """A task was committed, or abandoned, and closed."""
        ...


class Worker:
    """Runs the tasks that the group assigns to it, until ``stop``.

    Not thread-safe except for ``stop``. ``step`` is one turn of the loop: a test drives it by hand. ``openings`` runs
    what opens tasks; the settings say how many threads do without it.
    """

    def __init__(
        self,
        cluster: Cluster,
        wiring: Wiring,
        open_stores: StoreOpener,
        settings: WorkerSettings,
        clock: Clock,
        observer: WorkerObserver | None = None,
        openings: Executor | None = None,
        cuts: Cuts | None = None,
        news: UntimelyNews | None = None,
    ) -> None:
        self._cuts = cuts
        self._news = news
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._wiring = wiring
        self._lead_topics = wiring.lead_topics()
        self._tasks: dict[TopicPartition, _Running] = {}
        self._lost_epochs: Counter[TopicPartition] = Counter()
        opener = Opener(cluster, open_stores, settings, clock, observer)
        self._starting = StartingTasks(opener, settings, openings)
        self._purge = Purge(cluster, settings.purge_interval_seconds, clock)
        self._silence = Silence(cluster, settings.idle_seconds, clock)
        self._stopping = False
        self.quiet_listener: QuietListener | None = None
        self._said_quiet: int | None = None
        self._ends: dict[TopicPartition, int] = {}
        reach("startup.before_join")
        self._group = self._join(cluster)

    def _join(self, cluster: Cluster) -> GroupConsumer:
        """Become a member of the application's group."""
        return cluster.group_consumer(
            self._wiring.topology.app, sorted(self._lead_topics), self, member=self._settings.member
        )

    # --- the loop -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn the loop until ``stop``, then commit and close. Any error abandons what is uncommitted."""
        try:
            while not self._stopping:
                self.step()
            self._tell_untimely(is_last=True)
            reach("stop.before_release")
            for lead in list(self._tasks):
                self._release(lead)
            reach("stop.before_leave")
        finally:
            self.close()

    def stop(self) -> None:
        """Ask ``run`` to commit and return; may be called from a signal handler or another thread."""
        self._stopping = True

    def end_input(self, ends: Mapping[TopicPartition, int]) -> None:
        """From now on a source partition of which all before this offset is processed has ended, and tasks finish."""
        self._ends = dict(ends)
        for running in self._tasks.values():
            running.ended.clear()

    def step(self) -> None:
        """One turn: poll, process, start what is ready, commit what is due."""
        if self._cuts is not None:
            self._cuts.poll()
        has_due = any(running.task.has_due for running in self._tasks.values())
        timeout_seconds = 0.0 if has_due else self._settings.poll_timeout_seconds
        batches = self._group.poll(self._settings.poll_records_max, timeout_seconds)
        if batches:
            self._say_quiet(None)
        for batch in batches:
            self._process(batch)
        self._silence.heard(batch.source for batch in batches)
        for lead, opened in self._starting.ready():
            self._start(lead, opened)
        for source in self._silence.fallen_idle(self._group.position):
            self._become_idle(source)
        for lead in list(self._tasks):
            self._tend(lead)
        self._tell_untimely()
        if self.quiet_listener is not None and not batches:
            self._say_quiet(len(self._tasks) if self.is_quiet else None)

    def close(self) -> None:
        """Abandon what is not committed and leave the group; what is still held goes even if a part fails."""
        with ExitStack() as stack:
            if self._news is not None:
                stack.callback(self._news.close)
            stack.callback(self._group.close)
            stack.callback(self._starting.close)
            for lead in list(self._tasks):
                stack.callback(self._abandon, lead)
        reach("stop.after_leave")

    @property
    def tasks(self) -> dict[str, Task]:
        """Running tasks by id."""
        return {running.task.wiring.id: running.task for running in self._tasks.values()}

    @property
    def is_quiet(self) -> bool:
        """True when nothing is left to do here but by new input or by the clock."""
        return not self.starting and all(
            running.task.is_quiet
            and running.ended.issuperset(self._ends.keys() & running.task.wiring.sources)
            for running in self._tasks.values()
        )

    @property
    def starting(self) -> list[str]:
        """Ids of tasks that are being fenced or restored."""
        return self._starting.ids()

    # --- what the group says ------------------------------------------------------------------------

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to open the tasks of these lead partitions."""
        reach("handover.assigned")
        for lead in partitions:
            self._open(lead)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit and close the tasks of these lead partitions before another worker gets them."""
        reach("handover.revoked")
        for lead in partitions:
            self._starting.cancel(lead)
            if lead in self._tasks:
                self._release(lead)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The partitions are someone else's already: abandon."""
        reach("handover.lost")
        for lead in partitions:
            self._starting.cancel(lead)
            if lead in self._tasks:
                self._abandon(lead)

    # --- one task -----------------------------------------------------------------------------------

    def _open(self, lead: TopicPartition) -> None:
        stage = self._lead_topics[lead.topic]
        self._starting.submit(lead, self._wiring.task(stage, lead.partition))

    def _start(self, lead: TopicPartition, opened: OpenedTask) -> None:
        self._tasks[lead] = _Running(opened, self._clock.monotonic_seconds())
        reach("handover.before_start")
        self._group.start(opened.starts)
        self._silence.begin(opened.task.wiring.sources)
        _LOG.info("Task %s is running from %s.", opened.task.wiring.id, _offsets(opened))
        if self._observer is not None:
            self._observer.on_running(opened.task.wiring.id)

    def _process(self, batch: RecordBatch) -> None:
        lead = self._lead_of(batch.source)
        if lead is None:  # fetched before its task was taken away: another worker reads it again
            return
        running = self._tasks[lead]
        try:
            for part, cut_number in (
                [(batch, None)] if self._cuts is None else self._cuts.parts(running.task, batch)
            ):
                running.task.process(part)
                if cut_number is not None and self._cuts is not None:
                    self._cuts.take_place(running.task, cut_number, self._group, running.starts)
        except _EPOCH_LOST as error:
            self._start_again(lead, error)
            return
        if running.task.is_full(self._settings.dirty_bytes_max):
            self._commit(lead)

    def _lead_of(self, source: TopicPartition) -> TopicPartition | None:
        if source in self._tasks:
            return source
        return next(
            (lead for lead, running in self._tasks.items() if source in running.task.wiring.inputs), None
        )

    def _become_idle(self, source: TopicPartition) -> None:
        lead = self._lead_of(source)
        if lead is None:  # another source of the same task has just cost it its epoch
            return
        try:
            self._tasks[lead].task.become_idle(source)
        except _EPOCH_LOST as error:
            self._start_again(lead, error)

    def _tend(self, lead: TopicPartition) -> None:
        running = self._tasks[lead]
        try:
            running.task.tend()
        except _EPOCH_LOST as error:
            self._start_again(lead, error)
            return
        now_seconds = self._clock.monotonic_seconds()
        for source in running.task.wiring.inputs:
            running.task.reached(source, self._group.position(source))
        if not (self._tend_cut(lead) and self._tend_end(lead)):
            return
        is_due = now_seconds - running.committed_seconds >= self._settings.commit_interval_seconds
        if is_due or running.task.is_full(self._settings.dirty_bytes_max):
            self._commit(lead)
        if (
            lead in self._tasks
            and now_seconds - running.flushed_seconds >= self._settings.flush_interval_seconds
        ):
            running.task.flush()
            running.flushed_seconds = now_seconds

    def _tend_cut(self, lead: TopicPartition) -> bool:
        """Let the task have part in cuts; False when that cost it its epoch."""
        running = self._tasks[lead]
        try:
            if self._cuts is not None:
                self._cuts.tend(running.task, self._group, running.starts)
        except _EPOCH_LOST as error:
            self._start_again(lead, error)
            return False
        return True

    def _tend_end(self, lead: TopicPartition) -> bool:
        """Tell the task of inputs that have come to their ends; False when that cost it its epoch."""
        running = self._tasks[lead]
        try:
            for source in (self._ends.keys() & running.task.wiring.sources) - running.ended:
                if self._group.position(source) >= self._ends[source]:
                    running.task.end_input(source)
                    running.ended.add(source)
        except _EPOCH_LOST as error:
            self._start_again(lead, error)
            return False
        return True

    def _say_quiet(self, tasks: int | None) -> None:
        if self.quiet_listener is not None and tasks != self._said_quiet:
            self._said_quiet = tasks
            self.quiet_listener.tell(tasks)

    def _commit(self, lead: TopicPartition) -> None:
        running = self._tasks[lead]
        if not running.task.is_quiet:
            self._say_quiet(None)
        try:
            committed = running.task.commit(self._group)
        except _EPOCH_LOST as error:
            self._start_again(lead, error)
            return
        running.committed_seconds = self._clock.monotonic_seconds()
        if committed:
            self._lost_epochs.pop(lead, None)
        if running.task.wiring.is_rekeyed and running.task.place is None:  # a cut needs what is in flight
            self._purge.consumed(running.task.committed.needed_next())

    def _start_again(self, lead: TopicPartition, error: StateflowError) -> None:
        _LOG.warning("Task %s starts again from its last commit: %s", self._tasks[lead].task.wiring.id, error)
        self._lost_epochs[lead] += 1
        self._abandon(lead)
        if self._lost_epochs[lead] >= _LOST_EPOCHS_MAX:
            raise error
        self._open_again(lead, error)

    def _open_again(self, lead: TopicPartition, error: StateflowError) -> None:  # noqa: ARG002 - for others
        """Open a task whose epoch was lost to ``error``; whoever places tasks otherwise may decide otherwise."""
        self._open(lead)

    def _release(self, lead: TopicPartition) -> None:
        running = self._tasks[lead]
        reach("handover.before_commit")
        try:
            running.task.commit(self._group, complete=True)
        except _EPOCH_LOST as error:
            _LOG.warning("Task %s leaves its last epoch to its next owner: %s", running.task.wiring.id, error)
            self._abandon(lead)
            return
        reach("handover.after_commit")
        del self._tasks[lead]
        self._stop_reading(running.task.wiring)
        running.task.close()
        reach("handover.after_close")
        self._tell_released(running.task.wiring)

    def _abandon(self, lead: TopicPartition) -> None:
        running = self._tasks.pop(lead)
        self._stop_reading(running.task.wiring)
        running.task.abandon()
        self._tell_released(running.task.wiring)

    def _tell_untimely(self, *, is_last: bool = False) -> None:
        if self._news is not None:
            met = (met for running in self._tasks.values() for met in running.task.untimely.met())
            self._news.turn(met, is_last=is_last)

    def _stop_reading(self, wiring: TaskWiring) -> None:
        self._silence.end(wiring.inputs)
        self._group.stop(wiring.inputs)

    def _tell_released(self, wiring: TaskWiring) -> None:
        _LOG.info("Task %s was released.", wiring.id)
        if self._observer is not None:
            self._observer.on_released(wiring.id)


class _Running:
    """A running task and when things last happened to it, in seconds of the worker's clock."""

    def __init__(self, opened: OpenedTask, now_seconds: float) -> None:
        self.task = opened.task
        self.starts = opened.starts
        self.ended: set[TopicPartition] = set()
        """Source partitions that it was told the end of."""
        self.committed_seconds = now_seconds
        self.flushed_seconds = now_seconds


def _offsets(opened: OpenedTask) -> str:
    return ", ".join(f"{source}@{offset}" for source, offset in opened.starts.items())
