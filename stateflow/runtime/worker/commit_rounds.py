"""When the tasks of a worker commit, and what a commit that is over means for the rest of it.

The commits themselves, and the threads that write them, are in ``commits``; what is lost by one that failed is the
worker's to open again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import GroupConsumer
from stateflow.record import TopicPartition
from stateflow.runtime.opening.starting import StartingTasks
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.commits import COMMITS_AT_A_TIME_MAX, Commits, RunningTask
from stateflow.runtime.worker.intake import Intake
from stateflow.runtime.worker.memory import TaskMemory
from stateflow.runtime.worker.pace import CommitPace
from stateflow.runtime.worker.purge import Purge
from stateflow.runtime.worker.visits import Visits


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEffects:
    """What of a worker beside its tasks a commit matters to."""

    memory: TaskMemory
    """Counts anew what a task holds."""
    starting: StartingTasks
    """Forgets the failures of a task that has committed."""
    purge: Purge
    """Deletes what nobody needs from here on."""
    on_news: Callable[[], None]
    """Called before a commit that tells others anything."""


class CommitRounds:
    """Begins the commits of the tasks that ``visits`` knows. Used by the poll thread alone."""

    def __init__(
        self,
        visits: Visits,
        commits: Commits,
        group: GroupConsumer,
        effects: CommitEffects,
        settings: WorkerSettings,
        clock: Clock,
    ) -> None:
        self._tasks = visits.tasks
        self._visits = visits
        self._commits = commits
        self._group = group
        self._effects = effects
        self._poll_timeout_seconds = settings.poll_timeout_seconds
        self._clock = clock
        self.pace = CommitPace(settings, clock)

    def begin_due(self) -> None:
        """Flush what is due, and begin to commit the tasks that are, those first that have waited longest."""
        self._effects.purge.turn()
        now_seconds = self._clock.monotonic_seconds()
        free = {p: running for p, running in self._visits.awake.items() if p not in self._commits}
        if self._visits.is_round:  # then all tasks are awake
            self._commits.flush(free.values(), now_seconds)
        most = max(0, COMMITS_AT_A_TIME_MAX - len(self._commits))
        self.begin(self.pace.due(free, now_seconds)[:most])

    def begin(self, primaries: Sequence[TopicPartition]) -> None:
        """Begin to commit tasks, and those that share a writer with them."""
        self._visits.wake(primaries)
        tasks = self._commits.sharing(primaries, self._visits.awake)  # who rests has nothing to commit
        if not all(running.task.is_quiet for running in tasks.values()):
            self._effects.on_news()
        self.pace.began(tasks.values())
        self._commits.begin(tasks, self._group)

    def commit_last(self, primaries: Sequence[TopicPartition]) -> dict[TopicPartition, StateflowError]:
        """Commit tasks that are let go of, and those that share a writer with them; what could not be, and why.

        Raises what a person must act on.
        """
        failed: dict[TopicPartition, StateflowError] = {}
        tasks = self._commits.sharing(primaries, self._tasks)
        self.pace.began(tasks.values())
        self._commits.begin(tasks, self._group, complete=primaries)
        self._commits.wait_until_written()
        for primary, outcome in self._commits.outcomes(self._group):
            if isinstance(outcome, StateflowError):
                failed[primary] = outcome
                if not outcome.is_retriable:
                    raise outcome
            elif primary in primaries:
                reach("handover.after_commit")
            else:
                self.committed(primary, is_new=outcome)
        return failed

    @property
    def poll_seconds(self) -> float:
        """How long a poll may wait for input: no longer than until a commit may come early."""
        free = (running for p, running in self._visits.awake.items() if p not in self._commits)
        return min(self._poll_timeout_seconds, self.pace.seconds_to_wait(free))

    def rest(self, intake: Intake) -> None:
        """Let records gather whose results nobody could see before the next commit, while nothing waits for a turn."""
        if len(intake) or self._commits or self._has_timers_due():
            return
        free = [running for p, running in self._visits.awake.items() if p not in self._commits]
        if (seconds := min(self._poll_timeout_seconds, self.pace.rest_seconds(free))) > 0:
            self._clock.pause(seconds)

    def wait_at_leisure(self, intake: Intake) -> None:
        """A worker with nothing else to do waits a while for the commits in flight."""
        if self._commits and intake.first is None and not self._has_timers_due():
            self._commits.wait_a_while(self._poll_timeout_seconds, for_all=not len(intake))

    def _has_timers_due(self) -> bool:
        free = (running for p, running in self._visits.awake.items() if p not in self._commits)
        return any(running.task.has_pending_timers for running in free)

    def failures(self) -> dict[TopicPartition, StateflowError]:
        """Take note of the commits that are written; what could not be committed, and why."""
        failed: dict[TopicPartition, StateflowError] = {}
        ended: list[RunningTask] = []
        for primary, outcome in self._commits.outcomes(self._group):
            if outcome is not False:
                ended.append(self._tasks[primary])
            if isinstance(outcome, StateflowError):
                failed[primary] = outcome
            else:
                self.committed(primary, is_new=outcome)
        self.pace.ended(ended, self._commits.take_cpu_seconds())
        return failed

    def committed(self, primary: TopicPartition, *, is_new: bool) -> None:
        """A task stands at its commit, which was ``is_new`` or would have changed nothing."""
        running = self._tasks[primary]
        running.committed_seconds = self._clock.monotonic_seconds()
        if is_new:
            running.commits_total += 1
            running.commit_seconds_total += running.committed_seconds - running.commit_begun_seconds
        self._effects.memory.note(primary)
        if is_new:
            self._effects.starting.committed(primary)
        if running.task.wiring.is_rekeyed and running.task.barrier_point is None:  # else a savepoint reads it
            self._effects.purge.consumed(running.task.committed.needed_next())
