"""State as columns: which columns a store has, and its entries decoded into them. Free of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stateflow.catalog.model import KeyLayout, StoreKind
from stateflow.codec.base import Codec
from stateflow.codec.describe import from_description
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.reading import live_state
from stateflow.state.layout import index_of, split_prefixed, split_window

ROWS_PER_BATCH = 20_000
_INDEX_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """How the entries of one compacted topic read as a table."""

    kind: StoreKind
    layout: KeyLayout
    key_codec: Mapping[str, Any]
    value_codec: Mapping[str, Any]

    def to_fields(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "kind": self.kind,
            "layout": self.layout,
            "key_codec": dict(self.key_codec),
            "value_codec": dict(self.value_codec),
        }

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of each column, in order."""
        middle = {
            "plain": [],
            "window": [("window_start", "timestamp")],
            "prefixed": [("index", "bigint")] if self.kind == "list" else [("part", "binary")],
        }[self.layout]
        return [
            ("key", sql_type(self.key_codec)),
            *middle,
            ("value", sql_type(self.value_codec)),
            ("partition", "int"),
        ]

    @property
    def ddl(self) -> str:
        """The columns as Spark reads a schema."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)


_SQL_TYPES = {
    "bytes": "binary",
    "string": "string",
    "integer": "bigint",
    "float": "double",
    "boolean": "boolean",
}
_ARROW_TYPES: dict[str, Callable[[], pa.DataType]] = {
    "binary": pa.binary,
    "string": pa.string,
    "bigint": pa.int64,
    "int": pa.int32,
    "double": pa.float64,
    "boolean": pa.bool_,
    "timestamp": lambda: pa.timestamp("us", tz="UTC"),
}


def sql_type(codec: Mapping[str, Any]) -> str:
    """The Spark SQL type of a codec's values; what has no simple type of its own is written as JSON text."""
    return _SQL_TYPES.get(codec["codec"], "string")


def table_batches(
    cluster: Cluster,
    spec: TableSpec,
    source: TopicPartition,
    offsets: OffsetRange,
    *,
    keys_max: int = 1_000_000,
) -> Iterator[pa.RecordBatch]:
    """The live entries of one partition, newest value per key, as Arrow batches of bounded size.

    Raises ``DecodeError`` for an entry that the codecs cannot read.
    """
    schema = pa.schema([(name, _ARROW_TYPES[kind]()) for name, kind in spec.columns])
    key_codec, value_codec = from_description(spec.key_codec), from_description(spec.value_codec)
    for state in live_state(cluster, source, offsets, keys_max=keys_max):
        entries = [(key, value) for key, value in state.items() if _is_row(spec, key)]
        for first in range(0, len(entries), ROWS_PER_BATCH):
            rows = entries[first : first + ROWS_PER_BATCH]
            columns = _columns(spec, key_codec, value_codec, rows)
            columns.append([source.partition] * len(rows))
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
                schema=schema,
            )


def _is_row(spec: TableSpec, key: bytes) -> bool:
    """False for a list's own bookkeeping, which stands beside its elements."""
    return spec.kind != "list" or len(split_prefixed(key)[1]) == _INDEX_BYTES


def _columns(
    spec: TableSpec, key_codec: Codec[Any], value_codec: Codec[Any], rows: Sequence[tuple[bytes, bytes]]
) -> list[list[Any]]:
    keys = [key for key, _ in rows]
    middle: list[list[Any]] = []
    if spec.layout == "window":
        parts = [split_window(key) for key in keys]
        middle = [[start_ms * 1000 for _, start_ms in parts]]
        keys = [key for key, _ in parts]
    elif spec.layout == "prefixed":
        split = [split_prefixed(key) for key in keys]
        middle = [[index_of(rest) if spec.kind == "list" else rest for _, rest in split]]
        keys = [key for key, _ in split]
    values = value_codec.decode_many([value for _, value in rows])
    return [
        _simple(spec.key_codec, key_codec.decode_many(keys)),
        *middle,
        _simple(spec.value_codec, values),
    ]


def _simple(codec: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
    if codec["codec"] in _SQL_TYPES:
        return list(values)
    return [
        None if value is None else json.dumps(value, default=_as_text, sort_keys=True) for value in values
    ]


def _as_text(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)
