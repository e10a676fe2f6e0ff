"""A driver that writes files of rows into several databases, and kills itself at a failpoint when it is told to.

    python -m tests.spark.jdbc_driver '{"rows": …, "checkpoint": …, "databases": {…}, "point": …, "hit": …}'

It must lead a process group of its own: the driver's Java process, which holds the connections, is killed with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from stateflow.failpoints import arm
from stateflow.spark.session import SparkSettings, spark_session
from stateflow.spark.to_jdbc import JdbcWriter
from tests.spark.jdbc_databases import with_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(asked: dict[str, Any]) -> None:
    """One micro-batch for each file, until all are written."""
    if asked["point"]:
        arm(Killer(asked["point"], asked["hit"]))
    writers = [
        JdbcWriter({"url": url}, "numbers", name=name) for name, url in sorted(asked["databases"].items())
    ]

    def write(frame: DataFrame, batch: int) -> None:
        for writer in writers:
            writer(frame, batch)

    with spark_session(SparkSettings(is_python=True, conf=with_jars())) as session:
        rows = session.readStream.schema("number int").option("maxFilesPerTrigger", 1).json(asked["rows"])
        query = rows.repartition(2).writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", asked["checkpoint"]).start().awaitTermination()


class Killer:
    """A handler of failpoints: this process and its Java process are gone at one of them."""

    def __init__(self, point: str, hit: int) -> None:
        self._point = point
        self._hits_left = hit

    def __call__(self, point: str) -> None:
        """Count the point that is meant."""
        self._hits_left -= point == self._point
        if not self._hits_left:
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
