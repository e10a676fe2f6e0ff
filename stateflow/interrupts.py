"""Ctrl-C and SIGTERM as the end of a command, and what is told of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stateflow.errors import Interrupted


@contextmanager
def as_ctrl_c(number: int = signal.SIGTERM) -> Iterator[None]:
    """SIGTERM, by which systemd, Docker and Kubernetes stop a program, ends a command in this scope as Ctrl-C does.

    By default it would end the process at once: settings that a command has changed for a while would stay, and the
    processes that it has started. Commands that run until they are told to stop handle both themselves.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return
    signal.signal(number, _interrupted)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_DFL)


def stopped_by_user() -> Interrupted:
    """What is told when a command was interrupted, whatever it was doing."""
    return Interrupted("Stopped by the user.", action="Start it again to go on.")


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
