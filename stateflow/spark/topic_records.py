"""The records of any topic as a table or a stream of Spark: ``format("stateflow").options(topic=…)``.

So whatever an application writes can end in a DataFrame, without Spark's connector for Kafka. Only committed records
are read. Options: ``topic``, ``key`` and ``value`` (the names of their codecs: ``bytes``, the default, ``string``,
``integer``, ``float``, ``boolean``, ``json``, ``msgpack``), ``brokers``, ``client_file``, and for streams ``starting``
and ``records_max`` as for the change feed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from stateflow.log.base import Cluster
from stateflow.query.records import RecordRange, RecordTable, TopicFeed
from stateflow.spark.connection import Connection
from stateflow.spark.feed import FeedLimits
from stateflow.spark.kept_connection import kept_cluster

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """The records of a topic are asked for."""

    connection: Connection
    topic: str
    table: RecordTable
    limits: FeedLimits

    @classmethod
    def of(cls, options: Mapping[str, str], connection: Connection) -> TopicRequest:
        """Of a data source's options. Raises ``ConfigError``."""
        table = RecordTable(options.get("key", "bytes"), options.get("value", "bytes"))
        return cls(connection, options["topic"], table, FeedLimits.of(options))

    def plan(self, cluster: Cluster) -> TopicFeed:
        """What plans it."""
        return TopicFeed(cluster, self.topic, self.table)


class TopicReader(DataSourceReader):
    """The records that there are now, a task for each partition of the topic."""

    def __init__(self, request: TopicRequest) -> None:
        self._request = request

    def partitions(self) -> Sequence[InputPartition]:
        """What is to be read, fixed here."""
        with closing(self._request.connection.open()) as cluster:
            feed = self._request.plan(cluster)
            return [InputPartition(each) for each in feed.ranges(feed.first("earliest"), feed.latest())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range; none for the partition that Spark makes up where there is nothing to read."""
        wanted: RecordRange | None = partition.value
        if wanted is not None:
            yield from wanted.batches(kept_cluster(self._request.connection))
