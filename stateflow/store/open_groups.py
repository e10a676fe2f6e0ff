"""The groups of a store that a batch works on: changed in memory record by record, in the store all together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stateflow.store.grouped import GroupedStore
from stateflow.store.groups import Group

_ALL = 1 << 62
_NOTHING = Group()


class OpenGroups:
    """Reads and writes of one store by prefix. Nobody else may use the store between ``open`` and ``flush``.

    A group that is not kept in memory, since it is too large, is read and written in the store at once.
    """

    def __init__(self, store: GroupedStore) -> None:
        self._store = store
        self._open: dict[bytes, Group | None] = {}
        self._changed: dict[bytes, Group] = {}
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._deleted: dict[bytes, None] = {}

    def open(self, prefixes: Iterable[bytes]) -> None:
        """These are the prefixes that are worked on until ``flush``."""
        self._open = self._store.groups(prefixes)

    def group(self, prefix: bytes) -> Group | None:
        """The entries under a prefix, to be looked at; None where they are not kept in memory."""
        return self._open.get(prefix, _NOTHING)

    def between(self, prefix: bytes, first: bytes, after: bytes) -> list[tuple[bytes, bytes]]:
        """The entries under a prefix with ``first`` ≤ key < ``after``, in order."""
        group = self._open.get(prefix, _NOTHING)
        return self._store.range(first, after, _ALL) if group is None else group.between(first, after)

    def get(self, prefix: bytes, key: bytes) -> bytes | None:
        """The value under a key of that prefix, or None."""
        group = self._open.get(prefix, _NOTHING)
        return self._store.get(key) if group is None else group.get(key)

    def add(self, prefix: bytes, key: bytes, value: bytes) -> None:
        """Set a key of that prefix that is not there."""
        group = self._open.get(prefix, _NOTHING)
        if group is None:
            self._store.put_new([key], [value])
            return
        if group is _NOTHING:
            group = self._open[prefix] = Group()
        group.set(key, value)
        self._changed[prefix] = group
        self._keys.append(key)
        self._values.append(value)

    def rows_with_entries(self, prefixes: Sequence[bytes]) -> list[int]:
        """The rows whose prefixes may have entries."""
        opened = self._open
        return [row for row, prefix in enumerate(prefixes) if prefix in opened] if opened else []

    def append_all(
        self, prefixes: Sequence[bytes], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> list[int]:
        """Set different keys, each of its prefix. Returns the rows of which nothing was done.

        These are of groups that are not kept in memory, or have a key that is not before the row's.
        """
        opened, changed, refused = self._open, self._changed, []
        for row, (prefix, key, value) in enumerate(zip(prefixes, keys, values, strict=True)):
            group = opened.get(prefix)
            if group is not None:
                if not group.append(key, value):
                    refused.append(row)
                    continue
            elif prefix in opened:
                refused.append(row)
                continue
            else:
                group = opened[prefix] = Group.of(key, value)
            changed[prefix] = group
        left_out = set(refused)
        self._keys += [key for row, key in enumerate(keys) if row not in left_out] if refused else keys
        self._values += (
            [value for row, value in enumerate(values) if row not in left_out] if refused else values
        )
        return refused

    def remove(self, prefix: bytes, key: bytes) -> None:
        """Delete a key of that prefix that is there, for good."""
        group = self._open.get(prefix, _NOTHING)
        if group is None:
            self._store.delete_many([key])
            return
        group.set(key, None)
        self._changed[prefix] = group
        self._deleted[key] = None

    def flush(self) -> None:
        """Have all changes in the store; the groups are the store's again."""
        self._open = {}
        if not self._changed:
            return
        keys, values, deleted, changed = self._keys, self._values, list(self._deleted), self._changed
        self._keys, self._values, self._deleted, self._changed = [], [], {}, {}
        self._store.put_grouped(changed, keys, values, deleted)
