"""What the memory log's clients share: topics, transactions, groups, one lock, one clock."""

from __future__ import annotations

import threading
import uuid

from stateflow.clock import Clock
from stateflow.errors import TopicMissing
from stateflow.log.memory.group import GroupState
from stateflow.log.memory.partition import PartitionLog
from stateflow.log.memory.topic import Topic
from stateflow.log.memory.transactions import TransactionCoordinator
from stateflow.record import TopicPartition


class MemoryBroker:
    """The state behind a :class:`~stateflow.log.memory.MemoryCluster`. Every use holds ``lock``."""

    def __init__(
        self, clock: Clock, *, transaction_timeout_ms: int, session_timeout_ms: int, max_poll_interval_ms: int
    ) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self.cluster_id = str(uuid.uuid4())
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, GroupState] = {}
        self.transactions = TransactionCoordinator(
            clock, transaction_timeout_ms, lambda group, offsets: self.group(group).offsets.update(offsets)
        )
        self._expired_ms: int | None = None
        self._session_timeout_ms = session_timeout_ms
        self._max_poll_interval_ms = max_poll_interval_ms

    def topic(self, name: str) -> Topic:
        """A topic that exists. Raises ``TopicMissing``."""
        found = self.topics.get(name)
        if found is None:
            raise TopicMissing(
                f"Topic {name!r} does not exist on this cluster.",
                action="create it, or check its name in the application.",
                topic=name,
            )
        return found

    def partition(self, partition: TopicPartition) -> PartitionLog:
        """A partition that exists. Raises ``TopicMissing``."""
        return self.topic(partition.topic).log(partition.partition)

    def group(self, name: str) -> GroupState:
        """A consumer group; it comes into being when it is first named."""
        if name not in self.groups:
            self.groups[name] = GroupState(
                name, self.clock, self._session_timeout_ms, self._max_poll_interval_ms
            )
        return self.groups[name]

    def expire(self, *, changed: bool = False) -> None:
        """Let the clock have its way with open transactions and silent members.

        Nothing to do when it stands where it stood, unless topics or members have ``changed``.
        """
        now_ms = self.clock.now_ms()
        if now_ms == self._expired_ms and not changed:
            return
        self._expired_ms = now_ms
        self.transactions.expire()
        counts = {name: len(topic.partitions) for name, topic in self.topics.items()}
        for group in self.groups.values():
            group.expire(counts)
