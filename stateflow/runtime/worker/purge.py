"""Dropping consumed records from repartition topics, which no retention time ever does."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial

from stateflow import backoff
from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.runtime.background import BackgroundRequest

_LOG = logging.getLogger(__name__)

RETRY_SECONDS_MIN = 1.0
RETRY_SECONDS_MAX = 600.0
"""Bounds of the pause after a purge that failed, which doubles each time."""


class Purge:
    """Collects committed positions and trims behind them, all at once, every interval. Used by one thread alone.

    Housekeeping: nobody waits for a trim, and one that fails is warned about and tried again later, with what was
    consumed until then. Until it succeeds the topics keep more than they need, and nothing else is wrong.
    ``requests`` takes the place of the thread that trims.
    """

    def __init__(
        self, cluster: Cluster, interval_seconds: float, clock: Clock, requests: Executor | None = None
    ) -> None:
        self._cluster = cluster
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._next_seconds = clock.monotonic_seconds() + interval_seconds
        self._failures = 0
        self._consumed: dict[TopicPartition, int] = {}
        self._request = BackgroundRequest[None]("purge", requests)
        self._trimming: dict[TopicPartition, int] = {}
        """What the trim that is under way drops."""

    def consumed(self, needed_next: Mapping[TopicPartition, int]) -> None:
        """Note before which offsets nothing is needed any more."""
        self._consumed.update(needed_next)
        self.turn()

    def turn(self) -> None:
        """Take note of a trim that is over, and begin one when the interval has passed; to be called now and then."""
        self._take_note()
        if self._consumed and not self._request.is_under_way and self._is_due:
            reach("purge.before")
            self._trimming = dict(self._consumed)
            self._request.begin(partial(self._cluster.trim, self._trimming))
            self._take_note()

    @property
    def _is_due(self) -> bool:
        return self._clock.monotonic_seconds() >= self._next_seconds

    def _take_note(self) -> None:
        if self._request.is_over:
            pause_seconds = self._trimmed()
            reach("purge.after")
            self._next_seconds = self._clock.monotonic_seconds() + pause_seconds

    def close(self) -> None:
        """Trim no more. One under way is waited for: no request of a worker that has ended may meet other topics."""
        self._request.close(waits=True)

    def _trimmed(self) -> float:
        """What has become of a trim; the seconds until the next one."""
        try:
            self._request.take()
        except StateflowError as error:
            self._failures += 1
            first_seconds = max(self._interval_seconds, RETRY_SECONDS_MIN)
            longest_seconds = max(self._interval_seconds, RETRY_SECONDS_MAX)
            pause_seconds = backoff.pause_seconds(self._failures, first_seconds, longest_seconds)
            _LOG.warning(
                "Consumed records of %s could not be purged; next attempt in %.0f s: %s",
                ", ".join(sorted({source.topic for source in self._trimming})),
                pause_seconds,
                error,
            )
            return pause_seconds
        self._failures = 0
        self._consumed = {
            place: needed_next
            for place, needed_next in self._consumed.items()
            if needed_next != self._trimming.get(place)
        }
        return self._interval_seconds
