"""The records of any topic as rows, planned so that a query may go on where it was. Free of Spark.

``TopicFeed`` has the shape of ``query.feed.Feed``: whoever follows one can follow the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stateflow.codec.table import from_description
from stateflow.errors import ConfigError, DecodeError, OffsetOutOfRange, TopicMissing, TopicRecreated
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.query.feed import FeedPlace, Start
from stateflow.query.sql_types import ARROW_TYPES, sql_type, sql_values
from stateflow.record import OffsetRange, RecordBatch, TopicPartition

CODECS = ("bytes", "string", "integer", "float", "boolean", "json", "msgpack")
"""Those that need no more than their name."""


@dataclass(frozen=True, slots=True)
class RecordTable:
    """How the records of a topic read as rows: the names of the codecs of keys and values."""

    key: str = "bytes"
    value: str = "bytes"

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a codec that there is not."""
        for name in (self.key, self.value):
            if name not in CODECS:
                raise ConfigError(
                    f"there is no codec {name!r} here.", action=f"say one of {', '.join(CODECS)}."
                )

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of each column. ``value`` is null for a tombstone, ``key`` where there is none."""
        return [
            ("key", sql_type({"codec": self.key})),
            ("value", sql_type({"codec": self.value})),
            ("timestamp", "timestamp"),
            ("partition", "int"),
            ("offset", "bigint"),
        ]

    @property
    def ddl(self) -> str:
        """The columns as Spark reads a schema."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)

    def batch(self, records: RecordBatch) -> pa.RecordBatch:
        """Rows of one partition's records. Raises ``DecodeError``, which names the records."""
        try:
            return self._batch(records)
        except DecodeError as error:
            raise DecodeError(
                f"{records.source}, offsets {records.offsets[0]} to {records.offsets[-1]}: {error.message}",
                action="name the codecs that the records were written with, as `key` and `value`; bytes takes any.",
            ) from error

    def _batch(self, records: RecordBatch) -> pa.RecordBatch:
        schema = pa.schema([(name, ARROW_TYPES[kind]()) for name, kind in self.columns])
        columns: dict[str, Any] = {
            "key": _decoded(self.key, records.keys),
            "value": _decoded(self.value, records.values),
            "timestamp": [timestamp_ms * 1000 for timestamp_ms in records.timestamps_ms],
            "partition": [records.source.partition] * len(records),
            "offset": records.offsets,
        }
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _decoded(codec: str, data: Any) -> list[Any]:
    """The values of a column, null where a record has none."""
    described = {"codec": codec, **({"bits": 64} if codec in ("integer", "float") else {})}
    there = [each for each in data if each is not None]
    values = iter(sql_values(described, from_description(described).decode_many(there)))
    return [None if each is None else next(values) for each in data]


@dataclass(frozen=True, slots=True)
class RecordRange:
    """A part of one partition, to be read as rows. It travels to whoever reads it."""

    table: RecordTable
    source: TopicPartition
    offsets: OffsetRange

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of each column."""
        return self.table.columns

    def batches(self, cluster: Cluster) -> Iterator[pa.RecordBatch]:
        """The committed records, in their order. Raises ``OffsetOutOfRange``, ``DecodeError``."""
        for records in read_range(cluster, self.source, self.offsets):
            yield self.table.batch(records)


class TopicFeed:
    """Plans what is read of one topic: committed records only. Everything it decides is in the places it returns."""

    def __init__(self, cluster: Cluster, topic: str, table: RecordTable) -> None:
        self._cluster = cluster
        self._topic = topic
        self._table = table

    def first(self, start: Start) -> FeedPlace:
        """Where a new feed begins: with the oldest records that are kept, or behind the newest."""
        topic_id, logs = self._logs()
        return FeedPlace(
            0,
            topic_id,
            {n: log.offset_first if start == "earliest" else log.offset_next for n, log in logs.items()},
        )

    def latest(self) -> FeedPlace:
        """Behind the newest committed records of this moment."""
        return self.first("latest")

    def next(
        self, start: FeedPlace, slots_max: int | None = None, until: FeedPlace | None = None
    ) -> FeedPlace:
        """Where to read to from ``start``: to the end, or ``slots_max`` offsets of each partition further at most.

        ``until`` fixes what is the end. The same place if there is nothing to read. Raises ``TopicRecreated``.
        """
        end = until or self.latest()
        self._check(start, end.topic_id)
        offsets: dict[int, int] = {}
        for partition, offset_next in end.offsets.items():
            begun = start.offsets.get(partition, 0)
            aim = offset_next if slots_max is None else min(offset_next, begun + slots_max)
            offsets[partition] = max(begun, aim)
        return FeedPlace(0, end.topic_id, offsets)

    def ranges(self, start: FeedPlace, end: FeedPlace) -> list[RecordRange]:
        """What is to be read between two places. Raises ``OffsetOutOfRange`` where some of it was deleted."""
        topic_id, logs = self._logs()
        self._check(end, topic_id)
        found = []
        for partition, offset_next in end.offsets.items():
            log_first = logs[partition].offset_first  # where a partition begins that was added meanwhile
            offsets = OffsetRange(start.offsets.get(partition, log_first), offset_next)
            if offsets.is_empty:
                continue
            if offsets.offset_first < log_first:
                raise OffsetOutOfRange(
                    f"{self._topic}-{partition} begins at {log_first}, and the query has come to"
                    f" {offsets.offset_first}: what is in between was deleted by the topic's retention.",
                    action="begin with another checkpoint folder; keep records for longer than a query may be away.",
                    topic=self._topic,
                    partition=partition,
                    low=log_first,
                )
            found.append(RecordRange(self._table, TopicPartition(self._topic, partition), offsets))
        return found

    def _logs(self) -> tuple[str, Mapping[int, OffsetRange]]:
        info = self._cluster.describe([self._topic]).get(self._topic)
        if info is None:
            raise TopicMissing(
                f"there is no topic {self._topic!r}.",
                action="check its name and the brokers.",
                topic=self._topic,
            )
        found = self._cluster.ranges(TopicPartition(self._topic, number) for number in range(info.partitions))
        return info.topic_id, {source.partition: log for source, log in found.items()}

    def _check(self, place: FeedPlace, topic_id: str) -> None:
        if place.topic_id != topic_id:
            raise TopicRecreated(
                f"{self._topic} is another topic than the query has read so far (topic id {topic_id}, it was"
                f" {place.topic_id}).",
                action="begin with another checkpoint folder.",
                topic=self._topic,
            )
