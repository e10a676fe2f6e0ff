"""The newest record of each key with its time, in the core: divided into slices, sent on as pieces, and given out.

The twin in Python is ``scale.newest_rows``; what either sends the other takes in. Headers are not kept: ``HasHeaders``
says that there are some, and then it is done in Python.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Collection, Iterator
from ctypes import POINTER, c_int64, c_uint64, c_void_p, py_object
from dataclasses import dataclass
from typing import Any

from stateflow.native.library import Core, done
from stateflow.native.loading import core
from stateflow.record import RecordBatch

_CHUNK_ENTRIES = 10_000
_NOT_UNDERSTOOD = -2


class HasHeaders(Exception):
    """Records with headers, or pieces of such records, which the core does not keep."""


@dataclass(frozen=True, slots=True)
class RowsCore:
    """The core's functions over tables of records."""

    core: Core
    add: Any
    divide: Any
    piece: Any
    digests: Any
    take: Any
    take_digests: Any
    partition: Any
    keys: Any
    values: Any
    sum: Any


@functools.cache
def rows_core() -> RowsCore | None:
    """The functions, where the core is in use."""
    used = core()
    if used is None:
        return None
    table, number = c_void_p, c_int64
    return RowsCore(
        core=used,
        add=used.object_function("sf_py_rows_add", number, table, py_object, py_object, py_object),
        divide=used.function("sf_rows_divide", number, table, number, POINTER(number)),
        piece=used.object_function("sf_py_rows_piece", py_object, table, number, number),
        digests=used.object_function("sf_py_rows_digests", py_object, table, number, number, number),
        take=used.object_function("sf_py_rows_take", number, table, py_object, number, number, number),
        take_digests=used.object_function("sf_py_digests_take", number, table, py_object),
        partition=used.object_function("sf_py_digests_partition", number, py_object),
        keys=used.object_function("sf_py_rows_keys", py_object, table, number, number),
        values=used.object_function("sf_py_rows_values", py_object, table, number, number),
        sum=used.object_function(
            "sf_py_digests_sum", number, table, number, number, py_object, number, POINTER(c_uint64)
        ),
    )


class _Table:
    """A table whose memory ends with this object. Not thread-safe."""

    def __init__(self, used: RowsCore, ignored: bytes = b"") -> None:
        self._used = used
        self.table = used.core.newest_new(ignored)
        """For other functions of the core that fill it."""
        weakref.finalize(self, used.core.newest_free, self.table)

    def __len__(self) -> int:
        """How many keys there are, deleted ones among them."""
        return int(self._used.core.newest_count(self.table))

    @property
    def held_bytes(self) -> int:
        """What is allocated, and what dividing will take."""
        return int(self._used.core.newest_bytes(self.table))

    def clear(self) -> None:
        """Forget everything, and give its memory back."""
        self._used.core.newest_clear(self.table)

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """The entries, some thousands at a time."""
        count = len(self)
        for first in range(0, count, _CHUNK_ENTRIES):
            yield first, min(first + _CHUNK_ENTRIES, count)


class NativeRows(_Table):
    """The newest records of keys, by key: value and time."""

    def add(self, batch: RecordBatch) -> int:
        """Records in their order; returns the bytes of their keys and values. Raises ``HasHeaders``."""
        if any(batch.headers):
            raise HasHeaders
        size_bytes: int = self._used.add(self.table, batch.keys, batch.values, batch.timestamps_ms)
        return size_bytes

    def pieces(self, slices: int, wanted: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """The entries, deletions among them, of those slices that are wanted and have any."""
        for number, first, count in self._slices(slices):
            if number in wanted:
                yield number, self._used.piece(self.table, first, count)

    def digests(self, slices: int, partition: int) -> Iterator[tuple[int, bytes]]:
        """Keys and hashes of the entries of each slice that has any."""
        for number, first, count in self._slices(slices):
            yield number, self._used.digests(self.table, partition, first, count)

    def take(self, piece: bytes, slices: int, part: int, parts: int) -> None:
        """Take in what a piece has of one of the parts of its slice. Raises ``HasHeaders``."""
        _taken(self._used.take(self.table, piece, slices, part, parts))

    def live(self) -> Iterator[tuple[list[bytes], list[bytes], list[int]]]:
        """Keys, values and times without deletions, some thousands at a time."""
        for first, after in self._chunks():
            values, times_ms = self._used.values(self.table, first, after)
            yield self._used.keys(self.table, first, after), values, times_ms

    def _slices(self, slices: int) -> Iterator[tuple[int, int, int]]:
        """The slices that have entries: number, first entry, how many."""
        counts = (c_int64 * slices)()
        done(self._used.divide(self.table, slices, counts))
        first = 0
        for number, count in enumerate(counts):
            if count:
                yield number, first, count
            first += count


class NativeDigests(_Table):
    """The newest hashes of keys."""

    def take(self, piece: bytes) -> None:
        """Take a piece of one partition in."""
        _taken(self._used.take_digests(self.table, piece))

    def live_keys(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """Keys that were not deleted, some thousands at a time, with the entries that they are of."""
        for first, after in self._chunks():
            yield first, after, self._used.keys(self.table, first, after)

    def add_to(self, sums: Any, first: int, after: int, owners: list[int]) -> None:
        """Add entries to the sums of their owners: ``sums`` has a number and a hash (modulo 2^64) for each, uint64."""
        failed = self._used.sum(self.table, first, after, owners, len(sums) // 2, sums)
        assert not failed, "an owner for each key, and a sum for each owner"


def _taken(code: int) -> None:
    if code == _NOT_UNDERSTOOD:
        raise HasHeaders
    done(code)
