"""A set per key, logged per element."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec
from stateflow.errors import StateBoundExceeded
from stateflow.state.layout import prefix_end, prefixed_key
from stateflow.state.stored import Stored

T = TypeVar("T")


class SetOf(Generic[T]):
    """The current key's set; iterating gives the elements in the order of their bytes.

    Entry ``prefix ‖ element`` stands for an element and holds nothing. ``in``, ``add`` and ``discard`` cost one
    lookup and at most one write; ``len`` and iterating read the whole set, and so does ``add`` of a new element
    where a ``max_length`` is declared.
    """

    def __init__(self, stored: Stored, codec: Codec[Any], max_length: int | None) -> None:
        self._stored = stored
        self._codec = codec
        self._max_length = max_length

    def add(self, element: T, *, ttl: timedelta | None = None) -> bool:
        """Put an element in; False when it was there already (its time to live then begins anew).

        ``ttl`` is its own time to live, in a state declared with ``ttl_per_write``.

        Raises ``StateBoundExceeded``, with nothing changed, where the set would outgrow its ``max_length``.
        """
        key = self._entry(element)
        is_new = self._stored.get(key) is None
        if is_new and self._max_length is not None and self._is_full(self._max_length):
            raise StateBoundExceeded(
                f"the set of this key already has {self._max_length} elements, its max_length.",
                action="declare a larger max_length, discard elements in time, or give the state a ttl.",
                max_length=self._max_length,
            )
        self._stored.put(key, b"", ttl)
        return is_new

    def update(self, elements: Iterable[T]) -> None:
        """Put several elements in, one after the other. Raises ``StateBoundExceeded``."""
        for element in elements:
            self.add(element)

    def discard(self, element: T) -> bool:
        """Take an element out; False when it was not there."""
        key = self._entry(element)
        was_there = self._stored.get(key) is not None
        if was_there:
            self._stored.delete(key)
        return was_there

    def clear(self) -> None:
        """Take every element out."""
        self._stored.clear(self._prefix())

    def __contains__(self, element: T) -> bool:
        return self._stored.get(self._entry(element)) is not None

    def __iter__(self) -> Iterator[T]:
        """The elements; later changes do not show in an iteration that has begun."""
        prefix = self._prefix()
        skip = len(prefix)
        entries = self._stored.scan(prefix, prefix_end(prefix))
        return iter([self._codec.decode(key[skip:]) for key, _ in entries])

    def __len__(self) -> int:
        prefix = self._prefix()
        return sum(1 for _ in self._stored.scan(prefix, prefix_end(prefix)))

    def _is_full(self, max_length: int) -> bool:
        prefix = self._prefix()
        entries = self._stored.scan(prefix, prefix_end(prefix))
        return len(list(islice(entries, max_length))) == max_length

    def _prefix(self) -> bytes:
        return prefixed_key(self._stored.scope.key)

    def _entry(self, element: T) -> bytes:
        return prefixed_key(self._stored.scope.key, self._codec.encode(element))
