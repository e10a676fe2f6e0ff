"""Entries of one store as the typed state sees them: under the current key, alive, without their time stamps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from stateflow.duration import whole_ms
from stateflow.errors import GraphError
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
        return stored if self._expiry is None else self._expiry.live(stored, self.scope.as_of_ms)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The bytes of several values, None for the absent."""
        found = self.store.get_many(keys)
        if self._expiry is None:
            return found
        live, as_of_ms = self._expiry.live, self.scope.as_of_ms
        return [live(stored, as_of_ms) for stored in found]

    def put(self, key: bytes, data: bytes, ttl: timedelta | None = None) -> None:
        """Set an entry; ``ttl`` is its own time to live."""
        before = None if self._expiry is None else self.store.get(key)
        self.store.put(key, self.stamped(data, ttl, before))

    def stamped(self, data: bytes, ttl: timedelta | None = None, before: bytes | None = None) -> bytes:
        """The bytes to store for a value written by the current record in place of what was stored ``before``.

        Raises ``GraphError`` for a time to live of its own where none was declared, ``ValueError`` for less than
        1 ms or a fraction of one.
        """
        ttl_ms = None if ttl is None else self._own_ttl_ms(ttl)
        if self._expiry is None:
            return data
        written_ms = self._expiry.written_ms(before, self.scope.timestamp_ms, self.scope.as_of_ms)
        return self._expiry.stamped(data, written_ms, ttl_ms)

    def stamped_at_least(self, key: bytes, data: bytes, ttl: timedelta | None) -> bytes:
        """``stamped``, but expiring no sooner than what stands under ``key``."""
        assert self._expiry is not None, "only what expires is stamped"
        stored, before = self.stamped(data, ttl), self.store.get(key)
        if before is None or self._expiry.expires_ms(before) <= self._expiry.expires_ms(stored):
            return stored
        return before[: len(stored) - len(data)] + data

    def _own_ttl_ms(self, ttl: timedelta) -> int:
        if self._expiry is None or not self._expiry.per_write:
            raise no_own_ttl()
        ttl_ms = whole_ms(ttl)
        if ttl_ms < 1:
            raise ValueError(f"a time to live of {ttl} is below 1 ms")
        return ttl_ms

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
        as_of_ms = self.scope.as_of_ms
        for key, stored in entries:
            data = expiry.live(stored, as_of_ms)
            if data is not None:
                yield key, data

    def clear(self, prefix: bytes) -> None:
        """Remove every entry whose key begins so, the expired ones too."""
        doomed = [key for key, _ in self.store.scan(prefix, prefix_end(prefix))]
        if doomed:
            self.store.put_many([(key, None) for key in doomed])


def no_own_ttl() -> GraphError:
    """The error for a write with a time to live of its own into a state that has no room for it."""
    return GraphError(
        "A value was written with a ttl of its own into a state that was not declared so.",
        action="Declare it with sf.state(ttl_per_write=True); its values are stored in another format, so a state"
        " that exists needs another name.",
    )
