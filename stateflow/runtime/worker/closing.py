"""Epochs whose last commit the group refused while the worker was being stopped, and which are done again.

A commit proves the membership of the group's present generation. The group may move on to the next one between that
proof and the request, while the member has not heard of it: brokers refuse the offsets then, and the client library
aborts the transaction. The member still owns the partitions that the next generation leaves to it. So the close takes
part in the rebalance, opens their tasks again, reads what the lost epoch had read, and commits that.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from stateflow.clock import Clock
from stateflow.errors import MembershipLost, StateflowError, TransactionAborted
from stateflow.record import TopicPartition
from stateflow.runtime.opening.starting import StartingTasks
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.commits import RunningTask

_LOG = logging.getLogger(__name__)

REDO_SECONDS_MAX = 30.0
"""A close takes no longer for this. The supervisor waits for 60 s, commits included, before it kills a worker."""
REFUSALS_MAX = 3
"""So often the last commit of a task may be refused: a group that never comes to rest is left."""
_PUT_OUT = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "_FATAL")
"""How a group answers a member that it has put out, and the client library once it was told so: that member is not
accepted again. A process that has taken its name, or whoever got its partitions, does what it has done."""


@dataclass(slots=True)
class _Epoch:
    """What a task had done when its last commit was refused."""

    wiring: TaskWiring
    offsets: Mapping[TopicPartition, int]
    is_opening: bool = False

    def is_reached(self, running: RunningTask) -> bool:
        """Whether the task has done as much again."""
        offsets = running.task.offsets
        return all(offsets.get(source, 0) >= offset for source, offset in self.offsets.items())


class LastEpochs:
    """The tasks that a closing worker opens once more. Used by the poll thread alone."""

    def __init__(
        self,
        tasks: Mapping[TopicPartition, RunningTask],
        starting: StartingTasks,
        settings: WorkerSettings,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._starting = starting
        self._wait_seconds = settings.poll_timeout_seconds
        self._clock = clock
        self._epochs: dict[TopicPartition, _Epoch] = {}
        self._refusals: Counter[TopicPartition] = Counter()
        self._gone: set[TopicPartition] = set()
        self._until_seconds: float | None = None
        self._has_begun = False
        """Whether anything was opened again."""
        self.is_kept: Callable[[TopicPartition], bool] = lambda _: True
        """Whether a task may be opened again here, for whoever places tasks otherwise than the group does."""

    def begin(self) -> None:
        """The worker is being stopped: from now on refused epochs are noted."""
        self._until_seconds = self._clock.monotonic_seconds() + REDO_SECONDS_MAX

    @property
    def is_closing(self) -> bool:
        """True from ``begin`` on."""
        return self._until_seconds is not None

    def __bool__(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self._epochs)

    def leaves(self, running: RunningTask, error: StateflowError) -> None:
        """The commit of a task that is let go of has failed: note the epoch, or leave it to the next owner."""
        primary, task = running.primary, running.task
        self._refusals[primary] += 1
        is_spent = not self.is_closing or self._is_late or self._refusals[primary] >= REFUSALS_MAX
        if is_spent or primary in self._gone or not _is_left_with_the_member(error):
            _LOG.warning("Task %s leaves its last epoch to its next owner: %s", task.wiring.id, error)
        else:
            self._epochs[primary] = _Epoch(task.wiring, dict(task.offsets))

    def cancel(self, partitions: Iterable[TopicPartition]) -> None:
        """These are other members' from here on: what is being opened of them is given up."""
        for primary in partitions:
            self._gone.add(primary)
            self._forget(primary)
            self._starting.cancel(primary)

    def open(self) -> None:
        """Open the tasks that are the member's, as far as it has heard of the group, and wait a while for it.

        What was being opened when the worker was stopped is given up first.
        """
        if not self._has_begun:
            self._has_begun = True
            self._starting.cancel_all()
        for primary, epoch in list(self._epochs.items()):
            is_there = primary in self._tasks or self._starting.is_opening(primary)
            is_over = not is_there and (epoch.is_opening or self._is_late)
            if is_over or not self.is_kept(primary):
                self._forget(primary)
                self._starting.cancel(primary)
            elif not epoch.is_opening:
                _LOG.info("Task %s is opened again to commit what it has done.", epoch.wiring.id)
                epoch.is_opening = True
                self._starting.submit(primary, epoch.wiring)
        self._starting.wait_a_while(self._wait_seconds)

    def done(self) -> list[TopicPartition]:
        """Tasks that stand where they stood, or have run out of time: what they have done is to be committed."""
        running = {primary: self._tasks[primary] for primary in self._epochs if primary in self._tasks}
        done = [p for p, each in running.items() if self._is_late or self._epochs[p].is_reached(each)]
        for primary in done:
            del self._epochs[primary]
        return done

    @property
    def _is_late(self) -> bool:
        return self._until_seconds is not None and self._clock.monotonic_seconds() >= self._until_seconds

    def _forget(self, primary: TopicPartition) -> None:
        epoch = self._epochs.pop(primary, None)
        if epoch is not None and primary not in self._tasks:
            _LOG.warning("Task %s leaves its last epoch to its next owner.", epoch.wiring.id)


def _is_left_with_the_member(error: StateflowError) -> bool:
    """False where others own the task, or will, and where it does not help to wait for the group."""
    is_put_out = error.fields.get("code") in _PUT_OUT
    return isinstance(error, (TransactionAborted, MembershipLost)) and not is_put_out
