"""A lock between processes that the kernel drops when its holder dies."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stateflow.errors import SetupError

POLL_SECONDS = 0.1


@contextmanager
def file_lock(path: Path, *, timeout_seconds: float) -> Iterator[None]:
    """Hold `path` exclusively. The file is left behind: removing it would let two holders in.

    Raises SetupError when another process still holds it after `timeout_seconds`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_seconds
    with path.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SetupError(
                        f"Another process has held {path} for {timeout_seconds:.0f} s.",
                        action="Wait for it or end it, then try again.",
                        path=str(path),
                    ) from None
                time.sleep(POLL_SECONDS)
        yield
