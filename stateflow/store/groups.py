"""Whole groups of keys in memory: what a store holds under one prefix, in order, as the task left it.

State per key is often a few entries that are read as a range for each record: those of a join's interval, of a set, of
versions. To ask RocksDB for a range costs an iterator and a seek each time, and the more the more of what it passes was
deleted; a group is asked for once, and followed from then on.

A store that had room for all its groups once is known as a whole from then on: of groups that had to go their prefixes
are kept, and any other has no entries. So a key that is new costs no look at the disk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from stateflow.memory import ENTRY_BYTES

GROUP_ENTRIES_MAX = 256
"""A larger group is not kept: a range of it is read from disk for less than all of it takes in memory."""

_PREFIX_BYTES = 120
"""What it costs to know of a group that it may have entries, beside its prefix."""


class Group:
    """The entries of one group, the task's changes included."""

    __slots__ = ("counted_bytes", "entries", "size_bytes")

    def __init__(self, entries: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.entries = list(entries)
        """Keys and values in the order of the keys, to be looked at only."""
        self.size_bytes = ENTRY_BYTES
        for key, data in entries:
            self.size_bytes += ENTRY_BYTES + len(key) + len(data)
        self.counted_bytes = 0
        """As what it counts where it is held."""

    @classmethod
    def of(cls, key: bytes, value: bytes) -> Group:
        """A group of one entry, as most are."""
        group = cls.__new__(cls)
        group.entries = [(key, value)]
        group.size_bytes = 2 * ENTRY_BYTES + len(key) + len(value)
        group.counted_bytes = 0
        return group

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, key: bytes, value: bytes) -> bool:
        """Set a key behind all others; False, with nothing done, where one is not before it."""
        entries = self.entries
        if entries and entries[-1][0] >= key:
            return False
        entries.append((key, value))
        self.size_bytes += ENTRY_BYTES + len(key) + len(value)
        return True

    def get(self, key: bytes) -> bytes | None:
        """The value under a key, or None."""
        entries = self.entries
        at = bisect_left(entries, (key,))
        return entries[at][1] if at < len(entries) and entries[at][0] == key else None

    def between(self, first: bytes, after: bytes | None) -> list[tuple[bytes, bytes]]:
        """The entries with ``first`` ≤ key < ``after``, in order."""
        entries = self.entries
        if not entries:
            return []
        begin = bisect_left(entries, (first,))
        return entries[begin : len(entries) if after is None else bisect_left(entries, (after,), begin)]

    def set(self, key: bytes, value: bytes | None) -> None:
        """Follow a change."""
        entries = self.entries
        if value is not None and (not entries or key > entries[-1][0]):  # as most come
            entries.append((key, value))
            self.size_bytes += ENTRY_BYTES + len(key) + len(value)
            return
        at = bisect_left(entries, (key,))
        if at < len(entries) and entries[at][0] == key:
            before = entries[at][1]
            if value is None:
                del entries[at]
                self.size_bytes -= ENTRY_BYTES + len(key) + len(before)
            else:
                entries[at] = (key, value)
                self.size_bytes += len(value) - len(before)
        elif value is not None:
            entries.insert(at, (key, value))
            self.size_bytes += ENTRY_BYTES + len(key) + len(value)


