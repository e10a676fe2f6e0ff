"""Where the temporary files of a run go: into memory, where the machine has room for them.

Tests make thousands of databases and logs, each synced to its disk many times. That they are written and read rightly,
and found again by whoever comes after a kill, shows in memory as well: a process that dies takes nothing back that it
has written. What only a loss of power would show, no test can show on a disk either. On a disk a test of RocksDB takes
up to twice the CPU time and three times as long.

TMPDIR chooses another place: `TMPDIR=/tmp python3 dev.py test` goes to the disk.

What a run leaves there, because tests have failed or it was killed, the next one removes.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from stateflow.connectors.broker.filelock import try_lock

MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30
"""What a run may have there at a time, and then some: files of tests that have passed go at once."""
AVAILABLE_BYTES = 10 << 30
"""Memory that must be free for it: a broker, a Spark session and the processes of the tests take half as much."""
_PREFIX = "sf-tests-"  # short: names of sockets in such a folder are
_LOCK = "run.lock"
"""Held as long as the run lives; the kernel lets go of it."""
_AVAILABLE = re.compile(r"^MemAvailable: +(\d+) kB$", re.MULTILINE)


def make_folder() -> Path | None:
    """A fresh folder in memory, from here on the one for temporary files; None where these stay where they are."""
    if os.environ.get("TMPDIR") or not has_room(MEMORY, Path("/proc/meminfo")):
        return None
    remove_left()
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=MEMORY))
    try_lock(draft / _LOCK)
    folder = draft.rename(MEMORY / draft.name.replace(".draft-", _PREFIX))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def remove_left() -> None:
    """Give back the memory of runs that have ended."""
    for lock in MEMORY.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(FileNotFoundError):  # another run does the same
            if lock.stat().st_uid == os.getuid() and (held := try_lock(lock)) is not None:
                shutil.rmtree(lock.parent, ignore_errors=True)
                os.close(held)


def remove_folder(folder: Path) -> None:
    """Give the memory back."""
    if os.environ.get("TMPDIR") == str(folder):
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
    shutil.rmtree(folder, ignore_errors=True)


def has_room(memory: Path, meminfo: Path) -> bool:
    """Whether programs may be run there, and a run's files fit in, beside what else needs memory."""
    try:
        found = os.statvfs(memory)
        available = _AVAILABLE.search(meminfo.read_text())
    except OSError:
        return False
    fits = found.f_bavail * found.f_frsize >= ROOM_BYTES and not found.f_flag & os.ST_NOEXEC
    return fits and available is not None and int(available[1]) << 10 >= AVAILABLE_BYTES
