"""RocksDB's errors, which are all one class with a text, as errors that say what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path

from stateflow.errors import DiskFull, StateCorrupt, StateflowError, StateForeign, StateLocked
from stateflow.store.directory import TaskDirectory

_CONFIG_FILE = "rocksdict-config.json"
_FULL = ("No space left on device", "Disk quota exceeded", "File too large", "file size limit")
_DAMAGED = ("Corruption", "IO error", "Invalid argument")
_REPLACEABLE = ("Corruption", "No such file or directory", "Invalid argument")
"""Damage that a new database in the same place would not have, unlike a disk that fails."""
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
    """The typed error for one of RocksDB's. Anything else is a bug and is raised as it is."""
    if not is_rocksdb_error(error):
        raise error
    text, path = str(error), str(directory.path)
    if any(mark in text for mark in _FULL):
        return disk_full(directory, text)
    if any(mark in text for mark in _LOCKED):
        return _locked(directory, lock_holder(directory.database / "LOCK"))
    if not text.startswith(_DAMAGED):
        raise error
    return StateCorrupt(
        f"the store in {path} is damaged ({text}).",
        action="start again: it is then set aside and rebuilt from the changelog, which has everything that"
        " was committed. If this happens again, check the disk and the rights to the directory.",
        path=path,
        replaceable=any(mark in text for mark in _REPLACEABLE),
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
