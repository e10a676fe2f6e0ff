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
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from stateflow.errors import CatalogIncompatible, ConfigError
from stateflow.query.feed import Feed, FeedPlace, Start, checked_start
from stateflow.spark.connection import Connection
from stateflow.spark.kept_connection import kept_cluster

if TYPE_CHECKING:
    import pyarrow as pa

    from stateflow.log.base import Cluster

_LOOK_SECONDS = 0.5
"""Between two looks at a feed that had nothing new; Spark asks a hundred times a second."""


class Range(Protocol):
    """What one task reads; it travels."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of each column."""
        ...

    def batches(self, cluster: Cluster) -> Iterator[pa.RecordBatch]:
        """The rows."""
        ...


class Plan(Protocol):
    """What plans micro-batches: ``query.feed.Feed``, ``query.records.TopicFeed``."""

    def first(self, start: Start) -> FeedPlace:
        """Where a new query begins."""
        ...

    def latest(self) -> FeedPlace:
        """Where the feed ends now."""
        ...

    def next(self, start: FeedPlace, slots_max: int | None, until: FeedPlace | None) -> FeedPlace:
        """Where to read to from there."""
        ...

    def ranges(self, start: FeedPlace, end: FeedPlace) -> Sequence[Range]:
        """What is between two places."""
        ...


class Request(Protocol):
    """Which feed is asked for, and how its broker is reached."""

    @property
    def connection(self) -> Connection:
        """It travels with the tasks, and shows nowhere else."""
        ...

    @property
    def limits(self) -> FeedLimits:
        """Where it begins, and how much a micro-batch takes."""
        ...

    def plan(self, cluster: Cluster) -> Plan:
        """What plans it."""
        ...


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Options of every feed."""

    starting: Start = "earliest"
    records_max: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> FeedLimits:
        """Of a data source's options. Raises ``ConfigError``."""
        text = options.get("records_max")
        if text is not None and not (text.isdecimal() and int(text) > 0):
            raise ConfigError(
                f"records_max is {text!r}, which is no number of records.", action="give one above 0."
            )
        starting = checked_start(options.get("starting", "earliest"))
        return cls(starting, None if text is None else int(text))


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """The changes of a store are asked for."""

    connection: Connection
    app: str
    store: str
    limits: FeedLimits

    def plan(self, cluster: Cluster) -> Feed:
        """What plans it."""
        return Feed(cluster, self.app, self.store)

    def columns(self) -> str:
        """The schema. Raises ``CatalogMissing``, ``ConfigError`` for an unknown store."""
        with closing(self.connection.open()) as cluster:
            return self.plan(cluster).table().ddl


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in one Python process beside the driver; ``read`` runs on executors."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._opened: tuple[Cluster, Plan] | None = None
        self._until: FeedPlace | None = None
        self._quiet: tuple[Mapping[str, Any], float] | None = None
        """Where there was nothing new, and when that was."""
        self._columns: list[tuple[str, str]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to executors; a connection does not."""
        return {**self.__dict__, "_opened": None, "_columns": None}

    # --- planning -------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return self._feed.first(self._request.limits.starting).to_fields()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """``records_max``."""
        return (
            ReadAllAvailable()
            if self._request.limits.records_max is None
            else ReadMaxRows(self._request.limits.records_max)
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

    def _check_columns(self, wanted: Range) -> None:
        """The columns are those that the query began with."""
        self._columns = self._columns or wanted.columns
        if wanted.columns != self._columns:
            raise CatalogIncompatible(
                "what is read has other columns than when the query was started: "
                f"{', '.join(f'{name} {kind}' for name, kind in wanted.columns)}.",
                action="start the query again, with the same checkpoint folder if its sink takes the new columns.",
            )

    @property
    def _feed(self) -> Plan:
        if self._opened is None:
            cluster = self._request.connection.open()
            self._opened = cluster, self._request.plan(cluster)
        return self._opened[1]

    # --- on executors ---------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        wanted: Range = partition.value
        yield from wanted.batches(kept_cluster(self._request.connection))
