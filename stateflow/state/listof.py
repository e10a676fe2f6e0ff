"""A list per key, logged per element: appending writes the element, never the list."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec
from stateflow.state.layout import index_bytes, prefixed_key
from stateflow.state.scope import Scope
from stateflow.state.stored import no_own_ttl
from stateflow.store.base import StateStore

T = TypeVar("T")

ENDS = struct.Struct(">QQ")


class ListOf(Generic[T]):
    """The current key's list. Elements that are read are copies.

    Entry ``prefix`` holds the index of the first element and the index after the last, two uint64 big-endian;
    entry ``prefix ‖ index`` an element. Indexes only rise, so dropping from the front moves nothing.
    """

    def __init__(self, store: StateStore, codec: Codec[Any], scope: Scope, max_length: int | None) -> None:
        self._store = store
        self._codec = codec
        self._scope = scope
        self._max_length = max_length

    def append(self, value: T, *, ttl: timedelta | None = None) -> None:
        """Add an element at the end; beyond ``max_length`` the oldest is dropped.

        ``ttl`` is its own time to live, in a state declared with ``ttl_per_write``.
        """
        self.extend((value,), ttl=ttl)

    def extend(self, values: Iterable[T], *, ttl: timedelta | None = None) -> None:
        """Add elements at the end, in order; beyond ``max_length`` the oldest are dropped."""
        if ttl is not None:
            raise no_own_ttl()
        prefix, first, after = self._ends()
        added = [self._codec.encode(value) for value in values]
        changes: list[tuple[bytes, bytes | None]] = [
            (prefix + index_bytes(after + position), data) for position, data in enumerate(added)
        ]
        after += len(added)
        if self._max_length is not None and after - first > self._max_length:
            keep_from = after - self._max_length
            changes += [(prefix + index_bytes(index), None) for index in range(first, keep_from)]
            first = keep_from
        if changes:
            self._store.put_many([*changes, (prefix, ENDS.pack(first, after))])

    def clear(self) -> None:
        """Drop every element."""
        prefix, first, after = self._ends()
        if after > first:
            dropped: list[tuple[bytes, bytes | None]] = [
                (prefix + index_bytes(index), None) for index in range(first, after)
            ]
            self._store.put_many([*dropped, (prefix, None)])

    def __len__(self) -> int:
        _, first, after = self._ends()
        return after - first

    def __getitem__(self, position: int) -> T:
        """The element at a position; negative ones count from the end. Raises ``IndexError``."""
        prefix, first, after = self._ends()
        index = (first if position >= 0 else after) + position
        if not first <= index < after:
            raise IndexError(f"position {position} of a list of {after - first}")
        return self._decode(self._store.get(prefix + index_bytes(index)))

    def __setitem__(self, position: int, value: T) -> None:
        """Replace one element. Raises ``IndexError``."""
        prefix, first, after = self._ends()
        index = (first if position >= 0 else after) + position
        if not first <= index < after:
            raise IndexError(f"position {position} of a list of {after - first}")
        self._store.put(prefix + index_bytes(index), self._codec.encode(value))

    def __iter__(self) -> Iterator[T]:
        """The elements, oldest first; later changes do not show in an iteration that has begun."""
        prefix, first, after = self._ends()
        entries = self._store.get_many([prefix + index_bytes(index) for index in range(first, after)])
        return iter([self._decode(data) for data in entries])

    def _ends(self) -> tuple[bytes, int, int]:
        prefix = prefixed_key(self._scope.key)
        stored = self._store.get(prefix)
        first, after = (0, 0) if stored is None else ENDS.unpack(stored)
        return prefix, first, after

    def _decode(self, data: bytes | None) -> T:
        assert data is not None, "every index between the ends has an element"
        return self._codec.decode(data)  # type: ignore[no-any-return]
