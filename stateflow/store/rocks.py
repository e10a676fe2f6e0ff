"""The local stores of a task in one RocksDB: a column family per store, and one for their positions.

The write-ahead log is off: the changelog is one. So a crash loses what was not flushed, which is safe as long
as a position on disk never stands for content that is not. Three things hold that:

* an epoch and its positions are one write batch;
* a flush that RocksDB decides on takes all families together (atomic flush);
* a flush that we ask for takes one family at a time, whatever the atomic setting, so ours goes through the
  stores first and the positions last, with no write in between.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from rocksdict import AccessType, Checkpoint, Options, Rdict, WriteBatch, WriteOptions

from stateflow.clock import Clock, SystemClock
from stateflow.errors import StateCorrupt, StateflowError
from stateflow.failpoints import reach
from stateflow.record import has_none
from stateflow.store.base import Change, ChangeColumns, StorePosition, StoreSize, assert_sorted
from stateflow.store.derived import index_family, is_derived, outdated
from stateflow.store.directory import DAMAGED_FILE, TaskDirectory
from stateflow.store.diskwatch import DiskWatch, Stall
from stateflow.store.faults import (
    check_raw_mode,
    is_rocksdb_error,
    is_stall,
    noted,
    refuse_locked,
    set_aside_damaged,
    state_error,
)
from stateflow.store.position import decode_position, encode_position
from stateflow.store.resources import RocksResources as RocksResources
from stateflow.store.resources import family_options
from stateflow.store.scanning import Cursor, Cursors
from stateflow.store.sst import ingest, write_sst

POSITIONS_FAMILY = "sf:positions"
"""No store can be called so: a colon is not allowed in the topic name that a store's name becomes part of."""
_DEFAULT_FAMILY = "default"  # RocksDB insists on it; it stays empty unless a store has that name


class RocksReader:
    """The committed content of one store."""

    def __init__(self, stores: RocksTaskStores, store: str) -> None:
        self._stores = stores
        self._store = store

    def get(self, key: bytes) -> bytes | None:
        """The value, or None. Raises ``StateCorrupt``."""
        try:
            value: bytes | None = self._stores.family(self._store).get(key)
        except Exception as error:
            raise self._stores.typed(error) from error
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys; sorted keys are fastest."""
        try:
            values = cast(list[bytes | None], self._stores.family(self._store).get(list(keys)))
        except Exception as error:
            raise self._stores.typed(error) from error
        return values

    def scan(self, first: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first`` ≤ key < ``after``, in byte order, of the moment this was called."""
        cursor = Cursor(self._stores.family(self._store), first, after)
        self._stores.cursors.add(cursor)
        return self._entries(cursor)

    def _entries(self, cursor: Cursor) -> Iterator[tuple[bytes, bytes]]:
        try:
            while chunk := cursor.next_chunk():
                yield from chunk
        except Exception as error:
            if not is_rocksdb_error(error):  # thrown in by whoever reads the scan
                raise
            raise self._stores.typed(error) from error
        finally:
            cursor.release()


