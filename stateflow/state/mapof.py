"""A map per key, logged per entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, overload

from stateflow.codec.base import Codec
from stateflow.state.expiry import Expiry
from stateflow.state.layout import prefix_end, prefixed_key
from stateflow.state.scope import Scope
from stateflow.store.base import StateStore

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class MapOf(Generic[K, V]):
    """The current key's map. Values that are read are copies; entries come in the byte order of their keys.

    Entry ``prefix ‖ map key`` holds one value.
    """

    def __init__(
        self,
        store: StateStore,
        codecs: tuple[Codec[Any], Codec[Any]],
        scope: Scope,
        expiry: Expiry | None,
    ) -> None:
        self._store = store
        self._key_codec, self._value_codec = codecs
        self._scope = scope
        self._expiry = expiry

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The value of an entry, or the default."""
        data = self._live(self._store.get(self._entry(key)))
        return default if data is None else self._value_codec.decode(data)

    def put(self, key: K, value: V) -> None:
        """Set an entry."""
        data = self._value_codec.encode(value)
        if self._expiry is not None:
            data = self._expiry.stamped(data, self._scope.timestamp_ms)
        self._store.put(self._entry(key), data)

    def merge(self, key: K, value: V, function: Callable[[V, V], V]) -> V:
        """Combine a value with the entry's, or set it when there is none; returns what stands there now."""
        before = self.get(key)
        after = value if before is None else function(before, value)
        self.put(key, after)
        return after

    def remove(self, key: K) -> None:
        """Remove an entry; a missing one is not an error."""
        self._store.delete(self._entry(key))

    def clear(self) -> None:
        """Remove every entry."""
        self._store.put_many([(entry, None) for entry, _ in self._entries()])

    def items(self) -> list[tuple[K, V]]:
        """Every entry."""
        prefix_bytes = len(prefixed_key(self._scope.key))
        return [
            (self._key_codec.decode(entry[prefix_bytes:]), self._value_codec.decode(data))
            for entry, stored in self._entries()
            if (data := self._live(stored)) is not None
        ]

    def keys(self) -> list[K]:
        """Every map key."""
        return [key for key, _ in self.items()]

    def values(self) -> list[V]:
        """Every value."""
        return [value for _, value in self.items()]

    def __contains__(self, key: K) -> bool:
        return self._live(self._store.get(self._entry(key))) is not None

    def __len__(self) -> int:
        """Number of entries; reads all of them."""
        return sum(1 for _, stored in self._entries() if self._live(stored) is not None)

    def _entry(self, key: K) -> bytes:
        return prefixed_key(self._scope.key, self._key_codec.encode(key))

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        prefix = prefixed_key(self._scope.key)
        return iter(list(self._store.scan(prefix, prefix_end(prefix))))

    def _live(self, stored: bytes | None) -> bytes | None:
        if self._expiry is None:
            return stored
        return self._expiry.live(stored, self._scope.watermark_ms)
