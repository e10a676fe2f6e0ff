"""Which tasks a turn of the loop visits: those that may have something to do. The others cost it nothing.

A task rests when its last visit has left nothing: no timer that is due, nothing to commit, nothing that others have not
been told, no part in a savepoint. Records wake it, an input that is read further without any, as behind a marker, and
whatever the worker tells it. Stages that do something by the clock alone never rest (``Step.needs_turns``). Once in a
while all are looked at, for what may be a little late: warnings, flushes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stateflow.clock import Clock
from stateflow.record import TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.commits import RunningTask

_ROUND_SECONDS = 1.0
"""Between two looks at all tasks."""


class Visits:
    """Keeps those of ``tasks`` apart that are awake; others add to them and take from them. The poll thread's alone."""

    def __init__(
        self, tasks: Mapping[TopicPartition, RunningTask], settings: WorkerSettings, clock: Clock
    ) -> None:
        self.tasks = tasks
        self._interval_seconds = settings.commit_interval_seconds
        self._clock = clock
        self._awake: dict[TopicPartition, None] = {}
        self._readers: dict[TopicPartition, TopicPartition] = {}
        """Further input → the primary input of the task that was found to read it."""
        self._round_seconds = float("-inf")
        self.is_round = True
        """Whether this turn looks at all tasks."""

    def begin_turn(self) -> None:
        """Another turn of the loop."""
        now_seconds = self._clock.monotonic_seconds()
        self.is_round = now_seconds - self._round_seconds >= _ROUND_SECONDS
        if self.is_round:
            self._round_seconds = now_seconds
            self.wake(self.tasks)

    def wake(self, primaries: Iterable[TopicPartition | None]) -> None:
        """Something happens to these tasks; what is none is passed over.

        One that rested is as if it had committed nothing at each interval.
        """
        for primary in primaries:
            if primary is None or primary in self._awake or primary not in self.tasks:
                continue
            self._awake[primary] = None
            running = self.tasks[primary]
            if self._interval_seconds:
                since_seconds = self._clock.monotonic_seconds() - running.committed_seconds
                running.committed_seconds += since_seconds // self._interval_seconds * self._interval_seconds

    def primary_of(self, source: TopicPartition) -> TopicPartition | None:
        """The primary input of the running task that reads this one."""
        if source in self.tasks:
            return source
        primary = self._readers.get(source)
        if primary is None or primary not in self.tasks:
            found = (primary for primary, each in self.tasks.items() if source in each.task.wiring.inputs)
            primary = next(found, None)
            if primary is not None:
                self._readers[source] = primary
        return primary

    def rest(self, primary: TopicPartition) -> None:
        """Do not visit a task again before it is woken."""
        self._awake.pop(primary, None)

    @property
    def awake(self) -> dict[TopicPartition, RunningTask]:
        """The tasks to visit, as they are now."""
        return {primary: self.tasks[primary] for primary in self._awake if primary in self.tasks}

    def end_turn(self, is_busy: Callable[[TopicPartition], bool]) -> None:
        """Let those rest that were visited and have nothing to do, unless a commit of them is in flight."""
        for primary in list(self._awake):
            running = self.tasks.get(primary)
            if running is None or (not is_busy(primary) and running.has_nothing_to_do):
                self.rest(primary)
