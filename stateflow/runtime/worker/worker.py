"""The local worker: one group member, its poll loop, and the tasks assigned to it.

The poll thread does four things in turn: serve the group and read, process some of what was read, start tasks that
are restored, commit what is due. A turn is bounded in time, whatever a record takes (``slices``); everything else that
is slow (fencing, restoring, what a commit waits for) happens on a few threads beside it. So the group never waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, GroupConsumer
from stateflow.record import RecordBatch, TopicPartition
from stateflow.runtime.background import OWN_THREADS, Executors
from stateflow.runtime.event_time.idleness import IdleSources
from stateflow.runtime.opening.inline import inline_without
from stateflow.runtime.opening.opening import Opener, StoreOpener
from stateflow.runtime.opening.shared_writers import writers_of
from stateflow.runtime.opening.starting import StartingTasks
from stateflow.runtime.progress.draining import QuietReport
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.snapshots.savepoint_participant import SavepointParticipant
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.closing import LastEpochs
from stateflow.runtime.worker.commit_rounds import CommitEffects, CommitRounds
from stateflow.runtime.worker.commits import Commits, RunningTask
from stateflow.runtime.worker.figures import WorkerNews
from stateflow.runtime.worker.intake import Intake
from stateflow.runtime.worker.memory import TaskMemory
from stateflow.runtime.worker.observing import WorkerObserver
from stateflow.runtime.worker.purge import Purge
from stateflow.runtime.worker.release import TaskRelease
from stateflow.runtime.worker.slices import turn_seconds
from stateflow.runtime.worker.start import Failed, TaskStart
from stateflow.runtime.worker.topic_watch import TopicWatch
from stateflow.runtime.worker.visits import Visits

_LOG = logging.getLogger(__name__)


class Worker:
    """Runs the tasks that the group assigns to it, until ``stop``.

    Not thread-safe except for ``stop``. ``step`` is one turn of the loop: a test drives it by hand.
    """

    def __init__(
        self,
        cluster: Cluster,
        wiring: Wiring,
        open_stores: StoreOpener,
        settings: WorkerSettings,
        clock: Clock,
        observer: WorkerObserver | None = None,
        executors: Executors = OWN_THREADS,
        savepoints: SavepointParticipant | None = None,
        news: WorkerNews | None = None,
    ) -> None:
        self._savepoints, self._news = savepoints, news
        self._settings, self._clock, self._wiring = settings, clock, wiring
        self._turn_seconds = turn_seconds(settings)
        self._primary_topics = wiring.primary_topics()
        self._tasks: dict[TopicPartition, RunningTask] = {}
        self._commits = Commits(settings, clock, executors.commits, observer)
        memory = self._memory = TaskMemory(settings, self._commits)
        self._writers = writers_of(cluster, wiring, settings, clock)
        opener = Opener(cluster, open_stores, settings, clock, observer, self._writers)
        self._starting = StartingTasks(opener, settings, clock, executors.openings)
        requests = executors.requests or inline_without(settings.restore_threads)
        idle = self._idle_sources = IdleSources(cluster, settings.idle_seconds, clock, requests)
        self._visits = Visits(self._tasks, settings, clock)
        self._start = TaskStart(self._tasks, self._visits, memory, idle, observer, clock)
        self._leaving = TaskRelease(self._commits, self._starting, self._writers, memory, idle, observer)
        self._last = LastEpochs(self._tasks, self._starting, settings, clock)
        self.quiet, self._stopping = QuietReport(), False
        self._ends: dict[TopicPartition, int] = {}
        reach("startup.before_join")
        self._group = self._join(cluster)
        self._intake = Intake(self._group, settings, self._commits.sources, clock, wiring)
        self._topics = TopicWatch(cluster, wiring.catalog, clock, requests)
        self._purge = Purge(cluster, settings.purge_interval_seconds, clock, requests)
        effects = CommitEffects(
            memory=memory, starting=self._starting, purge=self._purge, on_news=lambda: self.quiet.say(None)
        )
        self._rounds = CommitRounds(self._visits, self._commits, self._group, effects, settings, clock)

    def _join(self, cluster: Cluster) -> GroupConsumer:
        """Become a member of the application's group."""
        return cluster.group_consumer(
            self._wiring.topology.app, sorted(self._primary_topics), self, member=self._settings.member
        )

    def run(self) -> None:
        """Turn the loop until ``stop``, then commit and close. Any error abandons what is uncommitted."""
        try:
            while not self._stopping:
                self.step()
            self._tell_news(is_last=True)
            reach("stop.before_release")
            self._release_all()
            reach("stop.before_leave")
        finally:
            self.close()

    def stop(self) -> None:
        """Ask ``run`` to commit and return; may be called from a signal handler or another thread."""
        self._stopping = True

    def _release_all(self) -> None:
        """Commit and close all tasks; one whose commit the group refuses, amid a rebalance, does its epoch again."""
        self._last.begin()
        self._release(list(self._tasks))
        while self._last:
            self._poll(0.0 if len(self._intake) else self._settings.poll_timeout_seconds)
            self._last.open()
            self._start_ready()
            self._process_for_a_turn()
            for primary in list(self._tasks):
                if primary in self._tasks:  # another may have cost it its epoch
                    self._advance(primary)
            self._await_commits()
            self._release(self._last.done())

    def end_input(self, ends: Mapping[TopicPartition, int]) -> None:
        """From now on a source partition of which all before this offset is processed has ended, and tasks finish."""
        self._ends = dict(ends)
        for running in self._tasks.values():
            running.ended.clear()

    def step(self) -> None:
        """One turn: poll, process for a while, start what is ready, commit what is due."""
        if self._savepoints is not None:
            self._savepoints.poll()
        self._topics.turn()
        self._visits.begin_turn()
        has_pending_timers = any(each.task.has_pending_timers for each in self._visits.awake.values())
        may_wait = not has_pending_timers and self._intake.first is None
        self._rounds.rest(self._intake)
        self._poll(0.0 if has_pending_timers else self._rounds.poll_seconds)
        self._rounds.pace.polled(len(self._intake), may_wait=may_wait)
        if not (is_idle := self._intake.first is None):
            self.quiet.say(None)
        self._process_for_a_turn()
        self._start_ready()
        if self._writers is not None and self._writers.has_ended:
            self._start_again(self._commits.without_writer(self._tasks))
        for source in self._idle_sources.fallen_idle(self._intake.position, self._commits.sources):
            self._become_idle(source)
        self._visits.wake(map(self._visits.primary_of, self._intake.passed()))
        if self._ends or (self._savepoints is not None and self._savepoints.is_wanted):
            self._visits.wake(self._tasks)
        for primary in self._visits.awake:
            if primary in self._tasks and primary not in self._commits:  # nor has another cost it its epoch
                self._advance(primary)
        self._rounds.begin_due()
        self._rounds.wait_at_leisure(self._intake)
        self._take_outcomes()
        self._visits.end_turn(self._commits.__contains__)
        self._tell_news()
        if self.quiet.listener is not None and is_idle:
            self.quiet.say(len(self._tasks) if self.is_quiet else None)
        self._rounds.pace.turned()

    def _poll(self, timeout_seconds: float) -> None:
        """Serve the group and read. Brokers that do not answer are waited for; the client says so meanwhile."""
        try:
            if self._starting.is_contested:
                self._group.verify_membership()
            self._intake.poll(timeout_seconds)
        except BrokerUnreachable as error:
            _LOG.warning("Waiting for the brokers: %s", error)

    def close(self) -> None:
        """Abandon what is not committed and leave the group; what is still held goes even if a part fails."""
        with ExitStack() as stack:
            if self._news is not None:
                stack.callback(self._news.close)
            for close in (self._topics.close, self._purge.close, self._idle_sources.close, self._group.close):
                stack.callback(close)
            if self._writers is not None:
                stack.callback(self._writers.close)
            stack.callback(self._starting.close)
            stack.callback(self._commits.close)
            stack.callback(self._abandon, list(self._tasks))
            stack.callback(self._start.close)
        reach("stop.after_leave")

    @property
    def tasks(self) -> dict[str, Task]:
        """Running tasks by id."""
        return {running.task.wiring.id: running.task for running in self._tasks.values()}

    @property
    def is_quiet(self) -> bool:
        """True when nothing is left to do here but by new input or by the clock."""
        return not (self.starting or self._intake.first or self._commits) and all(
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
        for primary in () if self._last.is_closing else partitions:
            self._open(primary)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit and close the tasks of these primary partitions before another worker gets them."""
        reach("handover.revoked")
        self._await_commits()
        self._last.cancel(partitions)
        self._release([primary for primary in partitions if primary in self._tasks])

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The partitions are someone else's already: abandon."""
        reach("handover.lost")
        self._commits.lost()
        self._last.cancel(partitions)
        self._abandon([primary for primary in partitions if primary in self._tasks])

    def _open(self, primary: TopicPartition) -> None:
        stage = self._primary_topics[primary.topic]
        self._starting.submit(primary, self._wiring.task(stage, primary.partition))

    def _start_ready(self) -> None:
        """Run the tasks that are opened, once what their last owners left torn is repaired."""
        for primary, opened in self._starting.ready():
            opened.task.context.host_is_stopping = lambda: self._is_in_a_hurry
            self._start.take(primary, opened)
        self._open_after(self._start.run(self._intake, self._commit))

    def _process_for_a_turn(self) -> None:
        """Process what waits, in slices, until nothing does, the turn is over, or the worker is to stop."""
        begun_seconds = now_seconds = self._clock.monotonic_seconds()
        while (source := self._intake.first) is not None and not self._is_in_a_hurry:
            left_seconds = begun_seconds + self._turn_seconds - now_seconds
            if left_seconds <= 0:
                break
            self._process(source, left_seconds)
            self._idle_sources.heard([source])
            while self._commits and self._memory.is_over:
                self._await_commits(self._commits.oldest)
            now_seconds = self._clock.monotonic_seconds()
        self._intake.end_turn()
        self._idle_sources.heard(self._intake.sources)

    @property
    def _is_in_a_hurry(self) -> bool:
        """True between the word to stop and the last commits: nothing more is processed."""
        return self._stopping and not self._last.is_closing

    def _process(self, source: TopicPartition, seconds: float) -> None:
        """Process as many of an input's records as fit into a time, at least one that need not wait for timers."""
        primary = self._visits.primary_of(source)
        assert primary is not None, "what a task has not processed goes with it"
        self._visits.wake([primary])
        running, batch = self._tasks[primary], self._intake.take(seconds)
        keeps_epoch = self._keeps_epoch(primary, lambda: self._process_parts(running, batch))
        if keeps_epoch and self._memory.is_full(primary):
            self._commit([primary])

    def _process_parts(self, running: RunningTask, batch: RecordBatch) -> None:
        """A slice, divided where the task commits its barrier point; what must wait for timers is put back."""
        savepoints = self._savepoints
        parts = [(batch, None)] if savepoints is None else savepoints.divided(running.task, batch)
        for part, barrier_id in parts:
            begun_seconds = self._clock.monotonic_seconds()
            rest = running.task.process(part)
            done = part if rest is None else part.first(len(part) - len(rest))
            self._intake.took(done, self._clock.monotonic_seconds() - begun_seconds)
            if rest is not None:
                self._intake.put_back(batch.since(rest.offsets[0]))
                return
            if barrier_id is not None and savepoints is not None:
                self._make_way(running)
                savepoints.commit_barrier_point(running.task, barrier_id, self._group, running.starts)

    def _become_idle(self, source: TopicPartition) -> None:
        primary = self._visits.primary_of(source)
        if primary is None or primary not in self._tasks:  # something else has just cost it its epoch
            return
        self._visits.wake([primary])
        task = self._tasks[primary].task
        self._keeps_epoch(primary, lambda: task.become_idle(source))

    def _advance(self, primary: TopicPartition) -> None:
        running = self._tasks[primary]
        if not self._keeps_epoch(primary, running.task.advance_time):
            return
        for source in running.task.wiring.inputs:
            running.task.reached(source, self._intake.position(source))
        keeps_epoch = self._keeps_epoch(primary, lambda: self._advance_barriers_and_ends(running))
        if keeps_epoch and self._memory.is_full(primary):
            self._commit([primary])

    def _advance_barriers_and_ends(self, running: RunningTask) -> None:
        """Let the task have part in savepoints, and tell it of inputs that have come to their ends."""
        if self._savepoints is not None:
            if running.claimed is not None and self._savepoints.is_barrier_due(running.task):
                self._make_way(running)
            self._savepoints.take_part(running.task, self._group, running.starts)
        for source in (self._ends.keys() & running.task.wiring.sources) - running.ended:
            if self._intake.position(source) >= self._ends[source]:
                running.task.end_input(source)
                running.ended.add(source)

    def _keeps_epoch(self, primary: TopicPartition, work: Callable[[], object]) -> bool:
        """Do a part of a task's work; False when that cost it its epoch."""
        try:
            work()
        except StateflowError as error:
            self._start_again({primary: error})
            return False
        return True

    def _commit(self, primaries: Sequence[TopicPartition]) -> None:
        self._rounds.begin(primaries)
        self._take_outcomes()

    def _await_commits(self, primaries: Sequence[TopicPartition] | None = None) -> None:
        self._commits.wait_until_written(primaries)
        self._take_outcomes()

    def _take_outcomes(self) -> None:
        """Act on the commits that are written, or have failed."""
        self._start_again(self._rounds.failures())

    def _make_way(self, running: RunningTask) -> None:
        """Before a task commits by itself: nothing of others may be in the transaction. Raises what its own met."""
        if running.claimed is not None:
            self._rounds.begin([running.primary])
        failed = self._rounds.failures()
        own = failed.pop(running.primary, None)
        self._start_again(failed)
        if own is not None:
            raise own

    def _start_again(self, failed: Mapping[TopicPartition, StateflowError]) -> None:
        """Let go of tasks whose epoch is lost, and open them again: here or, if the group has moved on, elsewhere.

        Raises an error that a person must act on (``StateflowError.is_retriable``).
        """
        if not failed:
            return
        for error in failed.values():
            if not error.is_retriable:
                raise error
        gone = {primary: (self._tasks[primary].task.wiring, error) for primary, error in failed.items()}
        self._abandon(list(failed))
        self._open_after(gone)

    def _open_after(self, failed: Failed) -> None:
        for primary, (wiring, error) in failed.items():
            self._starting.failed(primary, wiring, error)
            self._open_again(primary, error)

    def _open_again(self, primary: TopicPartition, error: StateflowError) -> None:  # noqa: ARG002 - for others
        """Open a task whose epoch was lost to ``error``; whoever places tasks otherwise may decide otherwise."""
        self._open(primary)

    def _release(self, primaries: Sequence[TopicPartition]) -> None:
        """Commit and close tasks, before others get them."""
        if not primaries:
            return
        self._await_commits()
        primaries = [primary for primary in primaries if primary in self._tasks]
        for _ in primaries:
            reach("handover.before_commit")
        if self._starting.is_unreachable:  # it would be waited for once per task
            self._abandon(primaries)
            return
        failed = self._rounds.commit_last(primaries)
        leaving = [primary for primary in primaries if primary in failed]
        for primary in leaving:
            self._last.leaves(self._tasks[primary], failed.pop(primary))
        self._abandon(leaving)
        self._start_again(failed)
        closing = [self._tasks.pop(primary) for primary in primaries if primary in self._tasks]
        self._leaving.of_committed(closing, self._intake)

    def _abandon(self, primaries: Sequence[TopicPartition]) -> None:
        self._leaving.without_commit([self._tasks.pop(primary) for primary in primaries], self._intake)

    def _tell_news(self, *, is_last: bool = False) -> None:
        if self._news is not None:
            self._news.turn(self._tasks, self._starting, is_last=is_last)
