"""The only place that iterates over RocksDB: its easy iterators stop silently at a damaged block."""

from __future__ import annotations

import weakref

from rocksdict import Rdict, RdictIter, ReadOptions

_FIRST_CHUNK_ENTRIES = 8
"""Whoever looks for one entry should not pay for many."""
_CHUNK_ENTRIES = 512


class Cursor:
    """A range of one column family as it was when the cursor was made.

    It keeps the database open until it is released, exhausted, or garbage.
    """

    def __init__(self, family: Rdict, first: bytes, after: bytes | None) -> None:
        options = ReadOptions()
        if after is not None:
            options.set_iterate_upper_bound(after)
        self._iterator: RdictIter | None = family.iter(options)
        # The iterator looks at the bound inside these options and does not keep them alive: freed, the bound is
        # whatever comes to lie there, and the scan ends early without an error.
        self._options = options
        self._iterator.seek(first)
        self._chunk_entries = _FIRST_CHUNK_ENTRIES

    def next_chunk(self) -> list[tuple[bytes, bytes]]:
        """The next entries, none at the end. Raises RocksDB's error where data is damaged."""
        iterator = self._iterator
        assert iterator is not None, "the store was closed, or the scan ended, while it was still being read"
        chunk: list[tuple[bytes, bytes]] = []
        valid, key, value, following = iterator.valid, iterator.key, iterator.value, iterator.next
        entries_max, self._chunk_entries = self._chunk_entries, min(4 * self._chunk_entries, _CHUNK_ENTRIES)
        while len(chunk) < entries_max and valid():
            chunk.append((key(), value()))
            following()
        if len(chunk) < entries_max:
            iterator.status()  # not valid: the end, or an error that only this call tells
        return chunk

    def release(self) -> None:
        """Let go of the database."""
        self._iterator = None


class Cursors:
    """The cursors of one database that are still alive."""

    def __init__(self) -> None:
        self._alive: weakref.WeakSet[Cursor] = weakref.WeakSet()

    def add(self, cursor: Cursor) -> None:
        """Remember a cursor for as long as somebody else does."""
        self._alive.add(cursor)

    def release_all(self) -> None:
        """Make all of them let go, so that the database can close."""
        for cursor in list(self._alive):
            cursor.release()
