"""Rows that say which attempt of which task wrote them, for sinks that hold what a lost attempt has committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PARTITION = "stateflow_partition"
ATTEMPT = "stateflow_attempt"


def with_attempts(frame: DataFrame) -> DataFrame:
    """The rows with two columns more: the number of the task's partition, and that of its attempt.

    Attempts are counted over all of a Spark application, so of one partition the newest has the greatest number.
    """
    from pyspark.sql.types import IntegerType, LongType, StructField, StructType

    added = [StructField(PARTITION, IntegerType(), False), StructField(ATTEMPT, LongType(), False)]
    return frame.mapInArrow(_stamped, StructType([*frame.schema.fields, *added]))


def _stamped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "this runs in a task"
    partition, attempt = (
        pa.scalar(task.partitionId(), pa.int32()),
        pa.scalar(task.taskAttemptId(), pa.int64()),
    )
    for batch in batches:
        stamps = [pa.repeat(value, batch.num_rows) for value in (partition, attempt)]
        yield pa.RecordBatch.from_arrays([*batch.columns, *stamps], [*batch.schema.names, PARTITION, ATTEMPT])
