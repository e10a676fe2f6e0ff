"""Spark's own offline repartition of a streaming query's state: as many keys, values of the same size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stateflow.errors import SetupError
from stateflow.lab.spark_bench.tree_cpu import tree_cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class OwnRepartition:
    """What it took."""

    keys: int
    seconds: float
    cpu_seconds: float


def repartition_own_state(
    session: SparkSession, folder: Path, keys: int, value_bytes: int, partitions: tuple[int, int]
) -> OwnRepartition:
    """Make the state of a streaming query that keeps one value per key, stop the query, repartition its checkpoint.

    Raises ``SetupError`` where this Spark cannot do it: it came with 4.2.
    """
    manager = getattr(session, "_streamingCheckpointManager", None)
    if manager is None:
        raise SetupError(
            "this Spark has no offline repartition of its state.", action="install pyspark 4.2 or newer."
        )
    before, after = partitions
    source, checkpoint = str(folder / "source"), str(folder / "checkpoint")
    made = session.range(keys).selectExpr(
        "printf('user-%011d', id) AS key", f"repeat(char(97 + id % 26), {value_bytes}) AS value"
    )
    made.write.parquet(source)
    with rocks_state(session, before):
        stream = session.readStream.schema(made.schema).parquet(source)
        counted = stream.groupBy("key").agg({"value": "max"})
        query = (
            counted.writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        began, cpu_seconds = time.monotonic(), tree_cpu_seconds()
        manager.repartition(checkpoint, after)
        seconds, cpu_seconds = time.monotonic() - began, tree_cpu_seconds() - cpu_seconds
        state = session.read.format("statestore").load(checkpoint)
        return OwnRepartition(state.count(), seconds, cpu_seconds)


@contextmanager
def rocks_state(session: SparkSession, partitions: int) -> Iterator[None]:
    """Streaming queries that begin in the block keep state in RocksDB, in so many partitions."""
    wanted = {**_CONF, "spark.sql.shuffle.partitions": str(partitions)}
    before = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, earlier)
