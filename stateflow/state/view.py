"""Reading a store key by key without the application's code: its catalog entry says what the bytes are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.state.decoding import Row, StoreDecoder
from stateflow.store.base import StoreReader


class StoreView:
    """The content of one store, decoded. Values of declared types come as dict and list.

    Keys of maps that are of such types come so that they can be keys of a dict: tuples (equal to the NamedTuple) and
    ``MapKey``, a dict with a hash.

    Entries past their time to live that were not deleted yet are shown: event time is the task's to know.
    """

    def __init__(self, entry: StoreEntry, reader: StoreReader) -> None:
        self._kind = entry.kind
        self._decoder = StoreDecoder(entry)
        self._reader = reader

    def routing_key(self, key: Any) -> bytes:
        """The bytes of a key: what the routing table is asked about."""
        return self._decoder.routing_key(key)

    def get(self, key: Any) -> Any:
        """What a key holds, None when nothing.

        The value, the count (0 for nothing), the list, the set's elements as a list in order, the map, the map of
        maps, window start (ms) → value, or event time (ms) → value of each version, newest first.
        """
        rows = list(self._decoder.rows_of(self._reader, self.routing_key(key)))
        if not rows:
            return 0 if self._kind == "counter" else None
        if self._kind in ("value", "counter", "reducing"):
            return rows[0].value
        if self._kind in ("list", "set"):
            return [row.value for row in rows]
        if self._kind == "nested":
            return _folded(rows)
        return {self._part(row): row.value for row in rows}

    def scan(self) -> Iterator[tuple[Any, Any, Any]]:
        """Every entry as (key, part, value), in byte order.

        The part is the start (ms) of a window, the index in a list, the key in a map, the tuple of keys in a map
        of maps, the event time (ms) of a version, the name of a timer; None for all others.
        """
        for row in self._decoder.rows(self._reader):
            yield row.key, self._part(row), row.value

    def at(self, store_keys: Iterable[bytes]) -> Iterator[tuple[Any, Any, Any]]:
        """The entries under some store keys as (key, part, value)."""
        for row in self._decoder.rows_at(self._reader, store_keys):
            yield row.key, self._part(row), row.value

    def _part(self, row: Row) -> Any:
        parts = {
            "window": row.window_start_ms,
            "session": row.window_start_ms,
            "sliding": row.window_start_ms,
            "count": row.window_start_ms,
            "list": row.index,
            "map": _hashable(row.map_key),
            "nested": _hashable(row.map_key),
            "timers": row.map_key,
            "versioned": row.version_ms,
        }
        return parts.get(self._kind)


class MapKey(dict[str, Any]):
    """The key of a map, decoded to its fields: equal to the same dict, and usable as the key of one."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def _hashable(key: Any) -> Any:
    if isinstance(key, (list, tuple)):
        return tuple(map(_hashable, key))
    if isinstance(key, dict):
        return MapKey((name, _hashable(part)) for name, part in key.items())
    return key


def _folded(rows: list[Row]) -> dict[Any, Any]:
    """Paths and values as maps inside maps."""
    top: dict[Any, Any] = {}
    for row in rows:
        *outer, last = _hashable(row.map_key)
        inner = top
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = row.value
    return top
