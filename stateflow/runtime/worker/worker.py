"""The local worker: one group member, its poll loop, and the tasks dealt to it.

The poll thread does four things in turn: serve the group and read, process some of what was read, start tasks that
are restored, commit what is due. A turn is bounded in time, whatever a record takes (``slices``); everything else that
is slow (fencing, restoring) happens on a few threads beside it. So the group never waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, GroupConsumer
from stateflow.record import RecordBatch, TopicPartition
from stateflow.runtime.event_time.draining import QuietListener
from stateflow.runtime.event_time.silence import Silence
from stateflow.runtime.event_time.untimely_news import UntimelyNews
from stateflow.runtime.opening.opening import OpenedTask, Opener, StoreOpener
from stateflow.runtime.opening.starting import StartingTasks
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.snapshots.cuts import Cuts
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.intake import Intake
from stateflow.runtime.worker.memory import TaskMemory
from stateflow.runtime.worker.observing import WorkerObserver
from stateflow.runtime.worker.purge import Purge
from stateflow.runtime.worker.slices import turn_seconds

_LOG = logging.getLogger(__name__)


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
        self._turn_seconds = turn_seconds(settings)
        self._clock = clock
        self._observer = observer
        self._wiring = wiring
        self._primary_topics = wiring.primary_topics()
        self._tasks: dict[TopicPartition, _Running] = {}
        self._memory = TaskMemory(settings)
        opener = Opener(cluster, open_stores, settings, clock, observer)
        self._starting = StartingTasks(opener, settings, clock, openings)
        self._purge = Purge(cluster, settings.purge_interval_seconds, clock)
        self._silence = Silence(cluster, settings.idle_seconds, clock)
        self._stopping = False
        self.quiet_listener: QuietListener | None = None
        self._said_quiet: int | None = None
        self._ends: dict[TopicPartition, int] = {}
        reach("startup.before_join")
        self._group = self._join(cluster)
        self._intake = Intake(self._group, settings)

    def _join(self, cluster: Cluster) -> GroupConsumer:
        """Become a member of the application's group."""
        return cluster.group_consumer(
            self._wiring.topology.app, sorted(self._primary_topics), self, member=self._settings.member
        )

    # --- the loop -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn the loop until ``stop``, then commit and close. Any error abandons what is uncommitted."""
        try:
            while not self._stopping:
                self.step()
            self._tell_untimely(is_last=True)
            reach("stop.before_release")
            for primary in list(self._tasks):
                self._release(primary)
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
        """One turn: poll, process for a while, start what is ready, commit what is due."""
        if self._cuts is not None:
            self._cuts.poll()
        has_pending_timers = any(running.task.has_pending_timers for running in self._tasks.values())
        self._poll(0.0 if has_pending_timers else self._settings.poll_timeout_seconds)
        is_idle = self._intake.first is None
        if not is_idle:
            self._say_quiet(None)
        self._process_for_a_turn()
        for primary, opened in self._starting.ready():
            self._start(primary, opened)
        for source in self._silence.fallen_idle(self._intake.position):
            self._become_idle(source)
        for primary in list(self._tasks):
            self._advance(primary)
        self._tell_untimely()
        if self.quiet_listener is not None and is_idle:
            self._say_quiet(len(self._tasks) if self.is_quiet else None)

    def _poll(self, timeout_seconds: float) -> None:
        """Serve the group and read. Brokers that do not answer are waited for; the client says so meanwhile."""
        try:
            if self._starting.is_contested:
                self._group.verify_membership()
            self._intake.poll(timeout_seconds)
        except BrokerUnreachable as error:
            _LOG.warning("Waiting for the brokers: %s", error.message)

    def close(self) -> None:
        """Abandon what is not committed and leave the group; what is still held goes even if a part fails."""
        with ExitStack() as stack:
            if self._news is not None:
                stack.callback(self._news.close)
            stack.callback(self._group.close)
            stack.callback(self._starting.close)
            for primary in list(self._tasks):
                stack.callback(self._abandon, primary)
        reach("stop.after_leave")

    @property
    def tasks(self) -> dict[str, Task]:
        """Running tasks by id."""
        return {running.task.wiring.id: running.task for running in self._tasks.values()}

    @property
    def is_quiet(self) -> bool:
        """True when nothing is left to do here but by new input or by the clock."""
        return not (self.starting or self._intake.first) and all(
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
        """Begin to open the tasks of these primary partitions."""
        reach("handover.assigned")
        for primary in partitions:
            self._open(primary)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit and close the tasks of these primary partitions before another worker gets them."""
        reach("handover.revoked")
        for primary in partitions:
            self._starting.cancel(primary)
            if primary in self._tasks:
                self._release(primary)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The partitions are someone else's already: abandon."""
        reach("handover.lost")
        for primary in partitions:
            self._starting.cancel(primary)
            if primary in self._tasks:
                self._abandon(primary)

    # --- one task -----------------------------------------------------------------------------------

    def _open(self, primary: TopicPartition) -> None:
        stage = self._primary_topics[primary.topic]
        self._starting.submit(primary, self._wiring.task(stage, primary.partition))

    def _start(self, primary: TopicPartition, opened: OpenedTask) -> None:
        self._tasks[primary] = _Running(opened, self._clock.monotonic_seconds())
        self._memory.begin(primary, opened.task)
        reach("handover.before_start")
        self._intake.start(opened.starts)
        self._silence.begin(opened.task.wiring.sources)
        _LOG.info("Task %s is running from %s.", opened.task.wiring.id, _offsets(opened))
        if self._observer is not None:
            self._observer.on_running(opened.task.wiring.id)

    def _process_for_a_turn(self) -> None:
        """Process what waits, in slices, until nothing does, the turn is over, or the worker is to stop."""
        begun_seconds = now_seconds = self._clock.monotonic_seconds()
        while (source := self._intake.first) is not None and not self._stopping:
            left_seconds = begun_seconds + self._turn_seconds - now_seconds
            if left_seconds <= 0:
                break
            self._process(source, left_seconds)
            self._silence.heard([source])
            now_seconds = self._clock.monotonic_seconds()
        self._intake.end_turn()
        self._silence.heard(self._intake.sources)

    def _process(self, source: TopicPartition, seconds: float) -> None:
        """Process as many of an input's records as fit into a time, at least one."""
        primary = self._primary_of(source)
        assert primary is not None, "what a task has not processed goes with it"
        running, batch = self._tasks[primary], self._intake.take(seconds)
        keeps_epoch = self._keeps_epoch(primary, lambda: self._process_parts(running, batch))
        if keeps_epoch and self._memory.is_full(primary):
            self._commit(primary)

    def _process_parts(self, running: _Running, batch: RecordBatch) -> None:
        """A slice, divided where the task takes its place in a cut."""
        cuts = self._cuts
        for part, cut_number in [(batch, None)] if cuts is None else cuts.parts(running.task, batch):
            begun_seconds = self._clock.monotonic_seconds()
            running.task.process(part)
            self._intake.took(part, self._clock.monotonic_seconds() - begun_seconds)
            if cut_number is not None and cuts is not None:
                cuts.take_place(running.task, cut_number, self._group, running.starts)

    def _primary_of(self, source: TopicPartition) -> TopicPartition | None:
        if source in self._tasks:
            return source
        return next(
            (primary for primary, running in self._tasks.items() if source in running.task.wiring.inputs),
            None,
        )

    def _become_idle(self, source: TopicPartition) -> None:
        primary = self._primary_of(source)
        if primary is None:  # another source of the same task has just cost it its epoch
            return
        task = self._tasks[primary].task
        self._keeps_epoch(primary, lambda: task.become_idle(source))

    def _advance(self, primary: TopicPartition) -> None:
        running = self._tasks[primary]
        if not self._keeps_epoch(primary, running.task.advance_time):
            return
        now_seconds = self._clock.monotonic_seconds()
        for source in running.task.wiring.inputs:
            running.task.reached(source, self._intake.position(source))
        if not self._keeps_epoch(primary, lambda: self._advance_barriers_and_ends(running)):
            return
        is_due = now_seconds - running.committed_seconds >= self._settings.commit_interval_seconds
        if self._memory.is_full(primary) or is_due:
            self._commit(primary)
        if (
            primary in self._tasks
            and now_seconds - running.flushed_seconds >= self._settings.flush_interval_seconds
        ):
            running.task.flush()
            running.flushed_seconds = now_seconds

    def _advance_barriers_and_ends(self, running: _Running) -> None:
        """Let the task have part in cuts, and tell it of inputs that have come to their ends."""
        if self._cuts is not None:
            self._cuts.take_part(running.task, self._group, running.starts)
        for source in (self._ends.keys() & running.task.wiring.sources) - running.ended:
            if self._intake.position(source) >= self._ends[source]:
                running.task.end_input(source)
                running.ended.add(source)

    def _keeps_epoch(self, primary: TopicPartition, work: Callable[[], object]) -> bool:
        """Do a part of a task's work; False when that cost it its epoch."""
        try:
            work()
        except StateflowError as error:
            self._start_again(primary, error)
            return False
        return True

    def _say_quiet(self, tasks: int | None) -> None:
        if self.quiet_listener is not None and tasks != self._said_quiet:
            self._said_quiet = tasks
            self.quiet_listener.tell(tasks)

    def _commit(self, primary: TopicPartition) -> None:
        running = self._tasks[primary]
        if not running.task.is_quiet:
            self._say_quiet(None)
        try:
            committed = running.task.commit(self._group)
        except StateflowError as error:
            self._start_again(primary, error)
            return
        running.committed_seconds = self._clock.monotonic_seconds()
        self._memory.note(primary)
        if committed:
            self._starting.committed(primary)
        if running.task.wiring.is_rekeyed and running.task.place is None:  # a cut needs what is in flight
            self._purge.consumed(running.task.committed.needed_next())

    def _start_again(self, primary: TopicPartition, error: StateflowError) -> None:
        """Let go of a task whose epoch is lost, and open it again: here or, if the group has moved on, elsewhere.

        Raises the error when a person must act on it (``StateflowError.is_retriable``).
        """
        if not error.is_retriable:
            raise error
        wiring = self._tasks[primary].task.wiring
        self._abandon(primary)
        self._starting.failed(primary, wiring, error)
        self._open_again(primary, error)

    def _open_again(self, primary: TopicPartition, error: StateflowError) -> None:  # noqa: ARG002 - for others
        """Open a task whose epoch was lost to ``error``; whoever places tasks otherwise may decide otherwise."""
        self._open(primary)

    def _release(self, primary: TopicPartition) -> None:
        running = self._tasks[primary]
        reach("handover.before_commit")
        if self._starting.is_unreachable:  # it would be waited for once per task
            self._abandon(primary)
            return
        try:
            running.task.commit(self._group, complete=True)
        except StateflowError as error:
            if not error.is_retriable:
                raise
            _LOG.warning("Task %s leaves its last epoch to its next owner: %s", running.task.wiring.id, error)
            self._abandon(primary)
            return
        reach("handover.after_commit")
        del self._tasks[primary]
        self._stop_reading(running.task.wiring)
        running.task.close()
        reach("handover.after_close")
        self._tell_released(running.task.wiring)

    def _abandon(self, primary: TopicPartition) -> None:
        running = self._tasks.pop(primary)
        self._stop_reading(running.task.wiring)
        try:
            running.task.abandon()
        except StateflowError as error:
            if not error.is_retriable:
                raise
            _LOG.warning("Task %s was let go of with an error: %s", running.task.wiring.id, error)
        self._tell_released(running.task.wiring)

    def _tell_untimely(self, *, is_last: bool = False) -> None:
        if self._news is not None:
            met = (met for running in self._tasks.values() for met in running.task.untimely.met())
            self._news.turn(met, is_last=is_last)

    def _stop_reading(self, wiring: TaskWiring) -> None:
        self._memory.end(wiring.inputs[0])
        self._silence.end(wiring.inputs)
        self._intake.stop(wiring.inputs)

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
