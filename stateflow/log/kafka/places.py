"""Where a writer's records can go: the partitions of its topics, asked for once, and again after a while."""

from __future__ import annotations

from stateflow.errors import TopicMissing
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.topics import Topics
from stateflow.record import TopicPartition

_COUNTS_SECONDS = 300.0


class Places:
    """What one writer knows of partition counts."""

    def __init__(self, topics: Topics, admin: Admin) -> None:
        self.partitions: dict[str, int] = {}
        """Topic → how many it has."""
        self._topics = topics
        self._admin = admin
        self._counted_seconds = admin.clock.monotonic_seconds()

    def check(self, topic: str, partition: int) -> None:
        """A record for a topic or partition that does not exist would be found out only minutes later."""
        partitions = self.partitions.get(topic)
        if partitions is None or partition >= partitions:
            partitions = self.partitions[topic] = self._topics.partitions(topic, partition)
        if partitions == 0 or partition >= partitions:
            del self.partitions[topic]
            raise TopicMissing(
                f"There is no {TopicPartition(topic, partition)} at {self._admin.bootstrap}:"
                f" the topic has {partitions} partitions.",
                action="create it, or check its name and partition count in the application.",
                topic=topic,
                partition=partition,
            )

    def forget_old(self) -> None:
        """Look again, as often as the client does, how many partitions topics have: they may be given more."""
        now_seconds = self._admin.clock.monotonic_seconds()
        if now_seconds - self._counted_seconds > _COUNTS_SECONDS:
            self._counted_seconds = now_seconds
            self.partitions.clear()
