"""Waiting for what happens elsewhere: in another process, another thread, on a broker."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], bool],
    what: str | Callable[[], str],
    check: Callable[[], object] = lambda: None,
    *,
    seconds: float = 60.0,
    every_seconds: float = 0.05,
) -> None:
    """Return once the condition holds; fails with ``what`` was waited for, or with what ``check`` raises meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        assert time.monotonic() < deadline, f"waited in vain for {what if isinstance(what, str) else what()}"
        time.sleep(every_seconds)
