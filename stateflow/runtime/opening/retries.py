"""When a task that lost its epoch, or could not be opened, is opened again: with back-off, for as long as it takes.

Errors that a person must act on are raised. The others are waited for without a limit in number where the cause lies
outside the task: brokers that do not answer, a producer or member that was replaced, a directory that another process
of this machine has not released yet. Where the cause may be the task's own, the number is limited.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import Random

import msgspec

from stateflow import backoff
from stateflow.clock import Clock
from stateflow.errors import (
    BrokerRefused,
    BrokerUnreachable,
    MembershipLost,
    ProducerFenced,
    StateCorrupt,
    StateflowError,
    StateLocked,
    TransactionAborted,
)
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)

PAUSE_SECONDS_MIN = 0.5
PAUSE_SECONDS_MAX = 30.0
"""Bounds of the pause before the next attempt, which doubles each time; up to half of it is left out at random."""
LOCKED_SECONDS_MAX = 5.0
"""The longest pause for a lock: to look at one costs little, and its holder may be about to release it."""
ABORTS_MAX = 20
"""Transactions of a task that may be aborted in a row, without a commit between and not for lack of an answer."""
DAMAGES_MAX = 3
"""How often in a row a task's store may turn out damaged: more is a disk that fails."""
_FORGET_SECONDS = 300.0
"""A task that has not failed for so long since it was opened begins to count anew."""
_CONTESTED_SECONDS = 15.0
_NO_MEMBER = ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID")
_SAY_SECONDS = 60.0
_SHOWN_MAX = 3


class WaitingTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that does not run, and is opened again after a pause."""

    task: str
    since_ms: int
    """When it first failed, by this machine's clock."""
    attempts: int
    """How often it has failed since."""
    error: str
    """The kind of the last failure: a name of ``stateflow.errors``."""
    message: str
    action: str


@dataclass(slots=True)
class _Failing:
    """A task that has failed. It keeps no exception: its traceback would keep the closed stores open."""

    task: str
    since_seconds: float
    since_ms: int
    attempts: int = 0
    aborts: int = 0
    damages: int = 0
    next_seconds: float = 0.0
    is_unreachable: bool = False
    is_contested: bool = False
    said: str = ""
    last: WaitingTask | None = None


