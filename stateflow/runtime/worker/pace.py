"""When a worker commits before the commit interval is over: in time that it would otherwise only have waited.

Under exactly-once nobody sees an output before its commit, so the interval is what a result is late by. Commits cost
time, though, which a worker under load does not have: every one takes some milliseconds, however little is in it. So
what counts is the time in which the poll thread had nothing to do. When that is longer than the last commits took, or
than a quarter of it where ``commit_interval_min_seconds`` is set, the next may come early. A worker that is behind its
input never waits, and keeps the whole interval; one with many tasks, or on a busy machine, needs longer for a commit,
and commits less often.

Early commits also cost CPU, and each about as much with one record as with a hundred. So all of them together may take
a tenth of a core, or half of one where that is set: many tasks commit less often, and in rounds. What is
processed between two rounds nobody can see before the next one. So under exactly-once a worker that keeps up with its
input *rests* between its turns, and finds several records of a task in the place of one: a batch costs some hundred
microseconds beside its records.

Tasks that nobody waits for keep the interval, with one exception: what a worker was behind with is committed when it
has caught up, once, as state that is behind is what queries, standby copies and restarts have to wait for. Commits
under load are dear, and would have used up the share of CPU; so once in an interval this one may come without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from stateflow.clock import Clock
from stateflow.record import TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.commits import RunningTask

_WAITED_PER_COMMIT, _WAITED_PER_COMMIT_IF_SET = 1.0, 0.25
"""Early commits take half of the time that would otherwise be waited, at most; four fifths where
``commit_interval_min_seconds`` is set."""
_PARTS, _LEAST_SECONDS = 20, 0.05
"""By default commits come no more often than a twentieth of the interval after one another, nor than this."""
_CPU_SHARE, _CPU_SHARE_IF_SET = 0.1, 0.5
"""Of a core, which early commits take at most, all tasks together; the second where that is set."""
_CPU_PER_THREAD_CPU = 1.5
"""A commit takes the client's threads and the poll thread as much again as the thread that writes it. But half of the
latter is for the changes in it, which a later commit would have had to write as well."""
_TURNS_PER_INTERVAL = 4
_BEHIND_SECONDS, _WAIT_SECONDS_MIN = 0.1, 0.001
"""A worker that has not waited for so long was behind its input; shorter waits than the second are none."""
_FULL_POLLS = 10
"""A poll that brings this part of the most that it may bring has not waited: there was more than it could be given."""


class CommitPace:
    """Weighs what commits take against the time that is waited. Used by the poll thread alone; seconds of ``clock``."""

    def __init__(self, settings: WorkerSettings, clock: Clock) -> None:
        self._clock = clock
        self._interval_seconds = settings.commit_interval_seconds
        least_seconds = settings.commit_interval_min_seconds
        is_set = least_seconds is not None
        self._cpu_share = _CPU_SHARE_IF_SET if is_set else _CPU_SHARE
        self._waited_per_commit = _WAITED_PER_COMMIT_IF_SET if is_set else _WAITED_PER_COMMIT
        self._min_seconds = self._interval_seconds
        if settings.commit_mode != "paranoid":  # there each commit takes another producer
            least_seconds = least_seconds or max(_LEAST_SECONDS, self._interval_seconds / _PARTS)
            self._min_seconds = min(least_seconds, self._interval_seconds)
        self._records_waited_for_max = max(1, settings.poll_records_max // _FULL_POLLS)
        self._waiting_since: float | None = None
        self._waited_seconds = 0.0
        self._commit_seconds = 0.0
        self._early_from = float("-inf")
        """When early commits have their share of CPU again."""
        self._turn_seconds_min = min(
            settings.poll_timeout_seconds, self._interval_seconds / _TURNS_PER_INTERVAL
        )
        if is_set:  # a rest that begins right behind a commit waits for none
            self._turn_seconds_min = min(self._turn_seconds_min, self._min_seconds)
        self._may_rest = False
        """Whether the last poll has brought records, and fewer than there was room for."""
        self._turn_began_seconds = self._busy_since = clock.monotonic_seconds()
        self._caught_up_seconds = float("-inf")
        """When the poll thread last waited after it had been behind."""
        self._excepted_seconds = float("-inf")
        """The latest of these times whose commits are exempt from the CPU share: at most one per interval."""

    def turned(self) -> None:
        """A turn of the loop is over: what follows until ``polled`` is waiting."""
        self._waiting_since = self._clock.monotonic_seconds()

    def polled(self, records: int, *, may_wait: bool) -> None:
        """So many records are there to be processed, after a poll that waited for the first if it might wait."""
        since, self._waiting_since = self._waiting_since, None
        self._turn_began_seconds = now_seconds = self._clock.monotonic_seconds()
        self._may_rest = 0 < records <= self._records_waited_for_max
        if since is not None and may_wait and records <= self._records_waited_for_max:
            self._waited_seconds += now_seconds - since
            if now_seconds - since >= _WAIT_SECONDS_MIN:
                if since - self._busy_since >= _BEHIND_SECONDS:
                    self._caught_up_seconds = since
                    if since - self._excepted_seconds >= self._interval_seconds:
                        self._excepted_seconds = since
                self._busy_since = now_seconds

    def began(self, tasks: Iterable[RunningTask]) -> None:
        """The commits of these tasks begin."""
        now_seconds = self._clock.monotonic_seconds()
        for running in tasks:
            running.commit_begun_seconds = now_seconds

    def ended(self, tasks: Sequence[RunningTask], cpu_seconds: float = 0.0) -> None:
        """The commits of these tasks are over, with something in them. They use up what was waited.

        ``cpu_seconds`` is what the threads that wrote them have taken.
        """
        if tasks:
            now_seconds = self._clock.monotonic_seconds()
            begun_seconds = min(running.commit_begun_seconds for running in tasks)
            self._commit_seconds = (self._commit_seconds + now_seconds - begun_seconds) / 2
            self._waited_seconds = 0.0
            earned_seconds = cpu_seconds * _CPU_PER_THREAD_CPU / self._cpu_share
            early_from = max(self._early_from, begun_seconds) + earned_seconds
            self._early_from = min(early_from, now_seconds + self._interval_seconds)

    def due(self, tasks: Mapping[TopicPartition, RunningTask], now_seconds: float) -> list[TopicPartition]:
        """The tasks that should commit now, those first that have waited longest."""
        wanted = self._due_early(tasks, now_seconds)
        due = [
            primary
            for primary, running in tasks.items()
            if primary in wanted or now_seconds - running.committed_seconds >= self._interval_seconds
        ]
        return sorted(due, key=lambda primary: tasks[primary].committed_seconds)

    def _due_early(
        self, tasks: Mapping[TopicPartition, RunningTask], now_seconds: float
    ) -> set[TopicPartition]:
        """Tasks that commit before their interval is over: when the first of them may, those that soon might, too."""
        has_time = self._waited_seconds > self._waited_per_commit * self._commit_seconds
        if not has_time or self._min_seconds >= self._interval_seconds:
            return set()
        ages = {
            primary: now_seconds - running.committed_seconds
            for primary, running in tasks.items()
            if self._is_wanted(running) and now_seconds >= self._early_seconds(running)
        }
        if max(ages.values(), default=0.0) < self._min_seconds:
            return set()
        return {primary for primary, age in ages.items() if age >= self._min_seconds / 2}

    def seconds_to_wait(self, tasks: Iterable[RunningTask]) -> float:
        """After so long without input one of these tasks may commit early; infinite if none may."""
        now_seconds = self._clock.monotonic_seconds()
        due = (
            max(run.committed_seconds + self._min_seconds, self._early_seconds(run))
            for run in tasks
            if self._is_wanted(run)
        )
        missing_seconds = self._waited_per_commit * self._commit_seconds - self._waited_seconds
        least_seconds = max(_WAIT_SECONDS_MIN, missing_seconds)
        return max(least_seconds, min(due, default=float("inf")) - now_seconds)

    def rest_seconds(self, tasks: Collection[RunningTask]) -> float:
        """How long to let records gather before the next poll, ``tasks`` being those that may have changes."""
        if not self._may_rest or any(run.task.wiring.guarantee != "exactly-once" for run in tasks):
            return 0.0
        since_seconds = self._clock.monotonic_seconds() - self._turn_began_seconds
        return max(0.0, min(self._turn_seconds_min - since_seconds, self.seconds_to_wait(tasks)))

    def _early_seconds(self, running: RunningTask) -> float:
        """When a commit of this task may come early, as far as CPU is concerned."""
        is_excepted = running.committed_seconds < self._excepted_seconds
        return self._excepted_seconds if is_excepted else self._early_from

    def _is_wanted(self, running: RunningTask) -> bool:
        """Whether a task should commit before its interval is over, if there is time."""
        return running.task.is_awaited or running.committed_seconds < self._caught_up_seconds
