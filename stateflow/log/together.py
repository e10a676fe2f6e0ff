"""Questions that several threads ask at the same time, put to the cluster as one.

Many tasks that are opened side by side ask the same things of different partitions, each after its own fence: where
logs end, what a group has committed, which topics there are. A question that is asked while another is under way waits,
and goes to the cluster with all those that came meanwhile. So every answer is of a request that was sent after the
question was asked: what a task reads after its fence was read after its fence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar

from stateflow.errors import StateflowError
from stateflow.log.base import Cluster, Committed, TopicInfo
from stateflow.log.forwarding import ForwardingCluster
from stateflow.record import OffsetRange, TopicPartition

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Round(Generic[Item, Answer]):
    """Those who are answered together."""

    def __init__(self) -> None:
        self.items: dict[Item, None] = {}
        self.askers = 0
        self.answers: Mapping[Item, Answer] | None = None
        """None until they are there, and where the request has failed."""
        self.is_over = False


class Together(Generic[Item, Answer]):
    """Asks about items, with whoever asks at the same time. Thread-safe.

    ``ask`` tells of each item that there is something to tell of. Where it fails for several who ask together, each
    asks again by itself: what is wrong with the items of one is no other's concern.
    """

    def __init__(self, ask: Callable[[Collection[Item]], Mapping[Item, Answer]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        """Held for a moment only."""
        self._turn = threading.Lock()
        """Held by the one who asks."""
        self._next: _Round[Item, Answer] = _Round()

    def __call__(self, items: Iterable[Item]) -> dict[Item, Answer]:
        """What is told of these items, by a request that begins after this call. Raises what it raises."""
        wanted = dict.fromkeys(items)
        with self._lock:
            round_ = self._next
            round_.items.update(wanted)
            round_.askers += 1
        with self._turn:
            if not round_.is_over:
                self._put(round_)
        answers = round_.answers
        if answers is None:
            answers = self._ask(wanted)
        return {item: answers[item] for item in wanted if item in answers}

    def _put(self, round_: _Round[Item, Answer]) -> None:
        with self._lock:
            self._next = _Round()  # whoever comes from here on is answered by a later request
        try:
            round_.answers = self._ask(round_.items)
        except StateflowError:
            if round_.askers == 1:
                raise
        finally:
            round_.is_over = True


class AskingTogether(ForwardingCluster):
    """A cluster for threads that ask it at the same time. All that is not a question goes to it as it is."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._topics: Together[str, TopicInfo] = Together(cluster.describe)
        self._configs: Together[str, dict[str, str]] = Together(
            lambda topics: {topic: cluster.topic_config(topic) for topic in topics}
        )
        levels = (True, False)
        self._ranges: dict[bool, Together[TopicPartition, OffsetRange]] = {
            stable: Together(partial(cluster.ranges, stable=stable)) for stable in levels
        }
        self._ends: dict[bool, Together[TopicPartition, int]] = {
            stable: Together(partial(cluster.ends, stable=stable)) for stable in levels
        }
        self._committed: dict[tuple[str, bool, float | None], Together[TopicPartition, Committed]] = {}

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics that exist, of those asked for."""
        return self._topics(topics)

    def topic_config(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic."""
        return self._configs([topic])[topic]

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        """Log start and last stable offset, or end of the log, of each partition."""
        return self._ranges[stable](partitions)

    def ends(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        """Last stable offset, or end of the log, of each partition."""
        return self._ends[stable](partitions)

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        stable: bool = True,
        pending_seconds: float | None = None,
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets of a group."""
        asking = self._committed.setdefault(
            (group, stable, pending_seconds),
            Together(partial(self.inner.committed, group, stable=stable, pending_seconds=pending_seconds)),
        )
        return asking(partitions)
