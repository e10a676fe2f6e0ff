"""Dropping consumed records from repartition topics, which no retention time ever does."""

from __future__ import annotations

from collections.abc import Mapping

from stateflow.clock import Clock
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition


class Purge:
    """Collects committed positions and trims behind them, all at once, every interval."""

    def __init__(self, cluster: Cluster, interval_seconds: float, clock: Clock) -> None:
        self._cluster = cluster
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._purged_seconds = clock.monotonic_seconds()
        self._consumed: dict[TopicPartition, int] = {}

    def consumed(self, needed_next: Mapping[TopicPartition, int]) -> None:
        """Note before which offsets nothing is needed any more; trims when the interval has passed."""
        self._consumed.update(needed_next)
        now_seconds = self._clock.monotonic_seconds()
        if self._consumed and now_seconds - self._purged_seconds >= self._interval_seconds:
            reach("purge.before")
            self._cluster.trim(self._consumed)
            reach("purge.after")
            self._consumed = {}
            self._purged_seconds = now_seconds