class RocksTaskStores:
    """Implements ``TaskStores`` in ``directory``. Writes come from one thread at a time; reads from any."""

    def __init__(
        self, directory: TaskDirectory, database: Rdict, families: Iterable[str], clock: Clock
    ) -> None:
        self.directory = directory
        self.cursors = Cursors()
        self._database: Rdict | None = database
        self._families: dict[str, Rdict] = {name: database.get_column_family(name) for name in families}
        self._clock = clock
        self._lock = threading.Lock()
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[method-assign,assignment]  # its stub says method
        self._unlogged.no_slowdown = True
        self._resources: RocksResources | None = None
        self._watch = DiskWatch(directory, database)

    @classmethod
    def open(
        cls,
        directory: TaskDirectory,
        stores: Iterable[str],
        resources: RocksResources,
        clock: Clock | None = None,
        *,
        keep_ranges: bool = False,
    ) -> RocksTaskStores:
        """Open or create a task's database, and lock it.

        What an unfinished restore keeps beside the database is dropped, unless that restore asks: ``keep_ranges``.

        Raises ``StateForeign`` for a directory of someone else, ``StateLocked`` when a process holds it,
        ``DiskFull``. A database that cannot be opened, or was found damaged while last in use, is set aside
        with a warning and a new one begun: the changelog has everything that was committed.
        """
        directory.claim()
        if directory.is_damaged:
            refuse_locked(directory)
            set_aside_damaged(directory, (directory.path / DAMAGED_FILE).read_text().strip())
        clock = clock or SystemClock()
        try:
            opened = cls._open(directory, stores, resources, clock)
        except StateCorrupt as error:
            if not error.fields["replaceable"]:
                raise
            set_aside_damaged(directory, error.message)
            opened = cls._open(directory, stores, resources, clock)
        if not keep_ranges:
            directory.drop_ranges()
        return opened

    @classmethod
    def _open(
        cls, directory: TaskDirectory, stores: Iterable[str], resources: RocksResources, clock: Clock
    ) -> RocksTaskStores:
        check_raw_mode(directory)
        path, wanted = str(directory.database), set(stores)
        try:
            known = set(Rdict.list_cf(path)) if (directory.database / "CURRENT").exists() else set()
            families = {_DEFAULT_FAMILY, POSITIONS_FAMILY} | wanted | known
            database = Rdict(
                path,
                family_options(resources),
                column_families={name: family_options(resources) for name in families},
            )
        except Exception as error:
            raise state_error(error, directory) from error
        opened = cls(directory, database, families, clock)
        opened._resources = resources
        opened._watch = DiskWatch(directory, database, resources.disk_reserve_bytes)
        return opened

    @classmethod
    def open_secondary(
        cls, directory: TaskDirectory, scratch: str, resources: RocksResources
    ) -> RocksTaskStores:
        """Open for reading only, beside the process that may be writing: the content of its last flush.

        ``scratch`` is a folder for RocksDB's own notes. The directory must exist. Raises ``StateCorrupt``.
        """
        check_raw_mode(directory)
        path = str(directory.database)
        try:
            families = set(Rdict.list_cf(path))
            database = Rdict(
                path,
                family_options(resources, secondary=True),
                column_families={name: family_options(resources, secondary=True) for name in families},
                access_type=AccessType.secondary(scratch),
            )
        except Exception as error:
            raise state_error(error, directory) from error
        return cls(directory, database, families, SystemClock())

    # --- TaskStores -----------------------------------------------------------------------------------

    @property
    def stores(self) -> list[str]:
        """Names of the stores that have a family, sorted."""
        return sorted(
            name
            for name in self._families
            if name not in (POSITIONS_FAMILY, _DEFAULT_FAMILY) and not is_derived(name)
        )

    @property
    def is_open(self) -> bool:
        """False once it was closed."""
        return self._database is not None

    def size(self, store: str) -> StoreSize:
        """How much a store holds, as RocksDB estimates it."""
        family = self.family(store)
        return StoreSize(
            keys_estimated=family.property_int_value("rocksdb.estimate-num-keys") or 0,
            files_bytes=family.property_int_value("rocksdb.live-sst-files-size") or 0,
            memory_bytes=family.property_int_value("rocksdb.cur-size-all-mem-tables") or 0,
        )

    def reader(self, store: str) -> RocksReader:
        """The committed content of one store."""
        assert store in self._families, f"no store {store!r} in {self.directory.path}"
        return RocksReader(self, store)

    def position(self, store: str) -> StorePosition | None:
        """How far the store reaches, or None for a store that was never written."""
        encoded = RocksReader(self, POSITIONS_FAMILY).get(store.encode())
        return None if encoded is None else decode_position(encoded)

    def has_content(self, store: str) -> bool:
        """Whether there is any entry, of whatever position; False for a store that is not there."""
        return store in self._families and next(self.reader(store).scan(), None) is not None

    def apply(self, epoch: Mapping[str, Sequence[Change]], positions: Mapping[str, StorePosition]) -> None:
        """Write the changes of several stores and their positions in one batch."""
        for changes in epoch.values():
            assert_sorted(changes)
        moved = dict(self._position_change(*item) for item in positions.items())
        moved |= {family.encode(): None for family in outdated(epoch, positions, self._families)}
        with self._lock:
            self._write({**epoch, POSITIONS_FAMILY: sorted(moved.items())})

    def load(self, store: str, changes: Sequence[Change], position: StorePosition) -> None:
        """Write one store's changes as a sorted file that the database takes in, then the position."""
        assert_sorted(changes)
        if changes:
            self._mark_outdated(store)
            file = self.directory.path / f"load-{uuid.uuid4().hex}.sst"
            try:
                with self._lock:
                    self._call(lambda: write_sst(file, changes, self._options()))
                self.ingest_file(store, file)
            finally:
                file.unlink(missing_ok=True)
        self.apply({}, {store: position})

    def ingest_file(self, store: str, file: Path) -> None:
        """Make a sorted file part of a store, newer than what is in it; its position stays as it is."""
        with self._lock:
            reach("restore.before_ingest")
            self._call(lambda: ingest(self.family(store), file))
            reach("restore.after_ingest")

    def flush(self) -> None:
        """Make everything applied so far durable: the stores first, what they stand for last."""
        with self._lock:
            self._flush()

    def checkpoint(self, directory: Path) -> dict[str, StorePosition]:
        """Flush, and make ``directory`` a copy of this moment, by hard links where the file system has them.

        Returns the positions in it, of the stores that have any.

        It must not exist, nor any files be changed in it later: they may be this database's own. Put under a task
        directory as its database it opens with equal content and positions. Writes wait until it is made; call it
        from any thread. A crash leaves no such directory. Raises ``DiskFull``, ``StateCorrupt``.
        """
        assert not directory.exists(), f"{directory} exists already"
        directory.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._flush()  # so RocksDB's own flush, in whatever order it goes, finds nothing to do
            positions = {store: at for store in self.stores if (at := self.position(store)) is not None}
            try:
                Checkpoint(self._open_database()).create_checkpoint(str(directory))
            except Exception as error:
                raise state_error(error, self.directory) from error
        for log in directory.glob("*.log"):
            assert log.stat().st_size == 0, f"{log} has content, though nothing is written to it"
            log.unlink()
        return positions

    def clear(self, store: str) -> None:
        """Drop the content and position of one store, and give its disk space back."""
        self._mark_outdated(store)
        with self._lock:
            self._write({POSITIONS_FAMILY: [(store.encode(), None)]})
        self.flush()  # the position must be gone from disk before the content is
        reach("restore.within_clear")
        with self._lock:
            self._call(lambda: self._recreate(store))

    def derive(self, family: str) -> None:
        """Make sure that a derived store is there."""
        if family not in self._families:
            with self._lock:
                made = self._open_database().create_column_family(family, self._options())
                self._families[family] = made

    def close(self) -> None:
        """Flush and release the directory; scans that are still going on end with an error."""
        if self._database is None:
            return
        self.cursors.release_all()
        try:
            if self._resources is not None:
                self.flush()
        finally:
            # Closing a family flushes it alone. After a failed flush that could put a position on disk
            # without its content, so the handles are just let go: the database then closes by itself.
            self._families.clear()
            self._watch.let_go()
            self._database = None

    # --- for readers ----------------------------------------------------------------------------------

    def family(self, name: str) -> Rdict:
        """The column family of a store; KeyError when there is none or everything is closed."""
        return self._families[name]

    def typed(self, error: Exception) -> StateflowError:
        """RocksDB's complaint as our error; damage is noted, so that the next open sets the store aside."""
        return noted(state_error(error, self.directory), self.directory)

    # --- inside ---------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._watch.check()
        for name in sorted(self._families, key=lambda name: name == POSITIONS_FAMILY):
            if name == POSITIONS_FAMILY:
                reach("flush.before_positions")
            self._call(self.family(name).flush)

    def _open_database(self) -> Rdict:
        assert self._database is not None, f"{self.directory.path} is closed"
        return self._database

    def _options(self) -> Options:
        assert self._resources is not None, "opened for reading only"
        return family_options(self._resources)

    def _batch(self, changes: Mapping[str, Sequence[Change]]) -> WriteBatch:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for family, run in changes.items():
            batch.set_default_column_family(self._open_database().get_column_family_handle(family))
            if isinstance(run, ChangeColumns) and not has_none(run.values):
                deque(map(put, run.keys, run.values), maxlen=0)
                continue
            for key, value in run:
                if value is None:
                    delete(key)
                else:
                    put(key, value)
        return batch

    def _mark_outdated(self, store: str) -> None:
        """What is derived from the store is behind from here on, whatever of the change a crash leaves."""
        family = index_family(store)
        if family in self._families:
            with self._lock:
                self._write({POSITIONS_FAMILY: [(family.encode(), None)]})

    def _position_change(self, store: str, position: StorePosition) -> Change:
        applied_ms = position.applied_ms or self._clock.now_ms()
        return store.encode(), encode_position(replace(position, applied_ms=applied_ms))

    def _recreate(self, store: str) -> None:
        database = self._open_database()
        self._families.pop(store).close()
        database.drop_column_family(store)
        self._families[store] = database.create_column_family(store, self._options())

    def _write(self, changes: Mapping[str, Sequence[Change]]) -> None:
        """Write without ever waiting inside RocksDB, where a full disk would make us wait for ever."""
        self._watch.check_room()
        stall = Stall(self._watch)
        while True:
            batch = self._batch(changes)  # made anew each time: a refused one is used up
            try:
                self._open_database().write(batch, self._unlogged)
            except Exception as error:
                if not is_stall(error):
                    raise self.typed(error) from error
                stall.wait()
            else:
                return

    def _call(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            raise self.typed(error) from error