class Retries:
    """Primary input → how its task has failed lately. Used by the poll thread alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failing: dict[TopicPartition, _Failing] = {}
        self._said_seconds = float("-inf")

    def failed(self, primary: TopicPartition, task: str, error: StateflowError) -> None:
        """Note that a task was let go of, or not opened, for this error; decide when it may be opened again.

        Raises the error when a person must act on it, ``BrokerRefused`` or ``StateCorrupt`` when one that may pass has
        come too often.
        """
        if not error.is_retriable:
            raise error
        now_seconds = self._clock.monotonic_seconds()
        failing = self._failing.get(primary)
        if failing is None or now_seconds - failing.next_seconds > _FORGET_SECONDS:
            failing = self._failing[primary] = _Failing(task, now_seconds, self._clock.now_ms())
        failing.attempts += 1
        failing.is_unreachable = isinstance(error, BrokerUnreachable)
        failing.is_contested = _tells_of_another_owner(error)
        _check_limits(failing, error)
        pause_seconds = _pause_seconds(failing, error)
        failing.next_seconds = now_seconds + pause_seconds
        failing.last = WaitingTask(
            task=task,
            since_ms=failing.since_ms,
            attempts=failing.attempts,
            error=type(error).__name__,
            message=error.message,
            action=error.action,
        )
        self._say(failing, error, now_seconds, pause_seconds)

    def waiting(self, primary: TopicPartition) -> WaitingTask | None:
        """What the task has met that is not running yet; None if it is opened for the first time."""
        failing = self._failing.get(primary)
        return None if failing is None else failing.last

    def may_open(self, primary: TopicPartition) -> bool:
        """True unless the pause after the last failure is not over."""
        failing = self._failing.get(primary)
        return failing is None or self._clock.monotonic_seconds() >= failing.next_seconds

    def committed(self, primary: TopicPartition) -> None:
        """The task goes on: what it has met is over."""
        failing = self._failing.pop(primary, None)
        if failing is not None and failing.attempts > 1:
            seconds = self._clock.monotonic_seconds() - failing.since_seconds
            _LOG.warning("Task %s goes on after %.0f s.", failing.task, seconds)

    def forget(self, primary: TopicPartition) -> None:
        """The task is another worker's from here on."""
        self._failing.pop(primary, None)

    @property
    def is_unreachable(self) -> bool:
        """True while a task waits for brokers that do not answer."""
        now_seconds = self._clock.monotonic_seconds()
        return any(f.is_unreachable and now_seconds < f.next_seconds for f in self._failing.values())

    @property
    def is_contested(self) -> bool:
        """True while a task has long been failing as if another worker had it: is this one still a member?"""
        now_seconds = self._clock.monotonic_seconds()
        return any(
            failing.is_contested and now_seconds - failing.since_seconds > _CONTESTED_SECONDS
            for failing in self._failing.values()
        )

    def _say(
        self, failing: _Failing, error: StateflowError, now_seconds: float, pause_seconds: float
    ) -> None:
        """Each new kind of failure of a task at once; that it lasts once a minute, for all tasks together."""
        kind = type(error).__name__
        if failing.said != kind:
            failing.said = kind
            _LOG.warning(
                "Task %s starts again from its last commit in %.1f s: %s",
                failing.task,
                pause_seconds,
                error.message,
            )
            return
        if now_seconds - self._said_seconds < _SAY_SECONDS:
            return
        self._said_seconds = now_seconds
        waiting = [each for each in self._failing.values() if now_seconds < each.next_seconds]
        names = ", ".join(each.task for each in waiting[:_SHOWN_MAX])
        more = f" and {len(waiting) - _SHOWN_MAX} more tasks" if len(waiting) > _SHOWN_MAX else ""
        _LOG.warning(
            "Not running: %s%s, for %.0f s now; next attempt in %.0f s. The last one met: %s",
            names or failing.task,
            more,
            now_seconds - min(each.since_seconds for each in waiting or [failing]),
            pause_seconds,
            error.message,
        )


def _tells_of_another_owner(error: StateflowError) -> bool:
    if isinstance(error, TransactionAborted):
        return error.fields.get("code") in _NO_MEMBER
    return isinstance(error, (ProducerFenced, MembershipLost, StateLocked))


def _check_limits(failing: _Failing, error: StateflowError) -> None:
    if isinstance(error, StateCorrupt):
        failing.damages += 1
        if failing.damages >= DAMAGES_MAX:
            raise error
    if isinstance(error, TransactionAborted) and not error.fields.get("passing"):
        failing.aborts += 1
        if failing.aborts >= ABORTS_MAX:
            raise BrokerRefused(
                f"{failing.aborts} transactions of task {failing.task} were aborted in a row: {error.message}",
                action="look at the broker's log for the cause; nothing of them is visible, and the task goes on from"
                " its last commit when it is started again.",
                task=failing.task,
                **error.fields,
            ) from error


def _pause_seconds(failing: _Failing, error: StateflowError) -> float:
    """The pause before the next attempt: none after the first loss of an epoch that concerns nobody else.

    Whoever was fenced does wait: the group may be about to say that the task is another member's.
    """
    is_own = isinstance(error, (TransactionAborted, MembershipLost, StateCorrupt))
    if failing.attempts == 1 and is_own:
        return 0.0
    longest = LOCKED_SECONDS_MAX if isinstance(error, StateLocked) else PAUSE_SECONDS_MAX
    # Seeded with what tells tasks apart, so that they spread out and a simulation can be repeated.
    lots = Random(f"{failing.task} {failing.attempts}")  # noqa: S311 - nobody gains by guessing it
    return backoff.pause_seconds(failing.attempts, PAUSE_SECONDS_MIN, longest) * lots.uniform(0.5, 1.0)
