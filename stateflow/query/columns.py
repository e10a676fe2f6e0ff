"""State as columns: which columns a store has, and its entries decoded into them. Free of Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import itemgetter
from typing import Any, TypeVar

import pyarrow as pa

from stateflow.catalog.evolution import split_codec
from stateflow.catalog.model import KeyLayout, SchemaEntry, StoreKind
from stateflow.changelog.format import is_reserved
from stateflow.codec.from_text import admits_any_text
from stateflow.codec.table import from_description
from stateflow.codec.timed import NEVER_MS
from stateflow.errors import ConfigError, DecodeError, EncodeError
from stateflow.log.base import Cluster
from stateflow.query.sql_types import ARROW_TYPES, SQL_TYPES, sql_type, sql_values
from stateflow.scale.live_columns import live_columns
from stateflow.scale.ranges import ChangelogRange
from stateflow.scale.reading import STATE_BYTES_MAX
from stateflow.state.evolution import tool_codec
from stateflow.state.layout import index_of, routing_key, split_prefixed, split_window
from stateflow.state.path import instant_of, split_path

ROWS_PER_BATCH = 20_000
_INDEX_BYTES = 8
_SHOWN_KEYS = 10
_LOG = logging.getLogger(__name__)
E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """How the entries of one compacted topic read as a table."""

    kind: StoreKind
    layout: KeyLayout
    key_codec: Mapping[str, Any]
    value_codec: Mapping[str, Any]
    schemas: Sequence[Mapping[str, Any]] = ()
    """Every schema of which the store holds values, where values may say by which they were written."""
    wanted: Sequence[str] = ()
    """The columns to decode; empty for all."""

    def to_fields(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "kind": self.kind,
            "layout": self.layout,
            "key_codec": dict(self.key_codec),
            "value_codec": dict(self.value_codec),
            **({"schemas": [dict(schema) for schema in self.schemas]} if self.schemas else {}),
            **({"wanted": list(self.wanted)} if self.wanted else {}),
        }

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of the columns between key and value, where a key has several entries."""
        if self.layout == "plain" or self.kind == "set":
            return []
        if self.layout == "window":
            return [("window_start", "timestamp")]
        if self.kind == "list":
            return [("index", "bigint")]
        if self.kind == "versioned":
            return [("valid_from", "timestamp")]
        if self.kind == "nested":
            numbered = enumerate(self.key_part_codecs, 1)
            return [(f"map_key_{number}", sql_type(codec)) for number, codec in numbered]
        return [("map_key", sql_type(self.key_part_codecs[0]))]

    @property
    def key_part_codecs(self) -> Sequence[Mapping[str, Any]]:
        """Codecs of a map's keys, outermost first, or of a set's elements; bytes where the catalog does not say."""
        described = self.value_codec
        one = described.get("map_key") or described.get("element") or {"codec": "bytes"}
        return described.get("map_keys") or [one]

    @property
    def has_times(self) -> bool:
        """True when every value stands behind the event time of its write."""
        return self.value_codec["codec"] in ("timestamped", "expiring")

    @property
    def has_expiries(self) -> bool:
        """True when every value also stands behind the event time of its expiry."""
        return bool(self.value_codec["codec"] == "expiring")

    @property
    def plain_value_codec(self) -> Mapping[str, Any]:
        """Codec of the value alone, the element's for a set."""
        if self.kind == "set":
            return self.key_part_codecs[0]
        described = self.value_codec["value"] if self.has_times else self.value_codec
        return described["value"] if self.kind == "versioned" else described

    @property
    def value_type(self) -> str:
        """Spark SQL type of the values; text where those of older schemas have another."""
        return "string" if self.is_mixed else sql_type(self.plain_value_codec)

    @property
    def is_mixed(self) -> bool:
        """True when values of different types stand side by side, written by different schemas."""
        types = {sql_type(split_codec(schema["value_codec"])[1]) for schema in self.schemas}
        return len(types) > 1

    def only(self, wanted: Sequence[str]) -> TableSpec:
        """The same table with only these columns, in its own order. Raises ``ConfigError`` for an unknown one."""
        known = [name for name, _ in self.all_columns]
        unknown = sorted(set(wanted) - set(known))
        if unknown:
            raise ConfigError(
                f"the table has no column {unknown[0]!r}.", action=f"its columns are: {', '.join(known)}."
            )
        return replace(self, wanted=tuple(name for name in known if name in wanted))

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of each column that is wanted, in order."""
        return [(name, kind) for name, kind in self.all_columns if not self.wanted or name in self.wanted]

    @property
    def all_columns(self) -> list[tuple[str, str]]:
        """Name and Spark SQL type of each column that there is, in order."""
        return [
            ("key", sql_type(self.key_codec)),
            *self.parts,
            ("value", self.value_type),
            *([("written_at", "timestamp")] if self.has_times else []),
            *([("expires_at", "timestamp")] if self.has_expiries else []),
            ("partition", "int"),
        ]

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns with their Arrow types; times are microseconds of UTC."""
        return pa.schema([(name, ARROW_TYPES[kind]()) for name, kind in self.columns])

    def routing_key(self, key: object) -> bytes | None:
        """The bytes of a value of the column ``key``; None where the column shows keys otherwise than they are stored.

        Text of JSON, floating-point numbers (0.0 equals -0.0) and booleans are such: they are compared row by row.
        """
        kind = self.key_codec["codec"]
        if SQL_TYPES.get(kind) not in ("binary", "string", "bigint"):
            return None
        try:
            return from_description(self.key_codec).encode(key)
        except EncodeError:
            return None

    def shown_keys(self, key: object) -> list[object]:
        """What the column ``key`` shows for a key: one given as a value of the key's type, or as the text it shows.

        A text stands for itself where every text is a key, but for one in quotes, which is taken for both. Raises
        ``ConfigError`` for what cannot be a key.
        """
        described = self.key_codec
        codec = from_description(described)
        try:
            shown = sql_values(described, [codec.decode(codec.encode(key))])
        except EncodeError as error:
            if not (isinstance(key, str) and _is_json(key)):
                raise ConfigError(
                    f"{key!r} is not a key of this table, whose keys are written as {dict(described)!r:.300}.",
                    action="give keys as values of the type that the application declares, or as JSON text of one.",
                ) from error
            shown = []
        if isinstance(key, str) and sql_type(described) == "string" and described["codec"] != "string":
            is_quoted = key.startswith('"')
            if _is_json(key) and (is_quoted or not admits_any_text(described)):
                shown.append(json.dumps(json.loads(key), sort_keys=True))
        return shown

    @property
    def ddl(self) -> str:
        """The columns as Spark reads a schema."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)


def table_batches(
    cluster: Cluster,
    spec: TableSpec,
    part: ChangelogRange,
    *,
    bytes_max: int = STATE_BYTES_MAX,
    end_now: Callable[[], int] | None = None,
    routing_keys: Collection[bytes] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The live entries of one partition, newest value per key, as Arrow batches of bounded size.

    With ``end_now`` others may write to it: what came meanwhile is read, too, up to the offset that it says.
    ``routing_keys`` are the only ones wanted; None wants all. About ``bytes_max`` is in memory. Entries under a key
    that cannot be decoded are left out with a warning. Raises ``DecodeError`` for a value that the codecs cannot read.
    """
    decoder, some = RowDecoder(spec), routing_keys or ()

    def is_wanted(key: bytes) -> bool:
        return not is_reserved(key) and routing_key(spec.layout, key) in some

    wanted = None if routing_keys is None else is_wanted
    for keys, values in live_columns(cluster, part, bytes_max, end_now=end_now, is_wanted=wanted):
        if spec.kind == "list":
            chosen = [decoder.is_row(key) for key in keys]
            keys, values = list(compress(keys, chosen)), list(compress(values, chosen))
        for first in range(0, len(keys), ROWS_PER_BATCH):
            after = first + ROWS_PER_BATCH
            yield decoder.batch(keys[first:after], values[first:after], part.source.partition)


