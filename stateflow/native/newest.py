"""The newest value of each key of a changelog's range, given out as sorted changes: in Python, and in the core.

Both leave out records without a key and keys that begin with ``ignored``, the log's own. They are equal row by row, and
differ in what they take in memory, which each tells.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol, SupportsIndex, overload

from stateflow.memory import ENTRY_BYTES

if TYPE_CHECKING:
    from stateflow.native.library import Core

Row = tuple[bytes, bytes | None]
"""A key and its newest value; None for a deletion."""

_CHUNK_ROWS = 4096
_PLAIN_ENTRY_BYTES = ENTRY_BYTES + 100
"""An entry of the map, and its place in the sorted run that is made of it."""


class NewestValues(Protocol):
    """What is kept of the records added so far. Not thread-safe."""

    def add(self, keys: list[bytes | None], values: list[bytes | None]) -> int:
        """Records in their order; returns the bytes of their keys and values. None as value is a deletion."""
        ...

    def __len__(self) -> int:
        """How many keys there are; those to be left out may be among them."""
        ...

    @property
    def held_bytes(self) -> int:
        """What is kept takes about so much in memory, with what ``ordered`` takes."""
        ...

    def trim(self) -> None:
        """Count again, without what later records have replaced."""
        ...

    def ordered(self) -> Sequence[Row]:
        """The newest value of each key, sorted by key; valid until ``clear``, before which nothing may be added."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...


def newest_values(ignored: bytes) -> NewestValues:
    """An empty one, in the core where that is in use; ``ignored`` has at most 16 bytes."""
    from stateflow.native.loading import core  # takes as long as much else of us, and is needed when it runs

    used = core()
    return PlainNewest(ignored) if used is None else NativeNewest(used, ignored)


class PlainNewest:
    """In a map of Python."""

    def __init__(self, ignored: bytes) -> None:
        self._ignored = ignored
        self._newest: dict[bytes | None, bytes | None] = {}
        self._bytes = 0

    def add(self, keys: list[bytes | None], values: list[bytes | None]) -> int:
        """Records in their order; returns the bytes of their keys and values."""
        self._newest.update(zip(keys, values, strict=True))
        size_bytes = _bytes_of(chain(keys, values))
        self._bytes += size_bytes
        return size_bytes

    def __len__(self) -> int:
        return len(self._newest)

    @property
    def held_bytes(self) -> int:
        """Replaced values count until ``trim``."""
        return self._bytes + _PLAIN_ENTRY_BYTES * len(self._newest)

    def trim(self) -> None:
        """Count what is there."""
        self._bytes = _bytes_of(chain(self._newest.keys(), self._newest.values()))

    def ordered(self) -> Sequence[Row]:
        """A list."""
        newest = self._newest
        keys: list[bytes] = sorted(key for key in newest if key is not None)
        if self._ignored:
            first = bisect_left(keys, self._ignored)
            after = first
            while after < len(keys) and keys[after].startswith(self._ignored):
                after += 1
            del keys[first:after]
        return [(key, newest[key]) for key in keys]

    def clear(self) -> None:
        """Forget everything."""
        self._newest, self._bytes = {}, 0


class NativeNewest:
    """In a table of the core, whose memory ends with this object."""

    def __init__(self, used: Core, ignored: bytes) -> None:
        self._core = used
        self.table = used.newest_new(ignored)
        """For other functions of the core that fill it."""
        weakref.finalize(self, used.newest_free, self.table)

    def add(self, keys: list[bytes | None], values: list[bytes | None]) -> int:
        """Records in their order; returns the bytes of their keys and values."""
        assert len(keys) == len(values), "a value for each key"
        size_bytes: int = self._core.newest_add(self.table, keys, values)
        return size_bytes

    def __len__(self) -> int:
        return int(self._core.newest_count(self.table))

    @property
    def held_bytes(self) -> int:
        """What is allocated, and what sorting will be."""
        return int(self._core.newest_bytes(self.table))

    def trim(self) -> None:
        """Nothing: room that a longer value has left stays taken until ``clear``."""

    def ordered(self) -> Sequence[Row]:
        """Rows that become objects of Python while they are read, some thousands at a time."""
        self._core.newest_sort(self.table)
        return OrderedRows(self._core, self)

    def clear(self) -> None:
        """Forget everything, and give its memory back."""
        self._core.newest_clear(self.table)


class OrderedRows(Sequence[Row]):
    """The rows of a sorted table: by key, each key once."""

    def __init__(self, used: Core, newest: NativeNewest) -> None:
        self._core = used
        self._newest = newest  # which has the memory
        self._count = len(newest)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        for first in range(0, self._count, _CHUNK_ROWS):
            yield from self._rows(first, min(_CHUNK_ROWS, self._count - first))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Row | list[Row]:
        chosen = range(self._count)[index]
        if isinstance(chosen, int):
            return self._rows(chosen, 1)[0]
        return [self._rows(row, 1)[0] for row in chosen]

    def _rows(self, first: int, count: int) -> list[Row]:
        assert self._count == len(self._newest), "read before the table is cleared"
        return self._core.newest_rows(self._newest.table, first, count)


def _bytes_of(columns: Iterable[bytes | None]) -> int:
    return sum(map(len, filter(None, columns)))
