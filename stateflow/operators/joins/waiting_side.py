"""What waits in state on one side of a join of two streams: per key, in the order of time.

Entry ``prefix of the key ‖ time ‖ number`` holds a value. A derived store lists all entries of all keys by time, so
those whose interval is over are found by one range, and nothing is kept per key to know when that is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import compress

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.rows import left_of
from stateflow.state.due_order import WindowOrder
from stateflow.state.layout import prefix_bytes
from stateflow.store.base import StateStore
from stateflow.store.derived import index_family
from stateflow.store.grouped import GroupedStore
from stateflow.store.open_groups import OpenGroups

_ENTRY = struct.Struct(">QI")
_TIME = struct.Struct(">Q")
_TIME_BYTES = _TIME.size


class WaitingSide:
    """The records of one input that may still find partners. Nobody else may use its store before ``flush``."""

    def __init__(self, context: StageContext, store: str, kept_ms: int) -> None:
        self.store = grouped(context, store)
        self.listed: StateStore = context.store(index_family(store))
        self._order = WindowOrder(self.listed)
        self._groups = OpenGroups(self.store)
        self._kept_ms = kept_ms
        self._added: list[bytes] = []

    def open(self, prefixes: Sequence[bytes]) -> None:
        """These are the keys that are worked on until ``flush``."""
        self._groups.open(prefixes)

    def between(self, prefix: bytes, first_ms: int, last_ms: int) -> list[tuple[bytes, bytes]]:
        """The entries of a key, with their values, from one time to another, both included, in order."""
        group = self._groups.group(prefix)
        if group is not None and not group.entries:
            return []
        first = prefix + _ENTRY.pack(first_ms if first_ms > 0 else 0, 0)
        return self._groups.between(prefix, first, prefix + _ENTRY.pack(last_ms + 1, 0))

    def get(self, prefix: bytes, store_key: bytes) -> bytes | None:
        """The value of an entry, or None."""
        return self._groups.get(prefix, store_key)

    def add(self, prefix: bytes, at_ms: int, value: bytes) -> bytes:
        """One more entry of a key, behind those of its time; returns its key in the store."""
        entry = _ENTRY.pack(at_ms, 0)
        store_key = prefix + entry
        group = self._groups.group(prefix)
        if group is None or (group.entries and group.entries[-1][0] >= store_key):
            same = self.between(prefix, at_ms, at_ms)
            if same:
                number = _ENTRY.unpack_from(same[-1][0], len(prefix))[1] + 1
                store_key = prefix + _ENTRY.pack(at_ms, number)
        self._groups.add(prefix, store_key, value)
        self._added.append(entry[:_TIME_BYTES] + store_key)
        return store_key

    def rows_with_entries(self, prefixes: Sequence[bytes]) -> list[int]:
        """The rows whose keys may have entries here."""
        return self._groups.rows_with_entries(prefixes)

    def add_all(self, prefixes: Sequence[bytes], times_ms: Sequence[int], values: Sequence[bytes]) -> None:
        """The same of several entries, in their order."""
        entries = [_ENTRY.pack(at_ms, 0) for at_ms in times_ms]
        store_keys = [prefix + entry for prefix, entry in zip(prefixes, entries, strict=True)]
        refused = self._groups.append_all(prefixes, store_keys, values)
        added = [entry[:_TIME_BYTES] + key for entry, key in zip(entries, store_keys, strict=True)]
        self._added += left_of(added, refused)
        for row in refused:
            self.add(prefixes[row], times_ms[row], values[row])

    def flush(self) -> None:
        """Have what was added in the stores."""
        self._groups.flush()
        added, self._added = self._added, []
        if added:
            added.sort()
            self._order.add_entries(added)

    # --- what is over -----------------------------------------------------------------------------------

    def may_be_over(self, reached_ms: int) -> bool:
        """False when certainly no interval is over."""
        return reached_ms >= self._kept_ms and self._order.may_be_due(reached_ms - self._kept_ms)

    def take_over(self, reached_ms: int, limit: int) -> list[bytes]:
        """Take the earliest entries whose interval is over off the list, ``limit`` at most, by time, then by key."""
        if not self.may_be_over(reached_ms):
            return []
        return self._order.take_keys_until(reached_ms - self._kept_ms, limit)

    def until_ms(self) -> int:
        """When the last interval is over, ``UNKNOWN_MS`` without any."""
        last_ms = self._order.last_start_ms()
        return UNKNOWN_MS if last_ms is None else last_ms + self._kept_ms


class Unmatched:
    """Which entries have found no partner yet: per key, of the side they are on.

    Entry ``prefix of the key ‖ side ‖ time ‖ number`` holds nothing.
    """

    def __init__(self, context: StageContext, store: str, kept_ms: dict[bytes, int]) -> None:
        self.store = grouped(context, store)
        self._groups = OpenGroups(self.store)
        self._kept_ms = kept_ms
        self._over_until = dict.fromkeys(kept_ms, b"")
        self._reached_ms = UNKNOWN_MS

    def open(self, prefixes: Sequence[bytes]) -> None:
        """These are the keys that are worked on until ``flush``."""
        self._groups.open(prefixes)

    def add(self, prefix: bytes, side: bytes, store_key: bytes) -> None:
        """An entry has found none."""
        self._groups.add(prefix, prefix + side + store_key[len(prefix) :], b"")

    def discard(self, prefix: bytes, side: bytes, store_key: bytes) -> bool:
        """An entry is unmatched no longer; False where it was not."""
        group = self._groups.group(prefix)
        if group is not None and not group.entries:
            return False
        key = prefix + side + store_key[len(prefix) :]
        if self._groups.get(prefix, key) is None:
            return False
        self._groups.remove(prefix, key)
        return True

    def over_of(self, prefix: bytes, reached_ms: int) -> list[tuple[bytes, bytes]]:
        """The entries of a key whose interval is over at some event time: time and number, and side; in order."""
        group = self._groups.group(prefix)
        if group is not None and not group.entries:
            return []
        if reached_ms != self._reached_ms:
            self._reached_ms = reached_ms
            for side, kept_ms in self._kept_ms.items():
                self._over_until[side] = side + _TIME.pack(max(0, reached_ms - kept_ms + 1))
        if group is not None and len(group.entries) == 1:  # as most often
            key = group.entries[0][0]
            side = key[len(prefix) : len(prefix) + 1]
            return [(key[len(prefix) + 1 :], side)] if key < prefix + self._over_until[side] else []
        skip = len(prefix) + 1
        found = [
            (key[skip:], side)
            for side, until in self._over_until.items()
            for key, _ in self._groups.between(prefix, prefix + side, prefix + until)
        ]
        return sorted(found) if len(found) > 1 else found

    def taken(self, side: bytes, over: Sequence[bytes]) -> list[bytes]:
        """Those of some entries that were unmatched; none of them is any longer."""
        keys = []
        for store_key in over:
            size = prefix_bytes(store_key)
            keys.append(store_key[:size] + side + store_key[size:])
        get = self.store.get
        was_there = [get(key) is not None for key in keys]
        self.store.delete_many(list(compress(keys, was_there)))
        return list(compress(over, was_there))

    def flush(self) -> None:
        """Have all changes in the store."""
        self._groups.flush()


def grouped(context: StageContext, store: str) -> GroupedStore:
    """A store of the stage whose keys begin with their group's."""
    found = context.store(store)
    assert isinstance(found, GroupedStore), f"{store} has a layout that is prefixed"
    return found


def time_of(entry: bytes, at: int = 0) -> int:
    """The time of an entry, ms, which stands there in the bytes."""
    return int(_TIME.unpack_from(entry, at)[0])
