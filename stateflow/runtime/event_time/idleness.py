"""Source partitions that have nothing to give for now: silent for long, and read to their ends.

Silence alone says nothing: while a slow batch of one partition is processed, the records of another wait unread. So
once a partition has been silent for ``idle_seconds`` the cluster is asked where its log ends *now*, and only a worker
that has read up to there calls it idle. The poll thread does not wait for the answer. It counts for a partition that
has said nothing since the question, and stands where it stood then: what comes later comes to one that was idle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.background import BackgroundRequest

_LOG = logging.getLogger(__name__)

_ASK_SECONDS = 1.0
"""Time between two looks at the end of a partition that is silent without being at its end."""
_ASK_FAILED_SECONDS = 30.0
"""The same after a question that failed: each is a warning, and may take as long as a request may take."""

PositionOf = Callable[[TopicPartition], int]
"""The next offset of an input to be processed."""


@dataclass(slots=True)
class _Source:
    """A partition from the end of what it has said last: another takes its place when it speaks."""

    heard_seconds: float
    ask_seconds: float = float("-inf")
    """Not asked for its end again before then."""
    asked_position: int = -1
    """Where it stood when its end was asked for last."""
    is_at_end: bool = False
    """That was the end, by an answer that nobody has acted upon."""
    is_idle: bool = False


class IdleSources:
    """When each source partition that a worker reads was last heard, and which of them are idle.

    ``requests`` takes the place of the thread that asks for ends.
    """

    def __init__(
        self, cluster: Cluster, idle_seconds: float, clock: Clock, requests: Executor | None = None
    ) -> None:
        self._cluster = cluster
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._sources: dict[TopicPartition, _Source] = {}
        self._request = BackgroundRequest[dict[TopicPartition, OffsetRange]]("idleness", requests)
        self._asked: dict[TopicPartition, _Source] = {}
        """Those whose ends were asked for; some of them may have spoken since, and are others by now."""

    def begin(self, sources: Iterable[TopicPartition]) -> None:
        """A task reads these from now on; they are awake, whatever they were for its predecessor."""
        now_seconds = self._clock.monotonic_seconds()
        self._sources.update((source, _Source(now_seconds)) for source in sources)

    def end(self, sources: Iterable[TopicPartition]) -> None:
        """They are not read here any more; unknown ones are ignored."""
        for source in sources:
            self._sources.pop(source, None)

    def heard(self, sources: Iterable[TopicPartition]) -> None:
        """Records of these were processed until now, or wait: their silence begins."""
        now_seconds = self._clock.monotonic_seconds()
        for source in sources:
            if source in self._sources:
                self._sources[source] = _Source(now_seconds)

    def close(self) -> None:
        """Ask nothing any more; a question that brokers do not answer is not waited for."""
        self._request.close(waits=False)

    def fallen_idle(
        self, position: PositionOf, busy: Collection[TopicPartition] = ()
    ) -> list[TopicPartition]:
        """Those that are idle since this call: silent, and ``position`` has reached the end as it was when asked for.

        Those whose tasks are ``busy`` stay awake until they are not: they cannot be told, and to wait for one would
        hold up all. The end is that of the log, open transactions included: records of one keep their partition awake
        until it ends. One request at a time for all of them, and none for most calls. An unreachable broker leaves
        them awake.
        """
        self._take_answer()
        if not self._request.is_under_way:
            self._ask(position, busy)
            self._take_answer()
        fallen = []
        for place, source in self._sources.items():
            if source.is_at_end and place not in busy:
                source.is_at_end = False
                # One that was read on without a record, as behind a marker, may have more: it is asked for again.
                source.is_idle = position(place) == source.asked_position
                if source.is_idle:
                    fallen.append(place)
        return fallen

    def _ask(self, position: PositionOf, busy: Collection[TopicPartition]) -> None:
        """Ask for the ends of all that are silent, if it is time for any of them."""
        now_seconds = self._clock.monotonic_seconds()
        silent = {
            place: source
            for place, source in self._sources.items()
            if not (source.is_idle or source.is_at_end)
            and now_seconds - source.heard_seconds >= self._idle_seconds
            and place not in busy
        }
        if not any(now_seconds >= source.ask_seconds for source in silent.values()):
            return
        for place, source in silent.items():
            source.asked_position = position(place)
        self._asked = silent
        self._request.begin(partial(self._cluster.ranges, list(silent), stable=False))

    def _take_answer(self) -> None:
        if not self._request.is_over:
            return
        pause_seconds = _ASK_SECONDS
        asked, self._asked = self._asked, {}
        try:
            logs = self._request.take()
        except StateflowError as error:  # what stands in the way of reading, too, is met by the reader
            _LOG.warning("Cannot see whether silent inputs are at their ends: %s", error)
            logs, pause_seconds = {}, _ASK_FAILED_SECONDS
        now_seconds = self._clock.monotonic_seconds()
        for place, source in asked.items():
            source.is_at_end = place in logs and source.asked_position >= logs[place].offset_next
            source.ask_seconds = now_seconds + pause_seconds
