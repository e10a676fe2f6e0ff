"""A Spark data source that reads state as a table: ``spark.read.format("stateflow").option("spec", …)``.

One Spark task per changelog partition, each up to an offset fixed when the query is planned; every partition
is whole and consistent with itself. The connector of Spark for Kafka is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.whole import Base, find_base, with_base_slot
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, TopicMissing
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.decided import resolution_of
from stateflow.spark.columns import TableSpec, table_batches
from stateflow.spark.connection import Connection
from stateflow.state.evolution import schemas_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE_NAME = "stateflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One compacted topic up to fixed offsets, and how to read it."""

    topic: str
    table: TableSpec
    ranges: dict[int, OffsetRange]
    """Partition → offsets to read."""
    bases: dict[int, Base] = field(default_factory=dict)
    """Partition → the image that its log begins with, where it was trimmed; its range has a slot for it."""

    def to_json(self, connection: Connection) -> str:
        """Written, with the address to read it from, as the data source's option."""
        return json.dumps(
            {
                "brokers": connection.brokers,
                "client": dict(connection.client),
                "topic": self.topic,
                "table": self.table.to_fields(),
                "ranges": {str(partition): offsets for partition, offsets in self.ranges.items()},
                "bases": {str(partition): asdict(base) for partition, base in self.bases.items()},
            }
        )


def store_snapshot(cluster: Cluster, catalog: Catalog, store: str) -> Snapshot:
    """The present state of one of an application's stores, as its commits left it.

    Under exactly-once what stands behind the last commit record is left out, visible or not; a changelog that was
    deleted before images begins with one. Raises ``ConfigError`` for a store it does not have, ``ChangelogTrimmed``.
    """
    entry = catalog.stores.get(store)
    if entry is None:
        raise ConfigError(
            f"{catalog.app.app!r} has no store {store!r}.",
            action=f"its stores are: {', '.join(sorted(catalog.stores)) or 'none'}.",
        )
    generation = catalog.changelog_generation(entry.stage)
    table = TableSpec(
        kind=entry.kind,
        layout=entry.layout,
        key_codec=entry.key_codec,
        value_codec=entry.value_codec,
        schemas=[msgspec.to_builtins(schema) for schema in schemas_of(entry)],
    )
    whole = topic_snapshot(cluster, changelog_topic(catalog.app.app, store, generation), table)
    ranges: dict[int, OffsetRange] = {}
    bases: dict[int, Base] = {}
    for partition, log in whole.ranges.items():
        source = TopicPartition(whole.topic, partition)
        decided = resolution_of(cluster, catalog, entry.stage, partition).restore_next
        base = find_base(cluster, catalog, store, source, log, SystemClock())
        ranges[partition] = with_base_slot(log.until(decided.get(store, log.offset_next)), base)
        if base is not None:
            bases[partition] = base
    return replace(whole, ranges=ranges, bases=bases)


def topic_snapshot(cluster: Cluster, topic: str, table: TableSpec) -> Snapshot:
    """The present content of any compacted topic. Raises ``TopicMissing``."""
    info = cluster.describe([topic]).get(topic)
    if info is None:
        raise TopicMissing(
            f"there is no topic {topic!r}.", action="check its name and the brokers.", topic=topic
        )
    found = cluster.ranges(TopicPartition(topic, partition) for partition in range(info.partitions))
    return Snapshot(topic=topic, table=table, ranges={source.partition: log for source, log in found.items()})


def snapshot_frame(session: SparkSession, connection: Connection, snapshot: Snapshot) -> DataFrame:
    """The newest value per key as a DataFrame; lazy, and the same however often it is evaluated.

    Unless the cleaner or retention removes what lies below the fixed offsets and above them has a newer
    value: evaluate once and keep the result (Parquet, ``cache``) when that matters.
    """
    session.dataSource.register(StateSource)
    return session.read.format(SOURCE_NAME).option("spec", snapshot.to_json(connection)).load()


class StateSource(DataSource):
    """The data source ``stateflow``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SOURCE_NAME

    def schema(self) -> str:
        """The columns that follow from the codecs."""
        return TableSpec(**json.loads(self.options["spec"])["table"]).ddl

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """The reader."""
        return StateReader(json.loads(self.options["spec"]))


class StateReader(DataSourceReader):
    """One Spark partition per topic partition."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions that hold anything."""
        ranges = self._spec["ranges"].items()
        found = [(int(partition), OffsetRange(*offsets)) for partition, offsets in ranges]
        bases = self._spec["bases"]
        return [
            InputPartition((partition, tuple(offsets), bases.get(str(partition))))
            for partition, offsets in found
            if not offsets.is_empty
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The live entries of one of them."""
        number, offsets, base = partition.value
        cluster = Connection(self._spec["brokers"], self._spec["client"]).open()
        try:
            source = TopicPartition(self._spec["topic"], number)
            yield from table_batches(
                cluster,
                TableSpec(**self._spec["table"]),
                source,
                OffsetRange(*offsets),
                base=None if base is None else Base(**base),
            )
        finally:
            cluster.close()
