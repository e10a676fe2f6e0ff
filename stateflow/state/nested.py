"""A map of maps per key, logged per innermost entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from stateflow.codec.base import Codec
from stateflow.errors import GraphError
from stateflow.state.expiry import Expiry
from stateflow.state.layout import prefix_end
from stateflow.state.mapof import MapOf, Prefix, beginning_bytes, require_order
from stateflow.state.path import escaped, first_step, step
from stateflow.state.scope import Scope
from stateflow.store.base import StateStore

K = TypeVar("K")
V = TypeVar("V")

Inner = Callable[[Prefix], "MapOf[Any, Any]"]
"""Makes the handle of one inner map out of what its entries begin with."""


class NestedMapOf(MapOf[K, V]):
    """The current key's maps by outer key; ``V`` is the type of the inner maps.

    Entry ``prefix ‖ step(outer key) ‖ inner key`` holds one value. ``self.visits[country]`` is a handle on an
    inner map, which is there as soon as it has an entry; write through it. A handle works on the key of the
    current record, as every handle does.
    """

    def __init__(
        self,
        store: StateStore,
        codecs: tuple[Codec[Any], Codec[Any]],
        scope: Scope,
        expiry: Expiry | None,
        inner: Inner,
        prefix: Prefix | None = None,
    ) -> None:
        super().__init__(store, codecs, scope, expiry, prefix)
        self._inner = inner

    def __getitem__(self, key: K) -> V:
        """A handle on the inner map of ``key``, empty or not."""
        end = step(self._key_codec.encode(key))
        return self._inner(lambda: self._prefix() + end)  # type: ignore[return-value]

    def get(self, key: K, default: Any = None) -> Any:
        """A handle on the inner map, or the default where it is empty."""
        is_there = key in self
        return self[key] if is_there else default

    def put(self, key: K, value: V, *, ttl: timedelta | None = None) -> NoReturn:  # noqa: ARG002 - MapOf's
        """An inner map is never set as a whole: raises ``GraphError``."""
        raise _whole(key, value)

    def merge(self, key: K, value: V, function: Callable[[V, V], V]) -> NoReturn:  # noqa: ARG002 - MapOf's
        """Inner maps merge entry by entry: raises ``GraphError``."""
        raise _whole(key, value)

    def remove(self, key: K) -> None:
        """Remove a whole inner map, with a tombstone for each of its entries; a missing one is not an error."""
        self._stored.clear(self._entry(key))

    def keys(self) -> list[K]:
        """The outer keys; one seek for each."""
        prefix = self._prefix()
        return list(self._outer(prefix, prefix_end(prefix)))

    def items(self) -> list[tuple[K, V]]:
        """Each outer key with a handle on its inner map."""
        return [(key, self[key]) for key in self.keys()]

    def range(
        self, first: K | None = None, after: K | None = None, *, limit: int | None = None
    ) -> list[tuple[K, V]]:
        """The inner maps with ``first`` ≤ outer key < ``after``, in order, at most ``limit``."""
        require_order(self._key_codec)
        prefix = self._prefix()
        low = prefix if first is None else prefix + step(self._key_codec.encode(first))
        high = prefix_end(prefix) if after is None else prefix + step(self._key_codec.encode(after))
        return self._handles(low, high, limit)

    def beginning(self, text: K, *, limit: int | None = None) -> list[tuple[K, V]]:
        """The inner maps whose outer keys, text or bytes, begin with ``text``, in order."""
        low = self._prefix() + escaped(beginning_bytes(self._key_codec, text))
        return self._handles(low, prefix_end(low), limit)

    def __contains__(self, key: K) -> bool:
        low = self._entry(key)
        return next(self._stored.scan(low, prefix_end(low)), None) is not None

    def __len__(self) -> int:
        """Number of inner maps; one seek for each."""
        return len(self.keys())

    def _entry(self, key: K) -> bytes:
        return self._prefix() + step(self._key_codec.encode(key))

    def _handles(self, low: bytes, high: bytes | None, limit: int | None) -> list[tuple[K, V]]:
        found: list[tuple[K, V]] = []
        for key in self._outer(low, high):
            if limit is not None and len(found) >= limit:
                break
            found.append((key, self[key]))
        return found

    def _outer(self, low: bytes, high: bytes | None) -> Iterator[K]:
        """Outer keys with a live entry, seeking from one to the next."""
        skip = len(self._prefix())
        cursor: bytes | None = low
        while cursor is not None and (high is None or cursor < high):
            entry = next(self._stored.scan(cursor, high), None)
            if entry is None:
                return
            data, rest = first_step(entry[0][skip:])
            yield self._key_codec.decode(data)
            cursor = prefix_end(entry[0][: len(entry[0]) - len(rest)])


def _whole(key: object, value: object) -> GraphError:
    return GraphError(
        f"A {type(value).__name__} was put into a map of maps under {key!r}, in place of an inner map.",
        action="Write through the inner map: self.state[outer].put(inner, value), or its merge.",
    )
