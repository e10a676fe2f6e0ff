"""Sizes of partitions on the brokers' disks, by DescribeLogDirs, and what version the brokers are, by ApiVersions."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stateflow.errors import BrokerRefused
from stateflow.log.kafka.wire import WireConnection
from stateflow.log.kafka.wire_types import Cursor, kafka_string
from stateflow.record import TopicPartition

_DESCRIBE_LOG_DIRS, _API_VERSIONS = 35, 18
_METADATA_LEVELS: tuple[tuple[int, tuple[int, int]], ...] = (
    (30, (4, 3)),
    (28, (4, 2)),
    (26, (4, 1)),
    (22, (4, 0)),
    (21, (3, 9)),
    (20, (3, 8)),
    (15, (3, 7)),
    (12, (3, 6)),
    (9, (3, 5)),
    (8, (3, 4)),
    (4, (3, 3)),
)
"""Lowest ``metadata.version`` feature level of each Kafka release (``MetadataVersion`` in Kafka's sources)."""


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One replica of a partition on one broker: bytes of its log segments, indexes and deleted files excluded."""

    broker_id: int
    partition: TopicPartition
    size_bytes: int
    directory: str = ""
    """The log directory on that broker's disk."""


def describe_log_dirs(
    connection: WireConnection, broker_id: int, topics: Mapping[str, int]
) -> list[ReplicaSize]:
    """The replicas that this broker holds of the given topics (name → partition count).

    Future replicas (a move between disks) are left out. Raises ``BrokerRefused`` without the right to DESCRIBE.
    """
    parts = [struct.pack(">i", len(topics))]
    for topic, count in topics.items():
        parts.append(kafka_string(topic) + struct.pack(f">i{count}i", count, *range(count)))
    answer = Cursor(connection.request(_DESCRIBE_LOG_DIRS, 1, b"".join(parts)))
    answer.int32()  # throttle time
    found = []
    for _ in range(answer.int32()):
        error = answer.int16()
        directory = answer.string()
        if error:
            raise BrokerRefused(
                f"The broker {connection.address} does not tell its log sizes (Kafka error {error}).",
                action="Grant DESCRIBE on the cluster, or check the broker's disks.",
                kafka_error=error,
            )
        found += [size for size in _replicas(answer, broker_id, directory) if size is not None]
    return found


def _replicas(answer: Cursor, broker_id: int, directory: str) -> Iterator[ReplicaSize | None]:
    for _ in range(answer.int32()):
        topic = answer.string()
        for _ in range(answer.int32()):
            partition, size = answer.int32(), answer.int64()
            answer.int64()  # lag of a future replica
            is_future = answer.int8()
            where = TopicPartition(topic, partition)
            yield None if is_future else ReplicaSize(broker_id, where, size, directory)


def broker_version(connection: WireConnection) -> tuple[tuple[int, int], bool]:
    """The broker's release as (major, minor), and whether it is newer than this table knows.

    Read from the highest ``metadata.version`` that the broker supports; (3, 0) when it names none.
    """
    body = b"\x0astateflow\x021\x00"  # compact strings: client software name and version; no tagged fields
    answer = Cursor(connection.request(_API_VERSIONS, 3, body, flexible=True))
    answer.int16()  # error: an old broker answers with a version 0 body, which has no features
    for _ in range(answer.unsigned() - 1):
        answer.skip(6)
        answer.unsigned()
    if answer.left < 5:
        return (3, 0), False
    answer.int32()  # throttle time
    level = _supported_metadata_level(answer)
    for lowest, release in _METADATA_LEVELS:
        if level >= lowest:
            return release, level > _METADATA_LEVELS[0][0]
    return (3, 0), False


def _supported_metadata_level(answer: Cursor) -> int:
    for _ in range(answer.unsigned()):
        tag, size = answer.unsigned(), answer.unsigned()
        if tag != 0:
            answer.skip(size)
            continue
        level = 0
        for _ in range(answer.unsigned() - 1):
            name = answer.bytes(answer.unsigned() - 1)
            answer.int16()
            high = answer.int16()
            answer.unsigned()
            if name == b"metadata.version":
                level = high
        return level
    return 0
