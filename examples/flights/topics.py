"""Reads what the application left on Kafka, with a plain consumer that knows nothing of stateflow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

READ_SECONDS = 60.0
LOOK_SECONDS = (
    0.2  # a call returns when it has all it may or the time is over, not when there is nothing more
)


class Kept(NamedTuple):
    """The newest committed record of one key."""

    partition: int
    value: bytes


def newest_by_key(brokers: str, topic: str) -> dict[bytes, Kept]:
    """The newest committed value of every key of a topic; deleted keys are left out."""
    newest: dict[bytes, Kept | None] = {}
    for message in committed_messages(brokers, topic):
        key, value = message.key(), message.value()
        if key is not None:
            newest[bytes(key)] = None if value is None else Kept(message.partition() or 0, bytes(value))
    return {key: kept for key, kept in newest.items() if kept is not None}


def committed_messages(brokers: str, topic: str) -> Iterator[Message]:
    """Every committed record of a topic up to the ends that it has now."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "flights-demo-reader",  # required by the client; nothing is ever committed
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        partitions = consumer.list_topics(topic, READ_SECONDS).topics[topic].partitions
        starts = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number))[0] for number in partitions
        }
        consumer.assign([TopicPartition(topic, number, first) for number, first in starts.items()])
        waiting, heard_at = set(partitions), time.monotonic()
        while waiting:
            messages = consumer.consume(5000, LOOK_SECONDS)
            if messages:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > READ_SECONDS:
                raise RuntimeError(
                    f"{topic}: nothing came for {READ_SECONDS:.0f} s, and its end was not reached."
                )
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def decoded(kept: Kept) -> Any:
    """A JSON value as plain data."""
    return msgspec.json.decode(kept.value)
