"""The connection to Kafka that an executor's Python process keeps between the tasks of a job."""

from __future__ import annotations

import functools
import gc

from stateflow.log.base import Cluster
from stateflow.spark.connection import Connection

_kept: list[tuple[Connection, Cluster]] = []
"""At most one. Empty in the driver."""


def kept_cluster(connection: Connection) -> Cluster:
    """A connection that stays open until this process ends, or is asked for another one.

    Spark's Python workers run one task at a time and serve many; they end with their session, or when idle for a
    minute.
    """
    if _kept and _kept[0][0] == connection:
        return _kept[0][1]
    while _kept:
        _kept.pop()[1].close()
    cluster = connection.open()
    _kept.append((connection, cluster))
    spare_what_stays()
    return cluster


@functools.cache
def spare_what_stays() -> None:
    """Once per process: take what is imported by now, and stays, out of the garbage collector's sight.

    Spark's Python worker collects everything after each task (``pyspark/daemon.py``), which took 40 ms of CPU time: for
    small tasks more than their work.
    """
    gc.freeze()
