"""The work of the jobs as one would write it in PySpark: every record through a shuffle, `max_by` the offset.

It reads and writes with the same Kafka client, as pyspark comes without a connector. Nothing of it survives a crash, is
transactional or is audited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from stateflow.changelog.format import is_reserved
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.spark.connection import Connection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_CHUNK_ROWS = 10_000


def newest(
    session: SparkSession, connection: Connection, logs: Mapping[TopicPartition, OffsetRange]
) -> DataFrame:
    """The live entries of changelog partitions, `key` and `value`; each partition is read by one task."""
    from pyspark.sql import functions

    rows = session.createDataFrame(
        [(*source, *offsets) for source, offsets in logs.items()],
        "topic string, partition int, offset_first long, offset_next long",
    ).repartition(len(logs), "partition")
    records = rows.mapInArrow(reading(connection), "key binary, value binary, offset long")
    found = records.groupBy("key").agg(functions.max_by("value", "offset").alias("value"))
    return found.where("value IS NOT NULL")


def reading(connection: Connection) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What reads the partitions that its rows name."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for row in (row for batch in batches for row in batch.to_pylist()):
            source = TopicPartition(row["topic"], row["partition"])
            offsets = OffsetRange(row["offset_first"], row["offset_next"])
            with closing(connection.open()) as cluster:
                for records in read_range(cluster, source, offsets):
                    kept = [at for at, key in enumerate(records.keys) if not is_reserved(key)]
                    yield pa.RecordBatch.from_pydict(
                        {
                            "key": pa.array([records.keys[at] for at in kept], pa.binary()),
                            "value": pa.array([records.values[at] for at in kept], pa.binary()),
                            "offset": pa.array([records.offsets[at] for at in kept], pa.int64()),
                        }
                    )

    return read


def writing(connection: Connection, topic: str, routing: RoutingTable) -> Callable[[Iterable[Any]], None]:
    """What writes the rows of a partition to a topic."""

    def write(rows: Iterable[Any]) -> None:
        with closing(connection.open()) as cluster, closing(cluster.writer()) as writer:
            keys: list[bytes] = []
            values: list[bytes] = []
            for row in rows:
                keys.append(bytes(row.key))
                values.append(bytes(row.value))
                if len(keys) == _CHUNK_ROWS:
                    writer.send_many(topic, keys, values, partitions=routing.partitions_of(keys))
                    keys, values = [], []
            writer.send_many(topic, keys, values, partitions=routing.partitions_of(keys))
            writer.commit()

    return write
