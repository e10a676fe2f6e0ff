"""The requests of Kafka's protocol about transactions, as bytes, and their answers.

The oldest version of each that Kafka 4 takes and that says what is needed: these have the plain encoding where there is
one, and the old transaction protocol, which is the one that the client library speaks, too.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stateflow.log.kafka.wire_types import Cursor, compact_array, compact_string, kafka_array, kafka_string
from stateflow.record import TopicPartition

_NO_TAGS = b"\x00"
_OF_TRANSACTIONS = b"\x01"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its number in the protocol, its version, its body, and whether its encoding is the flexible one."""

    api_key: int
    version: int
    body: bytes
    flexible: bool = False


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer as the broker numbers it."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Described:
    """A coordinator's word on one transactional id."""

    error: int
    state: str
    producer: Producer
    partitions: frozenset[TopicPartition]


def find_coordinator(transactional_id: str) -> Request:
    """Which broker coordinates the id's transactions."""
    return Request(10, 1, kafka_string(transactional_id) + _OF_TRANSACTIONS)


def found_coordinator(answer: bytes) -> tuple[int, tuple[str, int]]:
    """The error, and the coordinator's host and port."""
    at = Cursor(answer)
    at.int32()  # throttle time
    error = at.int16()
    at.string()
    at.int32()  # its number
    return error, (at.string(), at.int32())


def describe_transactions(transactional_id: str) -> Request:
    """The state of an id's newest transaction; to its coordinator."""
    return Request(65, 0, compact_array([compact_string(transactional_id)]) + _NO_TAGS, flexible=True)


def described_transaction(answer: bytes) -> Described:
    """What the coordinator says of the one id that was asked about."""
    at = Cursor(answer)
    at.tags()
    at.int32()  # throttle time
    described = at.unsigned() - 1
    assert described == 1, "one id was asked about"
    error = at.int16()
    at.compact_string()  # the id
    state = at.compact_string()
    at.int32()  # its timeout
    at.int64()  # when it began
    producer = Producer(at.int64(), at.int16())
    partitions: set[TopicPartition] = set()
    for _ in range(at.unsigned() - 1):
        topic = at.compact_string()
        partitions.update(TopicPartition(topic, at.int32()) for _ in range(at.unsigned() - 1))
        at.tags()
    return Described(error, state, producer, frozenset(partitions))


def describe_producers(partitions: Iterable[TopicPartition]) -> Request:
    """Which producers have written to partitions, and what they have open there; to the partitions' leader."""
    topics = [
        compact_string(topic) + compact_array(struct.pack(">i", number) for number in numbers) + _NO_TAGS
        for topic, numbers in _by_topic(partitions)
    ]
    return Request(61, 0, compact_array(topics) + _NO_TAGS, flexible=True)


def described_producers(answer: bytes) -> Iterator[tuple[TopicPartition, int, dict[int, int]]]:
    """Each partition, its error, and by the producers that have something open there where that begins."""
    at = Cursor(answer)
    at.tags()
    at.int32()  # throttle time
    for _ in range(at.unsigned() - 1):
        topic = at.compact_string()
        for _ in range(at.unsigned() - 1):
            partition, error = TopicPartition(topic, at.int32()), at.int16()
            at.compact_string()
            yield partition, error, _open_producers(at)
            at.tags()
        at.tags()


_PRODUCER = struct.Struct(">qiiqiqB")
"""Its id, epoch, last sequence, time of it, the coordinator's epoch, where its open transaction begins, tagged fields.

A partition tells of all who wrote there within a day: one that many write to, as where a group's offsets are, of
hundreds.
"""


def _open_producers(at: Cursor) -> dict[int, int]:
    found: dict[int, int] = {}
    for _ in range(at.unsigned() - 1):
        producer_id, *_, offset_first, tags = at.numbers(_PRODUCER)
        if offset_first >= 0:
            found[producer_id] = offset_first
        if tags:
            at.tagged_fields(tags)
    return found


def init_producer_id(transactional_id: str, timeout_ms: int) -> Request:
    """A new epoch for the id, which fences every older one and aborts what is open; to its coordinator."""
    return Request(22, 1, kafka_string(transactional_id) + struct.pack(">i", timeout_ms))


def initialized_producer(answer: bytes) -> tuple[int, Producer]:
    """The error, and the producer."""
    at = Cursor(answer)
    at.int32()  # throttle time
    return at.int16(), Producer(at.int64(), at.int16())


def add_partitions(
    transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
) -> Request:
    """Make partitions part of the transaction, which begins with it; to its coordinator."""
    topics = [
        kafka_string(topic) + kafka_array(struct.pack(">i", number) for number in numbers)
        for topic, numbers in _by_topic(partitions)
    ]
    return Request(24, 1, _owner(transactional_id, producer) + kafka_array(topics))


def added_partitions(answer: bytes) -> int:
    """The first error of any partition, or 0."""
    at = Cursor(answer)
    at.int32()  # throttle time
    errors = []
    for _ in range(at.int32()):
        at.string()
        for _ in range(at.int32()):
            at.int32()
            errors.append(at.int16())
    return next((error for error in errors if error), 0)


def add_offsets(transactional_id: str, producer: Producer, group: str) -> Request:
    """Make a group's offsets part of the transaction; to its coordinator."""
    return Request(25, 1, _owner(transactional_id, producer) + kafka_string(group))


def end_transaction(transactional_id: str, producer: Producer, *, commit: bool) -> Request:
    """Commit or abort; to its coordinator."""
    return Request(26, 1, _owner(transactional_id, producer) + struct.pack(">?", commit))


def plain_error(answer: bytes) -> int:
    """The error of an answer that has nothing else."""
    at = Cursor(answer)
    at.int32()  # throttle time
    return at.int16()


def _owner(transactional_id: str, producer: Producer) -> bytes:
    return kafka_string(transactional_id) + struct.pack(">qh", producer.id, producer.epoch)


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        numbers[partition.topic].append(partition.partition)
    return numbers.items()
