"""What waits for time, in the order in which it falls due: derived stores beside those of windows and timers.

A store's keys begin with the routing key, so what falls due next could only be found by a scan of all of it. Each of
these indexes is a family of its own (``store/derived.py``): written in the same batch as its store, never logged, made
anew from the store where it may be behind. It costs disk in the place of memory, and finding the next costs one seek,
however many there are.

Entries, without values: of windows ``start ‖ store key``, of records that wait for partners ``time ‖ store key``, of
sessions and sliding windows ``time they wait for ‖ store key``; of timers ``e`` or ``p`` (event or processing time)
``‖ due ‖ store key``, and of those in event time a second one, by routing key: ``k ‖ prefix of the key ‖ due ‖ name``.
Times are ms, uint64 big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from stateflow.catalog.model import StoreEntry
from stateflow.codec.timed import time_of
from stateflow.codec.timer import EncodedTimer, TimerTime
from stateflow.state.layout import prefix_bytes, prefixed_key, split_window
from stateflow.store.base import StateStore, StorePosition
from stateflow.store.derived import index_family

_TIME = struct.Struct(">Q")
_TIME_BYTES = _TIME.size
_KIND = {"event": b"e", "processing": b"p"}
_OF_KEY = b"k"
_FLOORS_MAX = 1_000

Due = tuple[int, bytes]
"""A time in ms and the store key of what falls due then."""


class WindowsByStart:
    """Implements ``state.index.DerivedIndex`` for a store of windows."""

    mark = StorePosition("index:windows-by-start-1:", 0)

    def __init__(self, entry: StoreEntry) -> None:
        self.store = entry.name
        self.family = index_family(entry.name)

    def entries(self, store_key: bytes, stored: bytes | None) -> set[bytes]:
        """What the index holds for one window."""
        return set() if stored is None else {_TIME.pack(split_window(store_key)[1]) + store_key}


class WindowsByStamp:
    """Implements ``state.index.DerivedIndex`` for windows whose values stand behind the time that they wait for."""

    mark = StorePosition("index:windows-by-stamp-1:", 0)

    def __init__(self, entry: StoreEntry) -> None:
        self.store = entry.name
        self.family = index_family(entry.name)

    def entries(self, store_key: bytes, stored: bytes | None) -> set[bytes]:
        """What the index holds for one window."""
        return set() if stored is None else {_TIME.pack(time_of(stored)) + store_key}


class EntriesByTime:
    """Implements ``state.index.DerivedIndex`` for a store whose entries have their time behind the prefix of a key."""

    mark = StorePosition("index:entries-by-time-1:", 0)

    def __init__(self, entry: StoreEntry) -> None:
        self.store = entry.name
        self.family = index_family(entry.name)

    def entries(self, store_key: bytes, stored: bytes | None) -> set[bytes]:
        """What the index holds for one entry."""
        if stored is None:
            return set()
        time_at = prefix_bytes(store_key)
        return {store_key[time_at : time_at + _TIME_BYTES] + store_key}


class TimersByDue:
    """Implements ``state.index.DerivedIndex`` for a store of timers."""

    mark = StorePosition("index:timers-by-due-1:", 0)

    def __init__(self, entry: StoreEntry) -> None:
        self.store = entry.name
        self.family = index_family(entry.name)

    def entries(self, store_key: bytes, stored: bytes | None) -> set[bytes]:
        """What the index holds for one timer."""
        if stored is None:
            return set()
        timer = EncodedTimer.decode(stored)
        return set(_timer_entries(timer.time, timer.due_ms, store_key))


class WindowOrder:
    """The windows or entries of one task, the earliest first, taken out as they fall due. In memory it keeps a place.

    Writes to the derived store alone: whoever calls it changes the windows themselves in the same epoch.
    """

    def __init__(self, order: StateStore) -> None:
        self._order = order
        self._floor = b""
        """No entry comes before this one; a scan from here passes over none of those that were taken."""

    def add(self, windows: Iterable[Due]) -> None:
        """Windows were opened, each given by its start and store key."""
        entries = [_TIME.pack(start_ms) + store_key for start_ms, store_key in windows]
        if entries:
            self._order.put_many([(entry, b"") for entry in entries])
            self._floor = min(self._floor, min(entries))

    def add_entries(self, entries: Sequence[bytes]) -> None:
        """Windows were opened that were not there, each given as start ‖ store key, in order."""
        if entries:
            self._order.put_new_keys(entries)
            self._floor = min(self._floor, entries[0])

    def remove(self, windows: Iterable[Due]) -> None:
        """Take windows out before their time, each given as it was added."""
        entries = [_TIME.pack(start_ms) + store_key for start_ms, store_key in windows]
        self._order.put_many([(entry, None) for entry in entries])

    def may_be_due(self, start_ms: int) -> bool:
        """False when no window starts at or before this. Costs a look at the store only where one may."""
        if self._floor >= _TIME.pack(start_ms + 1):
            return False
        found = self._order.range(self._floor, None, 1)
        # With nothing there is no floor to find: the next window that is added sets it.
        self._floor = found[0][0] if found else _TIME.pack((1 << 64) - 1)
        return self._floor < _TIME.pack(start_ms + 1)

    def take_until(self, start_ms: int, limit: int) -> list[Due]:
        """Take out the earliest windows that start at or before this, ``limit`` at most: by start, then by key."""
        return [(_time_of(entry), entry[_TIME_BYTES:]) for entry in self._taken_until(start_ms, limit)]

    def take_keys_until(self, time_ms: int, limit: int) -> list[bytes]:
        """The store keys of the same."""
        return [entry[_TIME_BYTES:] for entry in self._taken_until(time_ms, limit)]

    def _taken_until(self, start_ms: int, limit: int) -> list[bytes]:
        found = [key for key, _ in self._order.range(self._floor, _TIME.pack(start_ms + 1), limit)]
        if found:
            self._order.delete_many(found)
            self._floor = found[-1]
        if len(found) < limit:
            self._floor = max(self._floor, _TIME.pack(start_ms + 1))  # nothing is left before it
        return found

    def last_start_ms(self) -> int | None:
        """Where the latest window starts; None without any. Takes 64 seeks: a store cannot be read backwards."""
        low, high = -1, 1 << 63
        while high - low > 1:  # there is a window at or after low, and none at or after high
            middle = (low + high) // 2
            low, high = (middle, high) if self._order.range(_TIME.pack(middle), None, 1) else (low, middle)
        return None if low < 0 else low


class TimerOrder:
    """The timers of one task by the time at which they are due, of all keys and of each key.

    It may hold earlier times than a timer has, so putting one off changes nothing here; but it never lacks a time at or
    before it. So whoever finds an entry compares it with the timer.
    """

    def __init__(self, order: StateStore) -> None:
        self._order = order
        self._floors: dict[bytes, bytes] = {}
        """By prefix of a key: no entry of it comes before. A search from here passes over none that are gone."""

    def add(self, time: TimerTime, due_ms: int, store_key: bytes) -> None:
        """A timer is due then, or later."""
        entries = _timer_entries(time, due_ms, store_key)
        for entry in entries:
            self._order.put(entry, b"")
        if self._floors and time == "event":
            prefix, of_key = store_key[: prefix_bytes(store_key)], entries[-1]
            if of_key < self._floors.get(prefix, b""):
                self._floors[prefix] = of_key

    def remove(self, time: TimerTime, due_ms: int, store_key: bytes) -> None:
        """None of that name is due then any more; it is not an error if none was."""
        for entry in _timer_entries(time, due_ms, store_key):
            self._order.delete(entry)

    def soonest(self, time: TimerTime, first: Due, limit: int) -> list[Due]:
        """The soonest of all keys that do not come before ``first``, ``limit`` at most."""
        kind = _KIND[time]
        after = bytes([kind[0] + 1])
        found = self._order.range(kind + _TIME.pack(first[0]) + first[1], after, limit)
        return [(_time_of(entry[1:]), entry[1 + _TIME_BYTES :]) for entry, _ in found]

    def soonest_of(self, key: bytes, until_ms: int) -> Due | None:
        """The soonest in event time of one routing key that is due by then."""
        prefix = prefixed_key(key)
        first = _OF_KEY + prefix
        found = self._order.range(self._floors.get(prefix, first), first + _TIME.pack(until_ms + 1), 1)
        if not found:
            return None
        if len(self._floors) >= _FLOORS_MAX:
            self._floors.clear()
        entry = self._floors[prefix] = found[0][0]
        name = entry[len(first) + _TIME_BYTES :]
        return _time_of(entry[len(first) :]), prefix + name


def _timer_entries(time: TimerTime, due_ms: int, store_key: bytes) -> tuple[bytes, ...]:
    due = _TIME.pack(due_ms)
    if time == "processing":
        return (_KIND[time] + due + store_key,)
    name_at = prefix_bytes(store_key)
    return _KIND[time] + due + store_key, _OF_KEY + store_key[:name_at] + due + store_key[name_at:]


def _time_of(entry: bytes) -> int:
    return int(_TIME.unpack_from(entry)[0])
