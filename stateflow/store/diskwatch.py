"""Whether a database can still be written: room on the disk, and errors of its background work.

When a compaction finds the disk full RocksDB waits for room, and lets writers wait with it: nobody is told.
So we refuse to write while little room is left, write without waiting, and look at its count of background
errors.
"""

from __future__ import annotations

import os
import time

from rocksdict import Rdict

from stateflow.store.directory import TaskDirectory
from stateflow.store.faults import background_error, disk_full, noted, removed

_STALL_SECONDS_MAX = 120.0
_STALL_PAUSE_SECONDS = 0.005
_BACKGROUND_ERRORS = "rocksdb.background-errors"


class DiskWatch:
    """Raises when a disk is full, or about to be, when files are too many, and for damage that compactions meet."""

    def __init__(self, directory: TaskDirectory, database: Rdict, reserve_bytes: int = 0) -> None:
        self.directory = directory
        self._database: Rdict | None = database
        self._reserve_bytes = reserve_bytes

    def check(self) -> None:
        """Raise when work in the background has failed; a database that is opened anew starts at none."""
        assert self._database is not None, "the database is closed"
        errors = self._database.property_int_value(_BACKGROUND_ERRORS) or 0
        if errors:
            raise noted(background_error(self.directory, errors), self.directory)

    def check_room(self) -> None:
        """Raise when less than the reserve is free."""
        if self._reserve_bytes and self.free_bytes() < self._reserve_bytes:
            raise disk_full(
                self.directory,
                f"{self.free_bytes():,} bytes are free, {self._reserve_bytes:,} are kept in reserve",
            )

    def free_bytes(self) -> int:
        """Bytes that this user may still write to the file system. Raises ``StateCorrupt`` for a removed directory."""
        try:
            found = os.statvfs(self.directory.path)
        except FileNotFoundError as error:
            raise removed(self.directory) from error
        return found.f_bavail * found.f_frsize

    def let_go(self) -> None:
        """Forget the database, so that it can close."""
        self._database = None


class Stall:
    """One write that has to wait until flushes and compactions have caught up."""

    def __init__(self, watch: DiskWatch) -> None:
        self._watch = watch
        self._pauses_total = 0

    def wait(self) -> None:
        """Pause once; raises ``DiskFull`` when there is nothing to wait for."""
        self._watch.check()
        if self._pauses_total * _STALL_PAUSE_SECONDS > _STALL_SECONDS_MAX:
            raise disk_full(
                self._watch.directory, f"RocksDB has caught up with nothing for {_STALL_SECONDS_MAX} s"
            )
        self._pauses_total += 1
        time.sleep(_STALL_PAUSE_SECONDS)
