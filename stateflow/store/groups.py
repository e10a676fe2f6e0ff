"""Whole groups of keys in memory: what a store holds under one prefix, in order, as the task left it.

State per key is often a few entries that are read as a range for each record: those of a join's interval, of a set, of
versions. To ask RocksDB for a range costs an iterator and a seek each time, and the more the more of what it passes was
deleted; a group is asked for once, and followed from then on.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from stateflow.memory import ENTRY_BYTES

GROUP_ENTRIES_MAX = 256
"""A larger group is not kept: a range of it is read from disk for less than all of it takes in memory."""


class Group:
    """The entries of one group, the task's changes included."""

    __slots__ = ("_keys", "_values", "size_bytes")

    def __init__(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        self._keys = [key for key, _ in entries]
        self._values = dict(entries)
        self.size_bytes = ENTRY_BYTES * (1 + len(entries)) + sum(
            len(key) + len(data) for key, data in entries
        )

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key: bytes) -> bytes | None:
        """The value under a key, or None."""
        return self._values.get(key)

    def between(self, first: bytes, after: bytes | None) -> list[tuple[bytes, bytes]]:
        """The entries with ``first`` ≤ key < ``after``, in order."""
        keys = self._keys
        if not keys:
            return []
        begin = bisect_left(keys, first)
        end = len(keys) if after is None else bisect_left(keys, after, begin)
        values = self._values
        return [(key, values[key]) for key in keys[begin:end]]

    def set(self, key: bytes, value: bytes | None) -> int:
        """Follow a change; returns by how much the group has grown, bytes."""
        before = self._values.get(key)
        if value is None:
            if before is None:
                return 0
            del self._values[key]
            del self._keys[bisect_left(self._keys, key)]
            grown = -ENTRY_BYTES - len(key) - len(before)
        else:
            self._values[key] = value
            if before is None:
                insort(self._keys, key)
                grown = ENTRY_BYTES + len(key) + len(value)
            else:
                grown = len(value) - len(before)
        self.size_bytes += grown
        return grown


class Groups:
    """Groups by prefix in at most ``bytes_max``: what was not asked for longest goes first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._groups: OrderedDict[bytes, Group | None] = OrderedDict()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, prefix: bytes) -> bool:
        return prefix in self._groups

    @property
    def size_bytes(self) -> int:
        """How much they take, about."""
        return self._size_bytes

    def limit(self, bytes_max: int) -> None:
        """From now on hold at most so much."""
        self.bytes_max = bytes_max
        self._trim()

    def get(self, prefix: bytes) -> Group | None:
        """A group that is in it; None where it was found to be too large. Raises ``KeyError``."""
        self._groups.move_to_end(prefix)
        return self._groups[prefix]

    def put(self, prefix: bytes, group: Group | None) -> None:
        """Take a group in; None says that it is too large."""
        self.forget(prefix)
        self._groups[prefix] = group
        self._size_bytes += _size(prefix, group)
        self._trim()

    def follow(self, prefix: bytes, key: bytes, value: bytes | None) -> None:
        """An entry was set, or deleted: the group of that prefix follows, if it is here."""
        group = self._groups.get(prefix)
        if group is None:
            return
        self._size_bytes += group.set(key, value)
        if len(group) > GROUP_ENTRIES_MAX:
            self.put(prefix, None)
        elif self._size_bytes > self.bytes_max:
            self._trim()

    def forget(self, prefix: bytes) -> None:
        """Know nothing of a group any more."""
        if prefix in self._groups:
            self._size_bytes -= _size(prefix, self._groups.pop(prefix))

    def clear(self) -> None:
        """Know nothing any more."""
        self._groups.clear()
        self._size_bytes = 0

    def _trim(self) -> None:
        while self._size_bytes > self.bytes_max and self._groups:
            prefix, group = self._groups.popitem(last=False)
            self._size_bytes -= _size(prefix, group)


def entries_over(
    committed: Iterator[tuple[bytes, bytes]], changed: dict[bytes, bytes | None]
) -> list[tuple[bytes, bytes]]:
    """A group's entries in order: what is on disk with the task's changes over it."""
    if not changed:
        return list(committed)
    found: dict[bytes, bytes | None] = {**dict(committed), **changed}
    return sorted((key, value) for key, value in found.items() if value is not None)


def _size(prefix: bytes, group: Group | None) -> int:
    return len(prefix) + (ENTRY_BYTES if group is None else group.size_bytes)