class Groups:
    """Groups by prefix in at most ``bytes_max``: what was not asked for longest goes first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._groups: OrderedDict[bytes, Group | None] = OrderedDict()
        self._size_bytes = 0
        self._elsewhere: set[bytes] | None = None
        """The prefixes of those that are not here and may have entries; None where that may be any."""
        self._elsewhere_bytes = 0

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, prefix: bytes) -> bool:
        return prefix in self._groups

    @property
    def size_bytes(self) -> int:
        """How much they take, about."""
        return self._size_bytes

    @property
    def knows_all(self) -> bool:
        """True while it is known of each group that is not here whether it may have entries."""
        return self._elsewhere is not None

    def is_empty(self, prefix: bytes) -> bool:
        """True for a group that is not here, since it has no entries."""
        elsewhere = self._elsewhere
        return elsewhere is not None and prefix not in elsewhere and prefix not in self._groups

    def begin_with(self, entries: Iterable[tuple[bytes, bytes]], prefix_of: Callable[[bytes], bytes]) -> None:
        """All entries of the store, in order: from now on it is known as a whole."""
        self.clear()
        self._elsewhere = set()
        for prefix, own in groupby(entries, lambda entry: prefix_of(entry[0])):
            group = Group(list(own))
            self.put(prefix, group if len(group) <= GROUP_ENTRIES_MAX else None)

    def limit(self, bytes_max: int) -> None:
        """From now on hold at most so much."""
        self.bytes_max = bytes_max
        self._bound_elsewhere()
        self._trim()

    def get(self, prefix: bytes) -> Group | None:
        """A group that is in it; None where it was found to be too large. Raises ``KeyError``."""
        self._groups.move_to_end(prefix)
        return self._groups[prefix]

    def put(self, prefix: bytes, group: Group | None) -> None:
        """Take a group in; None says that it is too large."""
        self._remove(prefix)
        if self._elsewhere and prefix in self._elsewhere:
            self._elsewhere.remove(prefix)
            self._count_elsewhere(-_elsewhere_bytes(prefix))
        self._groups[prefix] = group
        if group is not None:
            group.counted_bytes = group.size_bytes
        self._size_bytes += _size(prefix, group)
        self._trim()

    def find_many(self, prefixes: Iterable[bytes]) -> tuple[dict[bytes, Group | None], list[bytes]]:
        """Those that are here, or too large, as ``get`` gives them; and the prefixes of which nothing is known."""
        groups, elsewhere = self._groups, self._elsewhere
        found: dict[bytes, Group | None] = {}
        unknown = []
        for prefix in prefixes:
            if prefix in groups:
                found[prefix] = groups[prefix]
                groups.move_to_end(prefix)
            elif elsewhere is None or prefix in elsewhere:
                unknown.append(prefix)
        return found, unknown

    def follow(self, prefix: bytes, key: bytes, value: bytes | None) -> None:
        """An entry was set, or deleted: the group of that prefix follows, if it is here."""
        group = self._groups.get(prefix)
        if group is not None:
            group.set(key, value)
            self.take_changed(prefix, group)
        elif value is not None and self.is_empty(prefix):
            self.put(prefix, Group([(key, value)]))

    def take_changed(self, prefix: bytes, group: Group) -> None:
        """A group was changed by somebody who has it: it is as it stands, whether it is here or had to go."""
        entries = group.entries
        if self._groups.get(prefix) is not group:
            self.put(prefix, group)
        elif entries or self._elsewhere is None:
            self._size_bytes += group.size_bytes - group.counted_bytes
            group.counted_bytes = group.size_bytes
            if self._size_bytes > self.bytes_max:
                self._trim()
        if len(entries) > GROUP_ENTRIES_MAX:
            self.put(prefix, None)
        elif not entries and self._elsewhere is not None and self._groups.get(prefix) is group:
            self._remove(prefix)  # what is not here has no entries

    def take_all_changed(self, changed: Mapping[bytes, Group]) -> None:
        """Several groups were changed by somebody who has them."""
        groups, elsewhere, size_bytes = self._groups, self._elsewhere or (), self._size_bytes
        for prefix, group in changed.items():
            if 0 < len(group.entries) <= GROUP_ENTRIES_MAX:
                before = groups.get(prefix, group)
                if before is group and prefix not in elsewhere:
                    is_here = prefix in groups
                    size_bytes += group.size_bytes - (group.counted_bytes if is_here else -len(prefix))
                    group.counted_bytes = group.size_bytes
                    if not is_here:
                        groups[prefix] = group
                    continue
            self._size_bytes = size_bytes
            self.take_changed(prefix, group)
            size_bytes, elsewhere = self._size_bytes, self._elsewhere or ()
        self._size_bytes = size_bytes
        self._trim()

    def take_out(self, keys: Sequence[bytes], prefixes: Sequence[bytes]) -> None:
        """Entries were deleted: the groups that are here follow."""
        groups, freed_bytes, knows_all = self._groups, 0, self.knows_all
        for key, prefix, group in zip(keys, prefixes, map(groups.get, prefixes), strict=True):
            if group is None:
                continue
            entries = group.entries
            if knows_all and len(entries) == 1 and entries[0][0] == key:
                freed_bytes += len(prefix) + group.counted_bytes
                del groups[prefix]
                continue
            group.set(key, None)
            freed_bytes += group.counted_bytes - group.size_bytes
            group.counted_bytes = group.size_bytes
        self._size_bytes -= freed_bytes

    def forget(self, prefix: bytes) -> None:
        """Know nothing of a group any more."""
        self._remove(prefix)
        self._put_elsewhere(prefix)

    def clear(self) -> None:
        """Know nothing any more."""
        self._groups.clear()
        self._elsewhere, self._elsewhere_bytes = None, 0
        self._size_bytes = 0

    def _remove(self, prefix: bytes) -> None:
        if prefix in self._groups:
            self._size_bytes -= _size(prefix, self._groups.pop(prefix))

    def _put_elsewhere(self, prefix: bytes) -> None:
        if self._elsewhere is None or prefix in self._elsewhere:
            return
        self._elsewhere.add(prefix)
        self._count_elsewhere(_elsewhere_bytes(prefix))
        self._bound_elsewhere()

    def _bound_elsewhere(self) -> None:
        if self._elsewhere_bytes > self.bytes_max // 2:  # they leave too little for what they are known for
            self._count_elsewhere(-self._elsewhere_bytes)
            self._elsewhere = None

    def _count_elsewhere(self, grown_bytes: int) -> None:
        self._elsewhere_bytes += grown_bytes
        self._size_bytes += grown_bytes

    def _trim(self) -> None:
        while self._size_bytes > self.bytes_max and self._groups:
            prefix, group = self._groups.popitem(last=False)
            self._size_bytes -= _size(prefix, group)
            self._put_elsewhere(prefix)


def entries_over(
    committed: Iterator[tuple[bytes, bytes]], changed: dict[bytes, bytes | None]
) -> list[tuple[bytes, bytes]]:
    """A group's entries in order: what is on disk with the task's changes over it."""
    if not changed:
        return list(committed)
    found: dict[bytes, bytes | None] = {**dict(committed), **changed}
    return sorted((key, value) for key, value in found.items() if value is not None)


def _size(prefix: bytes, group: Group | None) -> int:
    return len(prefix) + (ENTRY_BYTES if group is None else group.counted_bytes)


def _elsewhere_bytes(prefix: bytes) -> int:
    return len(prefix) + _PREFIX_BYTES
