"""Dropping consumed records from repartition topics, which no retention time ever does."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from stateflow import backoff
from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)

RETRY_SECONDS_MIN = 1.0
RETRY_SECONDS_MAX = 600.0
"""Bounds of the pause after a purge that failed, which doubles each time."""


class Purge:
    """Collects committed positions and trims behind them, all at once, every interval.

    Housekeeping: one that fails is warned about and tried again later, with what was consumed until then. Until it
    succeeds the topics keep more than they need, and nothing else is wrong.
    """

    def __init__(self, cluster: Cluster, interval_seconds: float, clock: Clock) -> None:
        self._cluster = cluster
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._next_seconds = clock.monotonic_seconds() + interval_seconds
        self._failures = 0
        self._consumed: dict[TopicPartition, int] = {}

    def consumed(self, needed_next: Mapping[TopicPartition, int]) -> None:
        """Note before which offsets nothing is needed any more; trims when the interval has passed."""
        self._consumed.update(needed_next)
        if self._consumed and self._clock.monotonic_seconds() >= self._next_seconds:
            reach("purge.before")
            pause_seconds = self._trim()
            reach("purge.after")
            self._next_seconds = self._clock.monotonic_seconds() + pause_seconds

    def _trim(self) -> float:
        """Trim; returns the seconds until the next time."""
        try:
            self._cluster.trim(self._consumed)
        except StateflowError as error:
            self._failures += 1
            first_seconds = max(self._interval_seconds, RETRY_SECONDS_MIN)
            longest_seconds = max(self._interval_seconds, RETRY_SECONDS_MAX)
            pause_seconds = backoff.pause_seconds(self._failures, first_seconds, longest_seconds)
            _LOG.warning(
                "Consumed records of %s could not be purged; next attempt in %.0f s: %s",
                ", ".join(sorted({source.topic for source in self._consumed})),
                pause_seconds,
                error,
            )
            return pause_seconds
        self._failures = 0
        self._consumed = {}
        return self._interval_seconds
