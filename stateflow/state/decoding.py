"""Rows of a store as a person reads them, by the catalog's description alone."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.from_text import value_of_text
from stateflow.codec.table import from_description
from stateflow.codec.timed import NEVER_MS, Expiring, Timed
from stateflow.errors import ConfigError, DecodeError, EncodeError
from stateflow.state.evolution import schemas_of, tool_codec
from stateflow.state.layout import (
    index_of,
    prefix_end,
    prefixed_key,
    split_prefixed,
    split_window,
    window_key,
)
from stateflow.state.path import instant_of, split_path
from stateflow.store.base import StoreReader

KEY_FORMS = ("hex:", "base64:", "text:")
"""What a key may begin with that a person writes: its bytes follow, as they are stored. For keys that are bytes the
last one is for a text that begins with one of these. Keys that are strings are taken as they stand."""

_WINDOW_STARTS_END = b"\x80"
"""Window starts are not negative, so no suffix begins with this byte."""


class UnreadableKey(bytes):
    """A key as it is stored, where the codec cannot read it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a store, decoded. Of index, window, map key and version the one is set that the store has.

    The value of a set's row is the element. A key that cannot be decoded is an ``UnreadableKey``.
    """

    key: Any
    value: Any
    window_start_ms: int | None = None
    index: int | None = None
    map_key: Any = None
    """In a map of maps the tuple of keys, outermost first."""
    version_ms: int | None = None
    """Event time from which the value of a versioned store holds; a value of None says that it was cleared."""
    written_ms: int | None = None
    """Event time of the write, in stores with a time to live."""
    expires_ms: int | None = None
    """Event time from which it is gone, where every write has a time to live of its own; None for never."""


class StoreDecoder:
    """Reads the bytes of one store as its catalog entry describes them.

    Raises ``ConfigError`` for a codec that only the application has.
    """

    def __init__(self, entry: StoreEntry) -> None:
        self.entry = entry
        self._key: Codec[Any] = from_description(entry.key_codec)
        self._value = tool_codec(entry.value_codec, schemas_of(entry))
        described = entry.value_codec
        self._key_parts: list[Codec[Any]] = [
            from_description(part)
            for part in described.get("map_keys")
            or [described[name] for name in ("map_key", "element") if name in described]
        ]

    def routing_key(self, key: Any) -> bytes:
        """The bytes of a key: what the routing table is asked about.

        A dict in the place of an object of a declared type has its fields in the order in which they are declared.
        """
        is_object = isinstance(key, dict) and "$ref" in (self.entry.key_codec.get("schema") or {})
        return (self._key if is_object else self._key.for_keys()).encode(key)

    def key_bytes(self, text: str) -> bytes:
        """A routing key that a person wrote: text for strings and bytes, JSON for all else (``KEY_FORMS``).

        Where a text by itself is a key that is written as JSON, a time say, the quotes may be left out. Raises
        ``ConfigError``.
        """
        described = self.entry.key_codec
        if described["codec"] == "string":
            return text.encode()
        form, _, rest = text.partition(":")
        try:
            if f"{form}:" in KEY_FORMS and (form != "text" or described["codec"] == "bytes"):
                return _written(form, rest)
            if described["codec"] == "bytes":
                return text.encode()
            return self.routing_key(value_of_text(described, text))
        except (ValueError, EncodeError) as error:
            raise ConfigError(
                f"{text!r} is not a key of {self.entry.name} ({error}).",
                action=f"its keys are {dict(described)!r:.300}: write one as JSON, or its bytes as hex:… or base64:…;"
                " text:… is text that begins so.",
            ) from error

    def rows_of(self, reader: StoreReader, routing_key: bytes) -> Iterator[Row]:
        """Everything that a store holds for one routing key, in store order."""
        if self.entry.layout == "plain":
            value = reader.get(routing_key)
            entries = iter([] if value is None else [(routing_key, value)])
        elif self.entry.layout == "window":
            entries = reader.scan(window_key(routing_key, 0), routing_key + _WINDOW_STARTS_END)
            entries = ((key, value) for key, value in entries if split_window(key)[0] == routing_key)
        else:
            prefix = prefixed_key(routing_key)
            entries = reader.scan(prefix, prefix_end(prefix))
        return self._rows(entries)

    def rows(self, reader: StoreReader) -> Iterator[Row]:
        """The whole store, in store order."""
        return self._rows(reader.scan())

    def rows_at(self, reader: StoreReader, store_keys: Iterable[bytes]) -> Iterator[Row]:
        """The rows under some store keys, in their order; those that are gone are left out."""
        found = ((key, reader.get(key)) for key in store_keys)
        return self._rows((key, value) for key, value in found if value is not None)

    def _rows(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[Row]:
        for key, value in entries:
            row = self._row(key, value)
            if row is not None:
                yield row

    def _row(self, store_key: bytes, data: bytes) -> Row | None:
        if self.entry.layout == "plain":
            return self._timed(Row(self._shown_key(store_key), None), data)
        if self.entry.layout == "window":
            key, start_ms = split_window(store_key)
            return self._timed(Row(self._shown_key(key), None, window_start_ms=start_ms), data)
        routing_key, rest = split_prefixed(store_key)
        key = self._shown_key(routing_key)
        match self.entry.kind:
            case "list":
                if not rest:
                    return None  # the list's ends, not an element
                return self._timed(Row(key, None, index=index_of(rest)), data)
            case "set":
                row = self._timed(Row(key, None), data)
                return replace(row, value=self._key_parts[0].decode(rest))
            case "versioned":
                return self._timed(Row(key, None, version_ms=instant_of(rest)), data)
            case "nested":
                return self._timed(Row(key, None, map_key=self.path(rest)), data)
            case _:
                map_key = self._key_parts[0].decode(rest) if self._key_parts else rest
                return self._timed(Row(key, None, map_key=map_key), data)

    def _shown_key(self, data: bytes) -> Any:
        try:
            return self._key.decode(data)
        except DecodeError:
            return UnreadableKey(data)

    def path(self, rest: bytes) -> tuple[Any, ...]:
        """The keys of a map of maps, outermost first, out of what follows the routing key."""
        parts = zip(self._key_parts, split_path(rest, len(self._key_parts)), strict=True)
        return tuple(codec.decode(part) for codec, part in parts)

    def _timed(self, row: Row, data: bytes) -> Row:
        value = self._value.decode(data)
        if isinstance(value, Timed):
            return replace(row, value=value.value, written_ms=value.timestamp_ms)
        if isinstance(value, Expiring):
            expires_ms = None if value.expires_ms == NEVER_MS else value.expires_ms
            return replace(row, value=value.value, written_ms=value.timestamp_ms, expires_ms=expires_ms)
        return replace(row, value=value)


def _written(form: str, rest: str) -> bytes:
    """The bytes behind a key's form. Raises ``ValueError``."""
    if form == "hex":
        return bytes.fromhex(rest)
    return rest.encode() if form == "text" else binascii.a2b_base64(rest, strict_mode=True)
