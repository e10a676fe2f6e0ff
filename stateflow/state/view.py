"""Reading a store without the application's code: its catalog entry says what the bytes are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.describe import from_description
from stateflow.codec.timed import Timed
from stateflow.state.layout import (
    index_of,
    prefix_end,
    prefixed_key,
    split_prefixed,
    split_window,
    window_key,
)
from stateflow.store.base import StoreReader

_AFTER_ANY_START = b"\x80"  # starts are not negative: their first byte is below this


class StoreView:
    """The content of one store, decoded. Values of declared types come as dict and list.

    Entries past their time to live that were not deleted yet are shown: event time is the task's to know.
    """

    def __init__(self, entry: StoreEntry, reader: StoreReader) -> None:
        self._entry = entry
        self._reader = reader
        self._key: Codec[Any] = from_description(entry.key_codec)
        self._value: Codec[Any] = from_description(entry.value_codec)
        map_key = entry.value_codec.get("map_key")
        self._map_key = None if map_key is None else from_description(map_key)

    def routing_key(self, key: Any) -> bytes:
        """The bytes of a key: what the routing table is asked about."""
        return self._key.encode(key)

    def get(self, key: Any) -> Any:
        """What a key holds: the value, the list, the map, or window start (ms) → value; None when nothing."""
        data = self.routing_key(key)
        if self._entry.kind == "value":
            stored = self._reader.get(data)
            return None if stored is None else self._shown(stored)
        if self._entry.kind == "window":
            return dict(self._windows(data)) or None
        prefix = prefixed_key(data)
        entries = list(self._reader.scan(prefix, prefix_end(prefix)))
        if self._entry.kind == "list":
            return [
                self._shown(stored) for store_key, stored in entries if len(store_key) > len(prefix)
            ] or None
        return {self._map_entry(store_key): self._shown(stored) for store_key, stored in entries} or None

    def scan(self) -> Iterator[tuple[Any, Any, Any]]:
        """Every entry as (key, part, value), in byte order.

        The part is None for a value, the start (ms) of a window, the index in a list, the key in a map.
        """
        for store_key, stored in self._reader.scan():
            if self._entry.kind == "value":
                yield self._key.decode(store_key), None, self._shown(stored)
            elif self._entry.kind == "window":
                key, start_ms = split_window(store_key)
                yield self._key.decode(key), start_ms, self._shown(stored)
            else:
                key, rest = split_prefixed(store_key)
                if self._entry.kind == "map":
                    yield self._key.decode(key), self._map_entry(store_key), self._shown(stored)
                elif rest:
                    yield self._key.decode(key), index_of(rest), self._shown(stored)

    def _windows(self, data: bytes) -> Iterator[tuple[int, Any]]:
        for store_key, stored in self._reader.scan(window_key(data, 0), data + _AFTER_ANY_START):
            key, start_ms = split_window(store_key)
            if key == data:  # a longer key may begin with this one
                yield start_ms, self._shown(stored)

    def _map_entry(self, store_key: bytes) -> Any:
        assert self._map_key is not None, "the description of a map has the codec of its keys"
        return self._map_key.decode(split_prefixed(store_key)[1])

    def _shown(self, stored: bytes) -> Any:
        value = self._value.decode(stored)
        return value.value if isinstance(value, Timed) else value
