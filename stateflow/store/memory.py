"""The local stores of a task in this process's memory: the reference that other stores are compared with."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.clock import Clock, SystemClock
from stateflow.store.base import Change, StorePosition, assert_sorted
from stateflow.store.derived import index_family, is_derived, outdated
from stateflow.store.directory import task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores


class MemoryReader:
    """Committed content of one store; a scan goes over the content of when it was asked for."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self._sorted_keys: list[bytes] | None = None
        self._is_lent = False
        """True when a scan may go over these very entries: then a change makes others."""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return self.entries.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys."""
        return [self.entries.get(key) for key in keys]

    def scan(self, first: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first`` ≤ key < ``after``, in byte order."""
        if self._sorted_keys is None:
            self._sorted_keys = sorted(self.entries)
        keys, entries = self._sorted_keys, self.entries
        self._is_lent = True
        chosen = range(bisect_left(keys, first), len(keys) if after is None else bisect_left(keys, after))
        return ((keys[place], entries[keys[place]]) for place in chosen)

    def change(self, changes: Iterable[Change]) -> None:
        """Set and delete keys."""
        self._sorted_keys = None
        if self._is_lent:
            self.entries, self._is_lent = dict(self.entries), False
        for key, value in changes:
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value

    def clear(self) -> None:
        """Drop everything."""
        self._sorted_keys = None
        self.entries, self._is_lent = {}, False


class MemoryTaskStores:
    """Implements ``TaskStores`` without a disk. What ``crash`` takes away is what was never flushed."""

    def __init__(self, stores: Iterable[str], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._readers = {store: MemoryReader() for store in stores}
        self._positions: dict[str, StorePosition] = {}
        self._lock = threading.Lock()
        self._flushed = self._copy()

    @property
    def names(self) -> list[str]:
        """Names of the stores."""
        return list(self._readers)

    def reader(self, store: str) -> MemoryReader:
        """The committed content of one store; KeyError for one that was not named at the start."""
        return self._readers[store]

    def position(self, store: str) -> StorePosition | None:
        """How far the store reaches."""
        return self._positions.get(store)

    def has_content(self, store: str) -> bool:
        """Whether there is any entry, of whatever position; False for a store that is not there."""
        return store in self._readers and next(self._readers[store].scan(), None) is not None

    def apply(self, epoch: Mapping[str, Sequence[Change]], positions: Mapping[str, StorePosition]) -> None:
        """Write the changes of several stores and their positions, all or nothing."""
        for store, changes in epoch.items():
            assert_sorted(changes)
            assert store in self._readers, f"no store {store!r} in this task"
        with self._lock:
            for family in outdated(epoch, positions, self._readers):
                self._positions.pop(family, None)
            for store, changes in epoch.items():
                self._readers[store].change(changes)
            now_ms = self._clock.now_ms()
            for store, position in positions.items():
                self._positions[store] = replace(position, applied_ms=position.applied_ms or now_ms)

    def load(self, store: str, changes: Sequence[Change], position: StorePosition) -> None:
        """``apply`` of one store."""
        self.apply({store: changes}, {store: position})

    def flush(self) -> None:
        """Keep everything applied so far through a ``crash``."""
        with self._lock:
            self._flushed = self._copy()

    def checkpoint(self, directory: Path) -> dict[str, StorePosition]:
        """Flush, and make ``directory`` a database with this moment's content."""
        self.flush()
        with self._lock:
            content = {name: sorted(reader.entries.items()) for name, reader in self._readers.items()}
            positions = dict(self._positions)
        with TemporaryDirectory(prefix="stateflow-") as scratch:
            place = task_directory(scratch, "memory", "memory", 0, "memory")
            stores = RocksTaskStores.open(place, content, RocksResources(), self._clock)
            try:
                stores.apply(content, positions)
                stores.checkpoint(directory)
            finally:
                stores.close()
        return {name: position for name, position in positions.items() if not is_derived(name)}

    def clear(self, store: str) -> None:
        """Drop the content and position of one store."""
        with self._lock:
            self._readers[store].clear()
            self._positions.pop(store, None)
            self._positions.pop(index_family(store), None)
            self._flushed = self._copy()

    def derive(self, family: str) -> None:
        """Make sure that a derived store is there."""
        self._readers.setdefault(family, MemoryReader())

    def close(self) -> None:
        """Flush; the content stays, so that a test can open it again."""
        self.flush()

    def crash(self) -> None:
        """Go back to the last flush, as a process that was killed does."""
        with self._lock:
            entries, positions = self._flushed
            for store, reader in self._readers.items():
                reader.clear()
                reader.change(entries.get(store, {}).items())
            self._positions = dict(positions)

    def flushed_copy(self) -> MemoryTaskStores:
        """Stores of their own that hold what was flushed here last: a copy of the disk."""
        copy = MemoryTaskStores(self._readers, self._clock)
        with self._lock:
            entries, positions = self._flushed
            copy._flushed = {store: dict(found) for store, found in entries.items()}, dict(positions)
        copy.crash()
        return copy

    def _copy(self) -> tuple[dict[str, dict[bytes, bytes]], dict[str, StorePosition]]:
        return {store: dict(reader.entries) for store, reader in self._readers.items()}, dict(self._positions)
