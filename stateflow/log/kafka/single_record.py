"""Whether a record stands at one offset: what a reader of committed records alone cannot tell."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.settings import Settings
from stateflow.record import TopicPartition


def holds_record(settings: Settings, admin: Admin, partition: TopicPartition, offset: int) -> bool:
    """``settings`` are those of a reader. Raises ``BrokerUnreachable`` without an answer in time."""
    doing = f"looking at offset {offset} of {partition}"

    def look(left_seconds: float) -> bool:
        consumer = Consumer({**settings, "isolation.level": "read_uncommitted"}, logger=client_log)
        try:
            consumer.assign([ClientPartition(partition.topic, partition.partition, offset)])
            met = consumer.poll(left_seconds)
            if met is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer while {doing}"))
            error = met.error()
            if error is None:
                return bool(met.offset() == offset)
            if error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
                return False  # nothing follows it, or the log begins behind it
            raise KafkaException(error)
        finally:
            consumer.close()

    return admin.call(doing, look)
