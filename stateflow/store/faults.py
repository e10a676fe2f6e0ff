"""RocksDB's errors, which are all one class with a text, as errors that say what to do."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from pathlib import Path

from stateflow.errors import (
    DiskFull,
    StateCorrupt,
    StateflowError,
    StateForeign,
    StateLocked,
)
from stateflow.store.directory import TaskDirectory, too_many_open_files

_LOG = logging.getLogger(__name__)

_LOG_END_BYTES = 1 << 16
_REASON_SECONDS_MAX, _REASON_PAUSE_SECONDS = 2.0, 0.01
_CONFIG_FILE = "rocksdict-config.json"
_FULL = ("No space left on device", "Disk quota exceeded", "File too large", "file size limit")
_NO_DESCRIPTORS = "Too many open files"
_DAMAGED = ("Corruption", "IO error", "Invalid argument")
_REPLACEABLE = ("Corruption", "No such file or directory", "Invalid argument")
"""Damage that a new database in the same place would not have, unlike a disk that fails."""
_BACKGROUND_REASON = re.compile(r"Waiting after background \w+ error: (.*), Accumulated background error")
_LOCKED = ("lock hold by current process", "While lock file", "LOCK: Resource temporarily unavailable")


def is_stall(error: BaseException) -> bool:
    """True for a write that was refused because flushes or compactions are behind."""
    return is_rocksdb_error(error) and "Write stall" in str(error)


def is_rocksdb_error(error: BaseException) -> bool:
    """True for what the binding raises: plain ``Exception`` objects."""
    return type(error) is Exception


def check_raw_mode(directory: TaskDirectory) -> None:
    """Refuse a database that says it was made to be read with pickle: reading it would run what is in it.

    A file that is missing, empty or cut short says nothing. The binding truncates and rewrites it at every open, also
    at one for reading only and at one that finds the database locked, so a kill, or a look at the wrong moment, finds
    it so. The open that follows asks for raw bytes whatever the file says, and replaces it.
    """
    file = directory.database / _CONFIG_FILE
    try:
        says = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return
    if isinstance(says, dict) and says.get("raw_mode", True) is not True:
        raise StateForeign(
            f"{file} does not say that keys and values are raw bytes: stateflow did not make this database.",
            action="do not open it; delete the directory and let it be restored from the changelog.",
            path=str(directory.path),
        )


def state_error(error: Exception, directory: TaskDirectory) -> StateflowError:
    """The typed error for one of RocksDB's. Anything else is a bug and is raised as it is.

    RocksDB's own loses its traceback: the frames in it hold handles. Whoever keeps the error, if only in a reference
    cycle that is not collected yet, would keep the database open and locked after it was closed.
    """
    typed = _typed(str(error), directory) if is_rocksdb_error(error) else None
    if typed is None:
        raise error
    error.__traceback__ = None
    return typed


def _typed(text: str, directory: TaskDirectory) -> StateflowError | None:
    if any(mark in text for mark in _FULL):
        return disk_full(directory, text)
    if _NO_DESCRIPTORS in text:
        return too_many_open_files(directory.path, text)
    if any(mark in text for mark in _LOCKED):
        return _locked(directory, lock_holder(directory.database / "LOCK"))
    if not text.startswith(_DAMAGED):
        return None
    if not directory.database.exists():
        return removed(directory)
    path = str(directory.path)
    return StateCorrupt(
        f"the store in {path} is damaged ({text}).",
        action="start again: it is then set aside and rebuilt from the changelog, which has everything that"
        " was committed. If this happens again, check the disk and the rights to the directory.",
        path=path,
        replaceable=any(mark in text for mark in _REPLACEABLE),
    )


def removed(directory: TaskDirectory) -> StateCorrupt:
    """The error for a database whose files are gone while it is in use: users may delete local state at any time."""
    return StateCorrupt(
        f"the store in {directory.path} was removed while it was in use.",
        action="start again: it is rebuilt from the changelog, which has everything that was committed.",
        path=str(directory.path),
        replaceable=True,
    )


def refuse_locked(directory: TaskDirectory) -> None:
    """Raise ``StateLocked`` when a process, this one included, has the database open."""
    pid = lock_holder(directory.database / "LOCK")
    if pid is not None:
        raise _locked(directory, pid)


def _locked(directory: TaskDirectory, pid: int | None) -> StateLocked:
    return StateLocked(
        f"the state directory {directory.path} is in use by {f'process {pid}' if pid else 'another process'}.",
        action="stop that process, or give this one another --state-dir.",
        path=str(directory.path),
        pid=pid,
    )


def noted(error: StateflowError, directory: TaskDirectory) -> StateflowError:
    """The error, after damage that a new database would not have is remembered: the next open sets this one aside."""
    if isinstance(error, StateCorrupt) and error.fields["replaceable"]:
        directory.mark_damaged(str(error))
    return error


def set_aside_damaged(directory: TaskDirectory, cause: str) -> None:
    """Set a damaged database aside and begin an empty one in its place."""
    aside = directory.set_aside()
    directory.claim()
    _LOG.warning(
        "The store in %s is damaged (%s). It was moved to %s, and is rebuilt from the changelog.",
        directory.path,
        cause,
        aside,
    )


def background_error(directory: TaskDirectory, failures: int) -> StateflowError:
    """The error for flushes and compactions that failed: RocksDB tells their number, and the reason in its log only.

    It counts one before it says why, and the log says nothing where the disk is full: so that is waited for a moment.
    """
    if not directory.database.exists():
        return removed(directory)
    until = time.monotonic() + _REASON_SECONDS_MAX
    while not (reasons := _BACKGROUND_REASON.findall(end := _end_of(directory.database / "LOG"))):
        if _NO_DESCRIPTORS in end or time.monotonic() > until:
            break
        time.sleep(_REASON_PAUSE_SECONDS)
    if reasons and (found := _typed(reasons[-1], directory)):
        return found
    why = f"{failures} flushes or compactions failed; the file LOG in it says why"
    return too_many_open_files(directory.path, why) if _NO_DESCRIPTORS in end else disk_full(directory, why)


def _end_of(log: Path) -> str:
    """The last part of RocksDB's own log; the error, when it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_END_BYTES))
            return file.read().decode(errors="replace")
    except OSError as error:
        return str(error)  # where no file can be opened any more, this says it


def disk_full(directory: TaskDirectory, why: str) -> DiskFull:
    """The error for a state directory that cannot grow."""
    return DiskFull(
        f"no space left for the state in {directory.path} ({why}).",
        action="free space or move the state directory, then start again: what was committed is in the"
        " changelog,"
        " and is replayed from the last position on disk.",
        path=str(directory.path),
    )


def lock_holder(lock_file: Path) -> int | None:
    """The process that holds a file lock, as far as Linux tells; None when unknown."""
    try:
        inode = os.stat(lock_file).st_ino
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:  # no such file any more, or no /proc: the holder stays unknown
        return None
    for line in locks:  # "1: POSIX  ADVISORY  WRITE 4711 08:01:131077 0 EOF"
        fields = line.split()
        if len(fields) >= 6 and fields[5].rsplit(":", 1)[-1] == str(inode) and int(fields[4]) > 0:
            return int(fields[4])
    return None
