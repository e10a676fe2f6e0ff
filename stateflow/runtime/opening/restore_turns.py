"""Who of those that open tasks may restore now: that takes memory, while the rest of an opening mostly waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stateflow.errors import Interrupted

_LOOK_SECONDS = 0.1
"""Between two looks of one who waits for its turn at whether the task is still wanted."""


class RestoreTurns:
    """So many threads at a time; 0 is for one thread that opens all tasks."""

    def __init__(self, at_once: int) -> None:
        self._free = threading.Semaphore(at_once) if at_once else None

    @contextmanager
    def taken(self, task: str, cancelled: Callable[[], bool]) -> Iterator[None]:
        """Wait for a turn, and have it. Raises ``Interrupted`` soon after ``cancelled`` turns true."""
        if self._free is None:
            yield
            return
        while not self._free.acquire(timeout=_LOOK_SECONDS):
            check_cancelled(task, cancelled)
        try:
            yield
        finally:
            self._free.release()


def check_cancelled(task: str, cancelled: Callable[[], bool]) -> None:
    """Raise ``Interrupted`` for a task that is not wanted any more."""
    if cancelled():
        raise Interrupted(
            f"restoring task {task} was stopped.",
            action="nothing; what was restored is kept.",
        )
