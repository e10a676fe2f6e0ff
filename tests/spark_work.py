"""A little of what tests do with Spark: what it needs classes for, when an archive of them is made."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from stateflow.spark.session import spark_session


def main() -> None:
    """Rows through Python, through a shuffle and files, and a streaming query over those."""
    with spark_session() as session, tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "rows"
        rows = session.range(1_000).selectExpr("id", "cast(id % 7 as string) as key")
        rows.mapInArrow(_same, rows.schema).groupBy("key").count().orderBy("key").collect()
        rows.write.json(str(files))
        session.createDataFrame([("a", 1)], "key string, number long").join(rows, "key").collect()
        stream = session.readStream.schema("id long, key string").json(str(files)).writeStream
        stream = stream.foreachBatch(_count).trigger(availableNow=True)
        stream.option("checkpointLocation", str(Path(folder) / "checkpoint")).start().awaitTermination()


def _count(batch: DataFrame, _number: int) -> None:
    batch.count()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
