"""Keys kept in byte order while they are added one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

_CHUNK_KEYS = 1_000


class OrderedKeys:
    """A sorted set of keys as a list of sorted lists of bounded length: a search and a short insertion per key.

    What ``bisect.insort`` into one list would move is bounded by the chunk, and nothing is sorted again.
    """

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        ordered = sorted(keys)
        self._chunks = [ordered[index : index + _CHUNK_KEYS] for index in range(0, len(ordered), _CHUNK_KEYS)]
        self._lasts = [chunk[-1] for chunk in self._chunks]

    def add(self, key: bytes) -> None:
        """Put a key in its place; one that is there stays."""
        if not self._chunks:
            self._chunks, self._lasts = [[key]], [key]
            return
        place = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[place]
        index = bisect_left(chunk, key)
        if index < len(chunk) and chunk[index] == key:
            return
        chunk.insert(index, key)
        self._lasts[place] = chunk[-1]
        if len(chunk) > 2 * _CHUNK_KEYS:
            self._chunks[place : place + 1] = [chunk[:_CHUNK_KEYS], chunk[_CHUNK_KEYS:]]
            self._lasts[place : place + 1] = [chunk[_CHUNK_KEYS - 1], chunk[-1]]

    def extend(self, keys: Sequence[bytes]) -> bool:
        """Put keys in, in order and all between two chunks; False, and nothing done, where they are not.

        What is new of a list by time comes behind all else, what is taken off it before all that stays.
        """
        if not keys:
            return True
        place = bisect_left(self._lasts, keys[0])
        if place < len(self._chunks) and keys[-1] >= self._chunks[place][0]:
            return False
        added = [list(keys[index : index + _CHUNK_KEYS]) for index in range(0, len(keys), _CHUNK_KEYS)]
        self._chunks[place:place] = added
        self._lasts[place:place] = [chunk[-1] for chunk in added]
        return True

    def discard_all(self, keys: Sequence[bytes]) -> None:
        """Take keys out; they are in order, and most of them those that come first here."""
        taken = 0
        while self._chunks and taken < len(keys):
            chunk = self._chunks[0]
            size = min(len(chunk), len(keys) - taken)
            if chunk[:size] != keys[taken : taken + size]:
                break
            taken += size
            if size < len(chunk):
                del chunk[:size]
                break
            del self._chunks[0], self._lasts[0]
        for key in keys[taken:]:
            self.discard(key)

    def discard(self, key: bytes) -> None:
        """Take a key out; a missing one is not an error."""
        place = bisect_left(self._lasts, key)
        if place == len(self._chunks):
            return
        chunk = self._chunks[place]
        index = bisect_left(chunk, key)
        if chunk[index] != key:
            return
        del chunk[index]
        if chunk:
            self._lasts[place] = chunk[-1]
        else:
            del self._chunks[place], self._lasts[place]

    def between(self, first: bytes, after: bytes | None) -> list[bytes]:
        """The keys with ``first`` ≤ key < ``after``, in order, as they are now."""
        found: list[bytes] = []
        for place in range(bisect_left(self._lasts, first), len(self._chunks)):
            chunk = self._chunks[place]
            if after is not None and chunk[0] >= after:
                break
            found += chunk[
                bisect_left(chunk, first) : len(chunk) if after is None else bisect_left(chunk, after)
            ]
        return found

    def from_key(self, first: bytes) -> Iterator[bytes]:
        """The keys at or after ``first``, in order; to be read before any is added or discarded."""
        for place in range(bisect_left(self._lasts, first), len(self._chunks)):
            chunk = self._chunks[place]
            for index in range(bisect_left(chunk, first), len(chunk)):
                yield chunk[index]
