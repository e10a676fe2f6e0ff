"""The change feed of a store as a stream of Spark: ``spark.readStream.format("stateflow").options(…, rows="changes")``.

Options beside those of the table: ``starting`` (``earliest``, the default: the newest change of each key at least, then
what follows; or ``latest``), and ``records_max``, about how many changelog records a micro-batch reads at most.

Only what is committed and decided is read. Spark keeps the offsets of each changelog partition in the query's
checkpoint and asks for the same range again after a failure, so each change reaches the sink once if the sink writes
a micro-batch once. What happens across a repartition: ``stateflow.query.feed``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from stateflow.errors import CatalogIncompatible, ConfigError
from stateflow.query.changes import ChangeRange, ChangeTable
from stateflow.query.columns import TableSpec
from stateflow.query.feed import Feed, FeedPlace, Start, checked_start
from stateflow.spark.connection import Connection
from stateflow.spark.kept_connection import kept_cluster

if TYPE_CHECKING:
    import pyarrow as pa

    from stateflow.log.base import Cluster

_LOOK_SECONDS = 0.5
"""Between two looks at a feed that had nothing new; Spark asks a hundred times a second."""


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """Which feed is asked for."""

    connection: Connection
    app: str
    store: str
    starting: Start
    records_max: int | None

    @classmethod
    def of(cls, options: Mapping[str, str], connection: Connection) -> FeedRequest:
        """Of a data source's options. Raises ``ConfigError``."""
        text = options.get("records_max")
        if text is not None and not (text.isdecimal() and int(text) > 0):
            raise ConfigError(
                f"records_max is {text!r}, which is no number of records.", action="give one above 0."
            )
        starting = checked_start(options.get("starting", "earliest"))
        return cls(
            connection, options["app"], options["store"], starting, None if text is None else int(text)
        )

    def columns(self) -> str:
        """The schema. Raises ``CatalogMissing``, ``ConfigError`` for an unknown store."""
        cluster = self.connection.open()
        try:
            return Feed(cluster, self.app, self.store).table().ddl
        finally:
            cluster.close()


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in one Python process beside the driver; ``read`` runs on executors."""

    def __init__(self, request: FeedRequest) -> None:
        self._request = request
        self._opened: tuple[Cluster, Feed] | None = None
        self._until: FeedPlace | None = None
        self._quiet: tuple[Mapping[str, Any], float] | None = None
        """Where there was nothing new, and when that was."""
        self._table: ChangeTable | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to executors; a connection does not."""
        return {**self.__dict__, "_opened": None, "_table": None}

    # --- planning -------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return self._feed.first(self._request.starting).to_fields()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """``records_max``."""
        return (
            ReadAllAvailable()
            if self._request.records_max is None
            else ReadMaxRows(self._request.records_max)
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """The query ends where the feed ends now."""
        self._until = self._feed.latest()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """How far the next micro-batch goes."""
        if self._quiet is not None and self._until is None:
            place, seconds = self._quiet
            if place == start and time.monotonic() - seconds < _LOOK_SECONDS:
                return start
        begun = FeedPlace.from_fields(start)
        slots = (
            max(1, limit.max_rows // max(1, len(begun.offsets))) if isinstance(limit, ReadMaxRows) else None
        )
        found = self._feed.next(begun, slots, self._until).to_fields()
        self._quiet = (start, time.monotonic()) if found == start else None
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One for each changelog partition that has something in the range."""
        if start == end:
            return []
        ranges = self._feed.ranges(FeedPlace.from_fields(start), FeedPlace.from_fields(end))
        for each in ranges:
            self._check_columns(each)
        return [InputPartition(each) for each in ranges]

    def stop(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    def _check_columns(self, wanted: ChangeRange) -> None:
        """The columns are those that the query began with."""
        now = ChangeTable(TableSpec(**wanted.table))
        self._table = self._table or now
        if now.columns != self._table.columns:
            raise CatalogIncompatible(
                f"the store {self._request.store!r} has other columns than when the query was started: {now.ddl}.",
                action="start the query again, with the same checkpoint folder if its sink takes the new columns.",
                store=self._request.store,
            )

    @property
    def _feed(self) -> Feed:
        if self._opened is None:
            cluster = self._request.connection.open()
            self._opened = cluster, Feed(cluster, self._request.app, self._request.store)
        return self._opened[1]

    # --- on executors ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one range."""
        changes: ChangeRange = partition.value
        yield from changes.batches(kept_cluster(self._request.connection))
