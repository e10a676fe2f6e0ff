"""Changes of a store as columns: the records of its changelog, each decoded into a row. Free of Spark.

A row for each key that a commit changed, in the order of the changelog, with the whole new value, or ``deleted``. What
a commit that was torn left behind (``docs/exactly-once.md``) is put right by its task with the commit that comes next
in the log; so of several records of one key before one commit record only the last is a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pyarrow as pa

from stateflow.changelog.commit_record import COMMIT_KEY
from stateflow.changelog.format import is_reserved
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.query.columns import ROWS_PER_BATCH, RowDecoder, TableSpec
from stateflow.query.sql_types import ARROW_TYPES
from stateflow.record import OffsetRange, TopicPartition

HELD_RECORDS_MAX = 200_000
"""Changes of one commit that are held until its commit record is read; of a larger one the first go on without it."""
HELD_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """The columns of a store's changes: those of its table, and what is known of each change."""

    table: TableSpec

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of each column, in order.

        ``value`` is null where ``deleted`` is true; ``changed_at`` is when the broker appended the record. The triple
        of ``generation``, ``partition`` and ``offset`` names a change, and is the same however often it is read.
        """
        kept = [column for column in self.table.all_columns if column[0] != "partition"]
        of_change = [
            ("deleted", "boolean"),
            ("changed_at", "timestamp"),
            ("generation", "int"),
            ("partition", "int"),
            ("offset", "bigint"),
        ]
        return [*kept, *of_change]

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns with their Arrow types; times are microseconds of UTC."""
        return pa.schema([(name, ARROW_TYPES[kind]()) for name, kind in self.columns])

    @property
    def ddl(self) -> str:
        """The columns as Spark reads a schema."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """A part of one changelog partition, to be read as rows. It travels to whoever reads it."""

    table: Mapping[str, Any]
    """Of the ``TableSpec``, as ``to_fields`` gives it."""
    generation: int
    source: TopicPartition
    offsets: OffsetRange

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of each column."""
        return ChangeTable(TableSpec(**self.table)).columns

    def batches(self, cluster: Cluster) -> Iterator[pa.RecordBatch]:
        """The rows, in the order of the changelog. Raises ``OffsetOutOfRange``, ``DecodeError``."""
        rows = _Rows(TableSpec(**self.table), self.generation, self.source.partition)
        for batch in read_range(cluster, self.source, self.offsets):
            columns = (batch.offsets, batch.timestamps_ms, batch.keys, batch.values)
            for offset, timestamp_ms, key, value in zip(*columns, strict=True):
                if key == COMMIT_KEY:
                    rows.end_commit()
                elif not is_reserved(key):
                    rows.add(_Change(offset, timestamp_ms, key, value))
            yield from rows.batches(ROWS_PER_BATCH)
        rows.end_commit()
        yield from rows.batches(1)


@dataclass(frozen=True, slots=True)
class _Change:
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class _Rows:
    """Changes that wait for their commit record, and those that wait to become a batch."""

    spec: TableSpec
    generation: int
    partition: int
    _held: dict[bytes, _Change] = field(default_factory=dict)
    _held_bytes: int = 0
    _ready: list[_Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._decoder = RowDecoder(self.spec)
        self._schema = ChangeTable(self.spec).arrow_schema

    _decoder: RowDecoder = field(init=False)
    _schema: pa.Schema = field(init=False)

    def add(self, change: _Change) -> None:
        self._held.pop(change.key, None)  # so that the order is that of the last of each key
        self._held[change.key] = change
        self._held_bytes += len(change.key) + len(change.value or b"")
        if len(self._held) >= HELD_RECORDS_MAX or self._held_bytes >= HELD_BYTES_MAX:
            self.end_commit()

    def end_commit(self) -> None:
        self._ready += [each for each in self._held.values() if self._decoder.is_row(each.key)]
        self._held.clear()
        self._held_bytes = 0

    def batches(self, rows_min: int) -> Iterator[pa.RecordBatch]:
        while len(self._ready) >= rows_min:
            rows, self._ready = self._ready[:ROWS_PER_BATCH], self._ready[ROWS_PER_BATCH:]
            yield self._batch(rows)

    def _batch(self, rows: list[_Change]) -> pa.RecordBatch:
        rows = self._decoder.readable(rows, attrgetter("key"))
        columns = self._decoder.columns([row.key for row in rows], [])
        kept = [number for number, row in enumerate(rows) if row.value is not None]
        values = [row.value for row in rows if row.value is not None]
        of_values = self._decoder.columns([], values)
        for name, found in of_values.items():
            if found and name not in ("key", *(part for part, _ in self.spec.parts)):
                spread: list[Any] = [None] * len(rows)
                for number, value in zip(kept, found, strict=True):
                    spread[number] = value
                columns[name] = spread
        columns |= {
            "deleted": [row.value is None for row in rows],
            "changed_at": [row.timestamp_ms * 1000 for row in rows],
            "generation": [self.generation] * len(rows),
            "partition": [self.partition] * len(rows),
            "offset": [row.offset for row in rows],
        }
        nothing: list[Any] = [None] * len(rows)
        arrays = [pa.array(columns.get(at.name) or nothing, at.type) for at in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
