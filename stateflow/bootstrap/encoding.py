"""Rows as entries of a store: the way back from ``query.columns``, checked against what the application declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from stateflow.catalog.model import RoutingEntry, StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.table import key_from_description
from stateflow.codec.timed import NEVER_MS, Expiring, Timed
from stateflow.errors import ConfigError, DecodeError, EncodeError
from stateflow.partitioner import partition_of
from stateflow.query.columns import TableSpec
from stateflow.query.snapshot import table_of
from stateflow.query.sql_types import sql_type
from stateflow.routing import RoutingTable
from stateflow.state.evolution import Rewriter, schemas_of, tool_codec
from stateflow.state.layout import prefixed_key, window_key
from stateflow.state.path import step

KINDS = ("value", "counter", "reducing", "map", "nested", "set", "window")
"""Kinds of state whose rows say all that there is of them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_PLAIN = ("binary", "string", "bigint", "double", "boolean")


class Entry(NamedTuple):
    """One entry of a store, and the partition of the task that has it."""

    partition: int
    key: bytes
    value: bytes


@dataclass(slots=True)
class RowEncoder:
    """Encodes rows of one store. Columns are those of its table (``docs/spark.md``); ``partition`` is left aside.

    ``routing`` is the runtime's table; None for a store behind a source topic, whose ``partitions`` its producers fill
    as Kafka's default partitioner does. ``check`` reads a value as the application's code does.
    """

    entry: StoreEntry
    routing: RoutingEntry | None
    partitions: int
    check: Rewriter | None = None
    rows_total: int = 0
    """Rows encoded so far."""
    _table: TableSpec = field(init=False)
    _key: Codec[Any] = field(init=False)
    _parts: list[Codec[Any]] = field(init=False)
    _value: Codec[Any] = field(init=False)
    _routed: RoutingTable | None = field(init=False)

    def __post_init__(self) -> None:
        if self.entry.changelog_policy == "eventual":
            raise ConfigError(
                f"the store {self.entry.name!r} has an eventual changelog, whose values name their input.",
                action="let it begin empty: its windows are computed from the input.",
                store=self.entry.name,
            )
        if self.entry.kind not in KINDS:
            raise ConfigError(
                f"the store {self.entry.name!r} is of the kind {self.entry.kind!r}, which keeps more than its rows"
                " say.",
                action=f"write stores of these kinds: {', '.join(KINDS)}. Others begin empty.",
                store=self.entry.name,
            )
        self._table = table_of(self.entry)
        self._key = key_from_description(self.entry.key_codec)
        self._parts = [key_from_description(codec) for codec in self._table.key_part_codecs]
        self._value = tool_codec(self.entry.value_codec, schemas_of(self.entry))
        self._routed = None if self.routing is None else RoutingTable.from_entry(self.routing)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that rows must have."""
        return [name for name, _ in self._table.all_columns if name not in ("partition", "expires_at")]

    def check_columns(self, found: Sequence[str]) -> None:
        """Raise ``ConfigError`` for columns that are missing, or that nothing is known of."""
        known = [name for name, _ in self._table.all_columns]
        missing = [name for name in self.columns if name not in found]
        unknown = sorted(set(found) - set(known))
        if missing or unknown:
            what = f"lack the column {missing[0]!r}" if missing else f"have a column {unknown[0]!r}"
            raise ConfigError(
                f"the rows of {self.entry.name!r} {what}.",
                action=f"its columns are: {', '.join(known)}; of these `partition`"
                f"{' and `expires_at`' if 'expires_at' in known else ''} may be left out.",
                store=self.entry.name,
            )

    def entries(self, columns: Mapping[str, Sequence[Any]]) -> Iterator[Entry]:
        """The entries of some rows, given by column. Raises ``EncodeError`` that names the first bad row."""
        self.check_columns(list(columns))
        names = [name for name, _ in self._table.all_columns if name in columns]
        for cells in zip(*(columns[name] for name in names), strict=True):
            row = dict(zip(names, cells, strict=True))
            try:
                yield self._entry(row)
            except (EncodeError, DecodeError, ValueError, TypeError, OverflowError) as error:
                said = error.message if isinstance(error, EncodeError | DecodeError) else str(error)
                raise EncodeError(
                    f"row {self.rows_total} of {self.entry.name!r}, with the key {row['key']!r:.80}, does not fit:"
                    f" {said}",
                    action="correct the row, or the type that the application declares.",
                    store=self.entry.name,
                    row=self.rows_total,
                ) from error
            self.rows_total += 1

    # --- inside ---------------------------------------------------------------------------------------

    def _entry(self, row: Mapping[str, Any]) -> Entry:
        routing_key = self._key.encode(_cell(row["key"], self.entry.key_codec, "key"))
        key = self._store_key(routing_key, row)
        value = b"" if self.entry.kind == "set" and not self._table.has_times else self._stored(row)
        if self.check is not None:
            self.check(key, value)
        if self._routed is not None:
            return Entry(self._routed.partition_of(routing_key), key, value)
        return Entry(partition_of(routing_key, self.partitions), key, value)

    def _store_key(self, routing_key: bytes, row: Mapping[str, Any]) -> bytes:
        described = self._table.key_part_codecs
        if self.entry.layout == "plain":
            return routing_key
        if self.entry.layout == "window":
            return window_key(routing_key, _milliseconds(row["window_start"], "window_start"))
        if self.entry.kind == "set":
            return prefixed_key(
                routing_key, self._parts[0].encode(_cell(row["value"], described[0], "value"))
            )
        names = [name for name, _ in self._table.parts]
        cells = zip(names, described, self._parts, strict=True)
        encoded = [codec.encode(_cell(row[name], one, name)) for name, one, codec in cells]
        return prefixed_key(routing_key, b"".join([*map(step, encoded[:-1]), encoded[-1]]))

    def _stored(self, row: Mapping[str, Any]) -> bytes:
        if self.entry.kind == "set":
            value: Any = None
        else:
            value = _cell(
                row["value"], self._table.plain_value_codec, "value", may_be_text=self._table.is_mixed
            )
        if self._table.has_expiries:
            expires = row.get("expires_at")
            expires_ms = NEVER_MS if expires is None else _milliseconds(expires, "expires_at")
            value = Expiring(_milliseconds(row["written_at"], "written_at"), expires_ms, value)
        elif self._table.has_times:
            value = Timed(_milliseconds(row["written_at"], "written_at"), value)
        return self._value.encode(value)


def _cell(found: Any, codec: Mapping[str, Any], name: str, *, may_be_text: bool = False) -> Any:
    """A value of a column as its codec takes it; what has no simple type of its own may be JSON text."""
    inner = codec["value"] if codec["codec"] == "covered" else codec
    if found is None and inner["codec"] not in ("optional", "none", "json", "msgpack"):
        raise ValueError(f"the column {name} is null")
    is_simple = sql_type(inner) in _PLAIN and inner["codec"] in _SIMPLE
    if isinstance(found, str) and (may_be_text or not is_simple):
        return json.loads(found)
    if (
        isinstance(found, int)
        and not isinstance(found, bool)
        and inner["codec"] in ("float", "ordered-float")
    ):
        return float(found)
    if isinstance(found, bool) and inner["codec"] in ("integer", "ordered-integer"):
        raise TypeError(f"the column {name} is a boolean, not a number")
    return found


_SIMPLE = ("bytes", "string", "integer", "ordered-integer", "ordered-float", "float", "boolean")


def _milliseconds(found: Any, name: str) -> int:
    """A time as milliseconds since 1970 UTC; one without a time zone is of UTC."""
    if not isinstance(found, datetime):
        raise TypeError(f"the column {name} is {type(found).__name__}, not a timestamp")
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND
