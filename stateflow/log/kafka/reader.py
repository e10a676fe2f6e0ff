"""Reading partitions of a Kafka cluster by assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException

from stateflow.errors import StateflowError
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.failures import is_passing, typed
from stateflow.log.kafka.fetching import CONSUME_MAX, ClientStuck, Fetching, started
from stateflow.log.kafka.leaving import part
from stateflow.log.kafka.offsets import Offsets
from stateflow.log.kafka.settings import Settings
from stateflow.log.kafka.streams import Arrived, made_consumer
from stateflow.log.newest import Sink
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
        self._stream, self._consumer = made_consumer(self._settings, CONSUME_MAX)
        self._topics: set[str] = set()

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment."""
        self._meet({partition.topic for partition in offsets})
        self._fetching.begin(offsets)
        self._assign()

    def _assign(self) -> None:
        if self._stream is not None:
            self._stream.follow(self._fetching.positions)
        self._consumer.assign(started(self._fetching.positions))

    def read(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Up to ``max_records``; raises ``OffsetOutOfRange``, ``TopicMissing``, ``BrokerUnreachable``."""
        batches: list[RecordBatch] = []
        self._read(
            max_records,
            timeout_seconds,
            lambda came: batches.append(came.batch() if isinstance(came, Arrived) else came),
        )
        return batches

    def read_newest(
        self, sinks: Mapping[TopicPartition, Sink], max_records: int, timeout_seconds: float
    ) -> list[TopicPartition]:
        """As ``read``, into the sinks, in the core without an object per record."""
        brought: list[TopicPartition] = []

        def put(came: Arrived | RecordBatch) -> None:
            brought.append(came.source)
            if isinstance(came, Arrived):
                came.put_into(sinks[came.source])
            else:
                sinks[came.source].add(came)

        self._read(max_records, timeout_seconds, put)
        return brought

    def _read(
        self, max_records: int, timeout_seconds: float, take: Callable[[Arrived | RecordBatch], None]
    ) -> None:
        try:
            if self._stream is not None:
                self._fetching.consume_stream(
                    self._consumer, self._stream, max_records, timeout_seconds, take
                )
            else:
                for batch in self._fetching.consume(self._consumer, max_records, timeout_seconds):
                    take(batch)
        except ClientStuck:
            client_log.warning(
                "A reader's client does not find back to the brokers: another takes its place."
            )
            self._let_go()
            part(self._consumer, "a stuck reader")
            self._stream, self._consumer = made_consumer(self._settings, CONSUME_MAX)
            self._assign()

    def _let_go(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def position(self, partition: TopicPartition) -> int:
        """The next offset; the end, once the client library reported the end of the partition."""
        return self._fetching.positions[partition]

    def close(self) -> None:
        """Release the connection."""
        self._let_go()
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