class RowDecoder:
    """Turns entries of one topic into columns."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._schema = spec.arrow_schema
        self._key = from_description(spec.key_codec)
        self._key_parts = [from_description(codec) for codec in spec.key_part_codecs]
        schemas = [SchemaEntry(**schema) for schema in spec.schemas]
        self._value = tool_codec(spec.value_codec, schemas)
        shown = {name for name, _ in spec.columns}
        of_values = {"value", "written_at", "expires_at"}
        self._reads_keys = bool(shown - of_values - {"partition"}) or spec.kind == "set"
        self._told: set[bytes] = set()
        self._reads_values = bool(shown & of_values)

    def is_row(self, key: bytes) -> bool:
        """False for a list's own bookkeeping, which stands beside its elements."""
        return self._spec.kind != "list" or len(split_prefixed(key)[1]) == _INDEX_BYTES

    def batch(self, keys: list[bytes], values: list[bytes], partition: int) -> pa.RecordBatch:
        """The columns of some entries of one partition."""
        try:
            columns = self.columns(keys, values)
        except DecodeError:  # of a key, or of a value: that comes up again
            entries = self.readable(list(zip(keys, values, strict=True)), itemgetter(0))
            keys, values = [key for key, _ in entries], [value for _, value in entries]
            columns = self.columns(keys, values)
        columns["partition"] = [partition] * len(keys)
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def readable(self, entries: Sequence[E], key_of: Callable[[E], bytes]) -> list[E]:
        """The entries whose routing keys the codec reads; the others are left out with a warning that has their bytes.

        Nothing is left out where the keys are not read.
        """
        if not self._reads_keys:
            return list(entries)
        keys = [routing_key(self._spec.layout, key_of(entry)) for entry in entries]
        if self._key.reads_all(keys):
            return list(entries)
        bad = {key for key in set(keys) if not self._key.reads_all([key])}
        if new := sorted(bad - self._told):
            shown = ", ".join(key.hex() for key in new[:_SHOWN_KEYS])
            more = "" if len(new) <= _SHOWN_KEYS else f" and {len(new) - _SHOWN_KEYS} more"
            _LOG.warning(
                "%d keys cannot be read by %r; their rows are left out: %s%s",
                len(new),
                self._key,
                shown,
                more,
            )
            self._told.update(new)
        return [entry for entry, key in zip(entries, keys, strict=True) if key not in bad]

    def columns(self, keys: list[bytes], values: list[bytes]) -> dict[str, list[Any]]:
        """By name, what stands in each column that is wanted, the partition's left out.

        Either list may be empty: its columns are then, too.
        """
        columns: dict[str, list[Any]] = {}
        if self._reads_keys:
            self._add_keys(columns, keys)
        if self._reads_values:
            self._add_values(columns, values)
        return columns

    def _add_keys(self, columns: dict[str, list[Any]], store_keys: list[bytes]) -> None:
        keys, parts = self._split(store_keys)
        columns["key"] = sql_values(self._spec.key_codec, self._key.decode_many(keys))
        names = ["value"] if self._spec.kind == "set" else [name for name, _ in self._spec.parts]
        columns.update(zip(names, parts, strict=True))

    def _add_values(self, columns: dict[str, list[Any]], data: list[bytes]) -> None:
        values: list[Any] = list(self._value.decode_many(data))
        if self._spec.has_times:
            columns["written_at"] = [timed.timestamp_ms * 1000 for timed in values]
            if self._spec.has_expiries:
                columns["expires_at"] = [_instant(timed.expires_ms) for timed in values]
            values = [timed.value for timed in values]
        if self._spec.kind != "set":  # whose values are parts of its keys
            columns["value"] = self._values(values)

    def _values(self, values: list[Any]) -> list[Any]:
        # Where other types stand beside the present one, all are JSON text.
        return sql_values({"codec": "json"} if self._spec.is_mixed else self._spec.plain_value_codec, values)

    def _split(self, keys: list[bytes]) -> tuple[list[bytes], list[list[Any]]]:
        """Routing keys, and the columns beside them."""
        if self._spec.layout == "plain":
            return keys, []
        if self._spec.layout == "window":
            windows = [split_window(key) for key in keys]
            return [key for key, _ in windows], [[start_ms * 1000 for _, start_ms in windows]]
        parts = [split_prefixed(key) for key in keys]
        rests = [rest for _, rest in parts]
        if self._spec.kind == "list":
            return [key for key, _ in parts], [[index_of(rest) for rest in rests]]
        return [key for key, _ in parts], self._key_columns(rests)

    def _key_columns(self, rests: list[bytes]) -> list[list[Any]]:
        """What follows the routing keys of a map, set or versioned value, as columns."""
        if self._spec.kind == "versioned":
            return [[instant_of(rest) * 1000 for rest in rests]]
        if self._spec.kind == "set":
            return [sql_values(self._spec.key_part_codecs[0], self._key_parts[0].decode_many(rests))]
        paths = [list(split_path(rest, len(self._key_parts))) for rest in rests]
        codecs = zip(self._spec.key_part_codecs, self._key_parts, range(len(self._key_parts)), strict=True)
        return [
            sql_values(described, codec.decode_many([path[depth] for path in paths]))
            for described, codec, depth in codecs
        ]


def _instant(expires_ms: int) -> int | None:
    return None if expires_ms == NEVER_MS else expires_ms * 1000


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True
