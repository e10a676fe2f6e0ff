"""Entries of one store as the typed state sees them: under the current key, alive, without their time stamps."""

from __future__ import annotations

from collections.abc import Iterator

from stateflow.state.expiry import Expiry
from stateflow.state.layout import prefix_end
from stateflow.state.scope import Scope
from stateflow.store.base import StateStore


class Stored:
    """Reads and writes of one handle. An entry past its time to live is absent."""

    __slots__ = ("_expiry", "scope", "store")

    def __init__(self, store: StateStore, scope: Scope, expiry: Expiry | None) -> None:
        self.store = store
        self.scope = scope
        self._expiry = expiry

    def get(self, key: bytes) -> bytes | None:
        """The value's bytes, or None."""
        stored = self.store.get(key)
        return stored if self._expiry is None else self._expiry.live(stored, self.scope.watermark_ms)

    def put(self, key: bytes, data: bytes) -> None:
        """Set an entry, as of the current record's time."""
        self.store.put(key, self.stamped(data))

    def stamped(self, data: bytes) -> bytes:
        """The bytes to store for a value written by the current record."""
        return data if self._expiry is None else self._expiry.stamped(data, self.scope.timestamp_ms)

    def delete(self, key: bytes) -> None:
        """Remove an entry."""
        self.store.delete(key)

    def scan(self, first: bytes, after: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Live entries with ``first`` ≤ key < ``after``, in order. Exhaust it before the next write."""
        entries = self.store.scan(first, after)
        if self._expiry is None:
            return entries
        return self._alive(entries, self._expiry)

    def _alive(self, entries: Iterator[tuple[bytes, bytes]], expiry: Expiry) -> Iterator[tuple[bytes, bytes]]:
        watermark_ms = self.scope.watermark_ms
        for key, stored in entries:
            data = expiry.live(stored, watermark_ms)
            if data is not None:
                yield key, data

    def clear(self, prefix: bytes) -> None:
        """Remove every entry whose key begins so, the expired ones too."""
        doomed = [key for key, _ in self.store.scan(prefix, prefix_end(prefix))]
        if doomed:
            self.store.put_many([(key, None) for key in doomed])
