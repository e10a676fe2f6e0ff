"""A dirty map over a store whose keys are read in groups: those of one prefix together, again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from stateflow.memory import ENTRY_BYTES
from stateflow.store.base import Change, StoreReader
from stateflow.store.dirty import DEFAULT_READ_CACHE_BYTES, DirtyStore
from stateflow.store.groups import GROUP_ENTRIES_MAX, Group, Groups, entries_over

_NOTED_GROUP_BYTES = 200
"""What it costs to know which keys of a group were changed, about."""


class GroupedStore(DirtyStore):
    """A ``DirtyStore`` that keeps the groups whose ranges are asked for in memory, in half of its read cache.

    In all of it, where all groups had room there when the first was asked for.

    ``prefix_bytes`` tells by the first ``length_bytes`` of a key how much of it is its group's prefix; ``group_end``
    which key comes behind a group, None where none does. Nothing is kept, and no write costs more, until the first
    range within a group is read.
    Not thread-safe.
    """

    def __init__(
        self,
        reader: StoreReader,
        prefix_bytes: Callable[[bytes], int],
        group_end: Callable[[bytes], bytes | None],
        length_bytes: int,
        read_cache_bytes: int = DEFAULT_READ_CACHE_BYTES,
    ) -> None:
        super().__init__(reader, read_cache_bytes)
        self._prefix_bytes, self._group_end, self._length_bytes = prefix_bytes, group_end, length_bytes
        self._read_cache_bytes = read_cache_bytes
        self._groups = Groups(0)
        self._is_grouped = False
        self._gives_all = False
        """Whether the groups have all of the cache's memory."""
        self._changed_of: dict[bytes, list[bytes]] | None = None
        """By prefix the keys that are, or were, dirty in this epoch: from the first group on that is read only then."""

    @property
    def held_bytes(self) -> int:
        """What the changes take in memory, and what is noted of them."""
        return super().held_bytes + _NOTED_GROUP_BYTES * len(self._changed_of or ())

    def limit_cache(self, bytes_max: int) -> None:
        """From now on the read cache and the groups hold at most so much together."""
        self._read_cache_bytes = bytes_max
        groups_bytes = 0
        if self._is_grouped:  # what is known as a whole is found in its groups, or not there
            groups_bytes = bytes_max if self._groups.knows_all else bytes_max // 2
        self._gives_all = groups_bytes == bytes_max
        super().limit_cache(bytes_max - groups_bytes)
        self._groups.limit(groups_bytes)

    # --- reading --------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The value as this task left it, or None."""
        if self._is_grouped:
            prefix = key[: self._prefix_bytes(key)]
            if prefix in self._groups and (group := self._groups.get(prefix)) is not None:
                return group.get(key)
            if self._groups.is_empty(prefix):
                return None
        return DirtyStore.get(self, key)

    def scan(self, first: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first`` ≤ key < ``after``, in byte order, as they are now.

        Later writes of this task do not change a scan that has begun.
        """
        group = self._group_within(first, after)
        return super().scan(first, after) if group is None else iter(group.between(first, after))

    def range(self, first: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """The first entries that ``scan`` would give, ``limit`` at most."""
        group = self._group_within(first, after)
        return super().range(first, after, limit) if group is None else group.between(first, after)[:limit]

    def _group_within(self, first: bytes, after: bytes | None) -> Group | None:
        """The group that a range lies in; None where it lies in none, or in one that is too large to keep."""
        if not first or not self._read_cache_bytes:
            return None
        prefix = self._prefix_of(first)
        if prefix is None:
            return None
        if (after is None or not after.startswith(prefix)) and after != self._group_end(prefix):
            return None
        return self.group(prefix)

    def group(self, prefix: bytes) -> Group | None:
        """What is under a prefix, to be looked at; None where it is not kept, and is read as a range."""
        if not self._read_cache_bytes:
            return None
        if not self._is_grouped:
            self._begin_grouping()
        if prefix in self._groups:
            return self._groups.get(prefix)
        if self._groups.is_empty(prefix):
            return Group()
        if self._gives_all and not self._groups.knows_all:
            self.limit_cache(self._read_cache_bytes)
        group = self._read_group(prefix)
        self._groups.put(prefix, group)
        return group

    def groups(self, prefixes: Iterable[bytes]) -> dict[bytes, Group | None]:
        """What is under some prefixes, as ``group`` says it; one that is not among them has no entries.

        They may be changed by whoever calls ``put_grouped`` for it, before anything else is asked of the store.
        """
        if not self._read_cache_bytes:
            return dict.fromkeys(prefixes)
        if not self._is_grouped:
            self._begin_grouping()
        found, unknown = self._groups.find_many(prefixes)
        for prefix in unknown:
            found[prefix] = self.group(prefix)
        return found

    def _prefixes_of(self, keys: Sequence[bytes]) -> list[bytes]:
        """The prefix of each key; most have the length of the one before."""
        length_bytes, head, size, prefixes = self._length_bytes, b"", 0, []
        for key in keys:
            if key[:length_bytes] != head:
                head, size = key[:length_bytes], self._prefix_bytes(key)
            prefixes.append(key[:size])
        return prefixes

    def _prefix_of(self, first: bytes) -> bytes | None:
        """The prefix that a range begins with; None where it begins before there is a whole one."""
        if len(first) < self._length_bytes:
            return None
        size = self._prefix_bytes(first)
        return first[:size] if len(first) >= size else None

    def _begin_grouping(self) -> None:
        self._is_grouped = True
        self._groups.limit(self._read_cache_bytes)
        most = self._read_cache_bytes // ENTRY_BYTES
        entries = list(islice(super().scan(), most + 1))
        if len(entries) <= most:
            self._groups.begin_with(entries, lambda key: key[: self._prefix_bytes(key)])
        self.limit_cache(self._read_cache_bytes)

    def _read_group(self, prefix: bytes) -> Group | None:
        if self._changed_of is None:
            self._changed_of = {}
            self._enter_run()
            for key in self._dirty:
                self._note(key)
        changed = {key: self._dirty[key] for key in self._changed_of.get(prefix, ()) if key in self._dirty}
        if len(changed) > GROUP_ENTRIES_MAX:
            return None
        # As many of those on disk may be deleted as were changed.
        most = GROUP_ENTRIES_MAX + len(changed) + 1
        committed = list(islice(self._reader.scan(prefix, self._group_end(prefix)), most))
        if len(committed) == most:
            return None
        entries = entries_over(iter(committed), changed)
        return None if len(entries) > GROUP_ENTRIES_MAX else Group(entries)

    # --- writing --------------------------------------------------------------------------------------

    def put_many(self, changes: Sequence[Change]) -> None:
        """Set or delete many keys."""
        if self._is_grouped and self._undo is None:  # else they come by _set
            for key, value in changes:
                self._follow(key, value)
        super().put_many(changes)

    def put_columns(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Set or delete many different keys."""
        self.put_many(list(zip(keys, values, strict=True)))

    def put_keys(self, keys: Sequence[bytes]) -> None:
        """Set many different keys in their order, which have no value."""
        self.put_many([(key, b"") for key in keys])

    def put_new(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set many different keys that are not there."""
        if self._is_grouped:
            for key, value in zip(keys, values, strict=True):
                self._follow(key, value)
        super().put_new(keys, values)

    def put_new_keys(self, keys: Sequence[bytes]) -> None:
        """The same of keys in their order, which have no value."""
        self.put_new(keys, [b""] * len(keys))

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Remove many different keys."""
        if self._is_grouped and self._undo is None:
            self._note_all(keys)
            self._groups.take_out(keys, self._prefixes_of(keys))
        super().delete_many(keys)

    def put_grouped(
        self,
        groups: Mapping[bytes, Group],
        keys: Sequence[bytes],
        values: Sequence[bytes],
        deleted: Sequence[bytes] = (),
    ) -> None:
        """Set different keys that are not there, then delete some, which these groups have done already."""
        self._note_all(keys)
        self._note_all(deleted)
        DirtyStore.put_new(self, keys, values)
        if deleted:
            DirtyStore.delete_many(self, deleted)
        self._groups.take_all_changed(groups)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if self._is_grouped:
            self._follow(key, value)
        DirtyStore._set(self, key, value)  # for every write: super() takes longer

    def _follow(self, key: bytes, value: bytes | None) -> None:
        """A key is about to be changed."""
        prefix = key[: self._prefix_bytes(key)]
        if self._changed_of is not None and key not in self._dirty:
            self._changed_of.setdefault(prefix, []).append(key)
        self._groups.follow(prefix, key, value)

    def _note(self, key: bytes) -> None:
        if self._changed_of is not None:
            self._changed_of.setdefault(key[: self._prefix_bytes(key)], []).append(key)

    def _note_all(self, keys: Sequence[bytes]) -> None:
        if self._changed_of is not None:
            for key in keys:
                self._note(key)

    # --- one record's scope, and the commit ---------------------------------------------------------------

    def rollback(self, mark: int) -> None:
        """End the scope and take its writes back, newest first."""
        if self._is_grouped:
            for key, _ in self._undo or ():
                self._groups.forget(key[: self._prefix_bytes(key)])
        super().rollback(mark)

    def committed(self) -> None:
        """The epoch is on disk: its values stay readable from memory, the dirty map is empty."""
        groups, self._groups = self._groups, Groups(self._groups.bytes_max)
        super().committed()
        self._groups = groups

    def clear(self) -> None:
        """Drop the epoch; what was committed is as it was."""
        super().clear()
        self._groups.clear()
        self._changed_of = None
