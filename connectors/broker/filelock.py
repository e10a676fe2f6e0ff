"""A lock between processes that the kernel drops when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stateflow.errors import SetupError

POLL_SECONDS = 0.1


def try_lock(path: Path) -> int | None:
    """Lock `path` exclusively; returns a file descriptor, or None when another process holds the lock.

    The lock lasts until the descriptor is closed here and in every child process that was given it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


@contextmanager
def file_lock(path: Path, *, timeout_seconds: float) -> Iterator[None]:
    """Hold `path` exclusively. The file is left behind: removing it would let two holders in.

    Raises SetupError when another process still holds it after `timeout_seconds`.
    """
    deadline = time.monotonic() + timeout_seconds
    while (handle := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise SetupError(
                f"Another process holds {path}; waited {timeout_seconds:.0f} s for it.",
                action="Wait for it or end it, then try again.",
                path=str(path),
            )
        time.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        os.close(handle)
