"""A map per key, logged per entry."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from typing import Any, Generic, TypeVar, overload

from stateflow.codec.base import Codec
from stateflow.codec.scalar import BytesCodec, StringCodec
from stateflow.errors import GraphError
from stateflow.state.expiry import Expiry
from stateflow.state.index import IndexedStore
from stateflow.state.layout import prefix_end, prefixed_key
from stateflow.state.scope import Scope
from stateflow.state.stored import Stored
from stateflow.store.base import StateStore

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

Prefix = Callable[[], bytes]
"""What all entries of a map begin with, for the key of the current record."""


class MapOf(Generic[K, V]):
    """The current key's map. Values that are read are copies; entries come in the byte order of their keys.

    Entry ``prefix ‖ map key`` holds one value. Keys that are int, float, bool, str or bytes are in their natural
    order. A lookup or a change costs one of the store; iterating reads what it gives.
    """

    def __init__(
        self,
        store: StateStore,
        codecs: tuple[Codec[Any], Codec[Any]],
        scope: Scope,
        expiry: Expiry | None,
        prefix: Prefix | None = None,
    ) -> None:
        self._stored = Stored(store, scope, expiry)
        self._key_codec, self._value_codec = codecs
        self._prefix: Prefix = prefix or (lambda: prefixed_key(scope.key))

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The value of an entry, or the default."""
        data = self._stored.get(self._entry(key))
        return default if data is None else self._value_codec.decode(data)

    def __getitem__(self, key: K) -> V:
        """The value of an entry. Raises ``KeyError`` when there is none."""
        data = self._stored.get(self._entry(key))
        if data is None:
            raise KeyError(key)
        return self._value_codec.decode(data)  # type: ignore[no-any-return]

    def put(self, key: K, value: V, *, ttl: timedelta | None = None) -> None:
        """Set an entry; ``ttl`` is its own time to live, in a state declared with ``ttl_per_write``."""
        self._stored.put(self._entry(key), self._value_codec.encode(value), ttl)

    def merge(self, key: K, value: V, function: Callable[[V, V], V]) -> V:
        """Combine a value with the entry's, or set it when there is none; returns what stands there now."""
        before = self.get(key)
        after = value if before is None else function(before, value)
        self.put(key, after)
        return after

    def remove(self, key: K) -> None:
        """Remove an entry; a missing one is not an error."""
        self._stored.delete(self._entry(key))

    def clear(self) -> None:
        """Remove every entry."""
        self._stored.clear(self._prefix())

    def items(self) -> list[tuple[K, V]]:
        """Every entry."""
        prefix = self._prefix()
        return self._read(prefix, prefix_end(prefix), None, len(prefix))

    def range(
        self, first: K | None = None, after: K | None = None, *, limit: int | None = None
    ) -> list[tuple[K, V]]:
        """The entries with ``first`` ≤ key < ``after``, in order, at most ``limit``; reads no others.

        Raises ``GraphError`` where the codec of the keys does not keep their order.
        """
        codec = self._key_codec
        if not codec.is_ordered:
            require_order(codec)
        prefix = self._prefix()
        low = prefix if first is None else prefix + codec.encode(first)
        high = prefix_end(prefix) if after is None else prefix + codec.encode(after)
        return self._read(low, high, limit, len(prefix))

    def beginning(self, text: K, *, limit: int | None = None) -> list[tuple[K, V]]:
        """The entries whose keys, text or bytes, begin with ``text``, in order; reads no others.

        Raises ``GraphError`` for keys of any other type.
        """
        prefix = self._prefix()
        low = prefix + beginning_bytes(self._key_codec, text)
        return self._read(low, prefix_end(low), limit, len(prefix))

    def by(self, index: str, value: Any) -> list[tuple[K, V]]:
        """The entries of which the declared ``index`` gives ``value``, in order; reads no others.

        Raises ``GraphError`` for an index that was not declared, ``EncodeError`` for a value that none can hold.
        """
        store = self._stored.store
        if not isinstance(store, IndexedStore) or index not in store.index.names:
            raise GraphError(
                f"This map has no index {index!r}.",
                action=f"Declare it: sf.state(index={{{index!r}: lambda value: …}}).",
            )
        prefix = self._prefix()
        entries = store.find(index, value, prefix)
        found = zip(entries, self._stored.get_many(entries), strict=True)
        return [
            (self._key_codec.decode(entry[len(prefix) :]), self._value_codec.decode(data))
            for entry, data in found
            if data is not None
        ]

    def keys(self) -> list[K]:
        """Every map key."""
        return [key for key, _ in self.items()]

    def values(self) -> list[V]:
        """Every value."""
        return [value for _, value in self.items()]

    def __contains__(self, key: K) -> bool:
        return self._stored.get(self._entry(key)) is not None

    def __len__(self) -> int:
        """Number of entries; reads all of them."""
        prefix = self._prefix()
        return sum(1 for _ in self._stored.scan(prefix, prefix_end(prefix)))

    def _entry(self, key: K) -> bytes:
        return self._prefix() + self._key_codec.encode(key)

    def _read(self, low: bytes, high: bytes | None, limit: int | None, skip: int) -> list[tuple[K, V]]:
        if high is not None and high <= low:
            return []
        entries = self._stored.scan(low, high)
        if limit is not None:
            entries = islice(entries, limit)
        key_of, value_of = self._key_codec.decode, self._value_codec.decode
        return [(key_of(entry[skip:]), value_of(data)) for entry, data in entries]


def require_order(codec: Codec[Any]) -> None:
    """Raise ``GraphError`` for keys whose bytes do not sort as they do."""
    if not codec.is_ordered:
        raise GraphError(
            f"Keys written as {codec!r} have no order in the store, so they have no ranges.",
            action="Use keys of type int, float, bool, str or bytes, or a key_codec that keeps the order.",
        )


def beginning_bytes(codec: Codec[Any], text: Any) -> bytes:
    """The bytes that keys beginning with ``text`` begin with; ``GraphError`` where that cannot be said."""
    if not isinstance(codec, (StringCodec, BytesCodec)):
        raise GraphError(
            f"Keys written as {codec!r} do not begin with text.",
            action="Use keys of type str or bytes, or ask for a range.",
        )
    return codec.encode(text)
