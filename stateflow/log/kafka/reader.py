"""Reading partitions of a Kafka cluster by assignment."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException

from stateflow.errors import StateflowError
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.failures import is_passing, typed
from stateflow.log.kafka.fetching import ClientStuck, Fetching, started
from stateflow.log.kafka.leaving import part
from stateflow.log.kafka.offsets import Offsets
from stateflow.log.kafka.settings import Settings
from stateflow.record import RecordBatch, TopicPartition

_MEET_SECONDS = 5.0


class KafkaReader:
    """Implements :class:`stateflow.log.base.Reader`."""

    def __init__(
        self, settings: Settings, admin: Admin, offsets: Offsets, unreachable_seconds: float
    ) -> None:
        self._admin = admin
        self._offsets = offsets
        self._fetching = Fetching(
            admin.clock, admin.bootstrap, unreachable_seconds, self._failed, admin.is_reachable
        )
        self._settings: Settings = {**settings, "error_cb": self._fetching.broker_event}
        self._consumer = Consumer(self._settings, logger=client_log)
        self._topics: set[str] = set()

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment."""
        self._meet({partition.topic for partition in offsets})
        self._fetching.positions = dict(offsets)
        self._consumer.assign(started(offsets))

    def read(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Up to ``max_records``; raises ``OffsetOutOfRange``, ``TopicMissing``, ``BrokerUnreachable``."""
        try:
            return self._fetching.consume(self._consumer, max_records, timeout_seconds)
        except ClientStuck:
            client_log.warning(
                "A reader's client does not find back to the brokers: another takes its place."
            )
            part(self._consumer, "a stuck reader")
            self._consumer = Consumer(self._settings, logger=client_log)
            self._consumer.assign(started(self._fetching.positions))
            return []

    def position(self, partition: TopicPartition) -> int:
        """The next offset; the end, once the client library reported the end of the partition."""
        return self._fetching.positions[partition]

    def close(self) -> None:
        """Release the connection."""
        self._consumer.close()

    def _meet(self, topics: set[str]) -> None:
        """Ask for topics that come after the first assignment: the client library would look for them in a second."""
        new = topics - self._topics if self._topics else set()
        self._topics |= topics
        for topic in new:
            try:
                self._consumer.list_topics(topic, timeout=_MEET_SECONDS)
            except (
                KafkaException
            ) as raised:  # whatever it is, reading meets it too and knows how long to bear it
                client_log.info("No metadata of %s yet: %s.", topic, raised)

    def _failed(
        self, error: KafkaError, partition: TopicPartition | None, offset: int
    ) -> StateflowError | None:
        if is_passing(error):
            return None
        if error.code() == KafkaError._AUTO_OFFSET_RESET and partition is not None:
            return self._offsets.out_of_range(partition, self._fetching.positions.get(partition, offset))
        return typed(error, f"reading {partition}", self._admin.bootstrap)
