"""Spark's own events of a streaming query, brought together with what our tasks counted.

Spark counts the rows of the query, and those are tasks (``runner.py``): so the records of a micro-batch are ours, and
its times are Spark's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from stateflow.catalog.model import Catalog
from stateflow.spark.epoch import EpochResult
from stateflow.spark.progress import ProgressFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def listening(session: SparkSession, file: ProgressFile, query_name: str) -> Iterator[ProgressListener]:
    """Inside, the progress of a query is written to a file."""
    listener = ProgressListener(file, query_name)
    session.streams.addListener(listener)
    try:
        yield listener
    finally:
        listener.close(session)


class ProgressListener(StreamingQueryListener):
    """Writes a line for each micro-batch of one query, once Spark has told of its end.

    Spark calls it by a thread of its own, after the micro-batch; ``note`` and ``close`` are the query's driver's.
    """

    def __init__(self, file: ProgressFile, query_name: str) -> None:
        self._file = file
        self._query_name = query_name
        self._lock = threading.Lock()
        self._tasks: dict[int, int] = {}
        """Tasks of the micro-batches that Spark has not told of yet."""
        self._is_closed = False

    def note(self, batch: int, results: Sequence[EpochResult]) -> None:
        """What a micro-batch has committed."""
        with self._lock:
            self._file.note(results)
            self._tasks[batch] = len(results)

    def look_at(self, catalog: Catalog) -> None:
        """The query goes on with the tasks of this catalog."""
        with self._lock:
            self._file.look_at(catalog)

    def close(self, session: SparkSession) -> None:
        """The query has ended: write the last line, with all that was counted."""
        session.streams.removeListener(self)
        with self._lock:
            self._is_closed = True
            self._file.write(has_ended=True)

    # --- called by Spark ------------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing: the first line is that of the first micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A micro-batch has ended, or there was nothing to do for a while."""
        progress = event.progress
        if progress.name != self._query_name:
            return
        batch: dict[str, Any] = {
            "id": progress.batchId,
            "tasks": 0,
            "trigger_ms": progress.durationMs.get("triggerExecution"),
        }
        with self._lock:
            if not self._is_closed:
                batch["tasks"] = self._tasks.pop(progress.batchId, 0)
                self._file.write(batch=batch)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing: how far behind it is stands in the line before, and nothing was read since."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing: the driver writes the last line, as it knows that this end is the run's."""
