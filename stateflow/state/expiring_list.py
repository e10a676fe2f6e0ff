"""A list whose elements expire one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from stateflow.codec.base import Codec
from stateflow.state.layout import index_bytes, prefixed_key
from stateflow.state.listof import ENDS, ListOf
from stateflow.state.stored import Stored
from stateflow.store.base import Change

T = TypeVar("T")


class ExpiringListOf(ListOf[T]):
    """``ListOf`` with a time to live: an element is gone so long after it was written, whatever comes after it.

    Elements and the list's ends are stamped; the ends expire with the last element to do so. Expired elements leave
    holes between the ends, which are skipped: reading the length or one position reads the list.
    """

    def __init__(self, stored: Stored, codec: Codec[Any], max_length: int | None) -> None:
        super().__init__(stored.store, codec, stored.scope, max_length)
        self._stored = stored

    def extend(self, values: Iterable[T], *, ttl: timedelta | None = None) -> None:
        """Add elements at the end, in order; beyond ``max_length`` the oldest are dropped."""
        prefix, first, after = self._ends()
        while first < after and self._stored.get(prefix + index_bytes(first)) is None:
            first += 1  # what expired at the front is behind us; its bytes go with the others that expire
        added = [self._stored.stamped(self._codec.encode(value), ttl) for value in values]
        changes: list[Change] = [
            (prefix + index_bytes(after + position), data) for position, data in enumerate(added)
        ]
        after += len(added)
        if self._max_length is not None and after - first > self._max_length:
            keep_from = after - self._max_length
            changes += [(prefix + index_bytes(index), None) for index in range(first, keep_from)]
            first = keep_from
        if added:
            ends = self._stored.stamped_at_least(prefix, ENDS.pack(first, after), ttl)
            self._store.put_many([*changes, (prefix, ends)])

    def __len__(self) -> int:
        return len(self._live())

    def __getitem__(self, position: int) -> T:
        """The element at a position among those that live; negative ones count from the end. Raises ``IndexError``."""
        return self._codec.decode(self._live()[position][1])  # type: ignore[no-any-return]

    def __setitem__(self, position: int, value: T) -> None:
        """Replace one element, whose time to live begins anew. Raises ``IndexError``."""
        prefix, first, after = self._ends()
        index, _ = self._live()[position]
        ends = self._stored.stamped_at_least(prefix, ENDS.pack(first, after), None)
        key = prefix + index_bytes(index)
        element = self._stored.stamped(self._codec.encode(value), before=self._store.get(key))
        self._store.put_many([(key, element), (prefix, ends)])

    def __iter__(self) -> Iterator[T]:
        """The elements that live, oldest first; later changes do not show in an iteration that has begun."""
        return iter([self._codec.decode(data) for _, data in self._live()])

    def _live(self) -> list[tuple[int, bytes]]:
        """Index and bytes of each element that has not expired."""
        prefix, first, after = self._ends()
        indexes = range(first, after)
        found = self._stored.get_many([prefix + index_bytes(index) for index in indexes])
        return [(index, data) for index, data in zip(indexes, found, strict=True) if data is not None]

    def _ends(self) -> tuple[bytes, int, int]:
        prefix = prefixed_key(self._scope.key)
        data = self._stored.get(prefix)
        first, after = (0, 0) if data is None else ENDS.unpack(data)
        return prefix, first, after
