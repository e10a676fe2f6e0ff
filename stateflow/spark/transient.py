"""Failures of a query that pass by themselves: which they are, and how often the query is started again.

A Python worker that does not connect back within Spark's 10 seconds, an executor that is lost: on a busy machine both
happen, and Spark gives up after a few attempts. The query begins again at its checkpoint, every task at its commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from stateflow import backoff, errors
from stateflow.errors import StateflowError
from stateflow.spark.failure import WORTH_ANOTHER_ATTEMPT

FAILURES_MAX = 6
"""Failures in a row, without anything committed in between, after which the query ends: about a minute."""
_BACK_OFF_SECONDS_FIRST = 1.0
_BACK_OFF_SECONDS_MAX = 30.0
_OF_SPARK = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "Python worker did not connect back in time",
    "ExecutorLostFailure",
    "Executor heartbeat timed out",
    "Executor Process Lost",
    "executor .{0,80} (lost|exited)",
    "Connection reset",
    "Connection refused",
)
_OURS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, StateflowError)
    and (kind.retriable or kind in WORTH_ANOTHER_ATTEMPT)
}
_TRANSIENT = re.compile("|".join([*_OF_SPARK, rf"stateflow\.errors\.({'|'.join(sorted(_OURS))})\b"]))


def cause_of(failure: object) -> str | None:
    """What passes by itself in a query's failure, as one line; None when a person must act."""
    for line in str(failure).splitlines():
        if _TRANSIENT.search(line):
            return line.strip()
    return None


class Restarts:
    """Whether a query may begin again, and after which pause. ``progress`` tells what is committed so far."""

    def __init__(self, progress: Callable[[], object]) -> None:
        self._progress = progress
        self._before: object = None
        self._failures = 0

    def pause_seconds(self) -> float | None:
        """The pause before the next start; None after too many failures without progress."""
        if (now := self._progress()) != self._before:
            self._before, self._failures = now, 0
        self._failures += 1
        if self._failures > FAILURES_MAX:
            return None
        return backoff.pause_seconds(self._failures, _BACK_OFF_SECONDS_FIRST, _BACK_OFF_SECONDS_MAX)
