"""Source partitions that have nothing to give for now: silent for long, and read to their ends.

Silence alone says nothing: while a slow batch of one partition is processed, the records of another wait unread. So
once a partition has been silent for ``idle_seconds`` the cluster is asked where its log ends *now*, and only a worker
that has read up to there calls it idle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)

_ASK_SECONDS = 1.0
"""Time between two looks at the end of a partition that is silent without being at its end."""
_ASK_UNREACHABLE_SECONDS = 30.0
"""The same while no broker answers: the poll thread waits for the answer."""


@dataclass(slots=True)
class _Source:
    heard_seconds: float
    ask_seconds: float = float("-inf")
    """Not asked for its end again before then."""
    is_idle: bool = False


class IdleSources:
    """When each source partition that a worker reads was last heard, and which of them are idle."""

    def __init__(self, cluster: Cluster, idle_seconds: float, clock: Clock) -> None:
        self._cluster = cluster
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._sources: dict[TopicPartition, _Source] = {}

    def begin(self, sources: Iterable[TopicPartition]) -> None:
        """A task reads these from now on; they are awake, whatever they were for its predecessor."""
        now_seconds = self._clock.monotonic_seconds()
        self._sources.update((source, _Source(now_seconds)) for source in sources)

    def end(self, sources: Iterable[TopicPartition]) -> None:
        """They are not read here any more; unknown ones are ignored."""
        for source in sources:
            self._sources.pop(source, None)

    def heard(self, sources: Iterable[TopicPartition]) -> None:
        """Records of these were processed until now: their silence begins."""
        now_seconds = self._clock.monotonic_seconds()
        for source in sources:
            if source in self._sources:
                self._sources[source] = _Source(now_seconds)

    def fallen_idle(
        self, position: Callable[[TopicPartition], int], busy: Collection[TopicPartition] = ()
    ) -> list[TopicPartition]:
        """Those that are idle since this call: silent, and ``position`` has reached the end as it is now.

        Those whose tasks are ``busy`` stay awake: they cannot be told, and to wait for one would hold up all. The end
        is that of the log, open transactions included: records of one keep their partition awake until it ends. One
        request for all of them, and none for most calls. An unreachable broker leaves them awake.
        """
        now_seconds = self._clock.monotonic_seconds()
        silent = {
            place: source
            for place, source in self._sources.items()
            if not source.is_idle
            and now_seconds - source.heard_seconds >= self._idle_seconds
            and place not in busy
        }
        if not any(now_seconds >= source.ask_seconds for source in silent.values()):
            return []
        pause_seconds = _ASK_SECONDS
        try:
            logs = self._cluster.ranges(silent, stable=False)
        except BrokerUnreachable as error:
            _LOG.warning("Cannot see whether silent inputs are at their ends: %s", error)
            logs, pause_seconds = {}, _ASK_UNREACHABLE_SECONDS
        now_seconds = self._clock.monotonic_seconds()
        fallen = [place for place, log in logs.items() if position(place) >= log.offset_next]
        for place, source in silent.items():
            source.is_idle = place in fallen
            source.ask_seconds = now_seconds + pause_seconds
        return fallen
