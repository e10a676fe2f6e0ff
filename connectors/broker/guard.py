"""Runs one program, and ends it when the process that asked for it dies. A script; standard library only.

`python guard.py PARENT_PID LEFTOVER PROGRAM ARGUMENT…`. The program gets SIGTERM when the guard does, when
the guard's stdin ends, or when the guard's parent is no longer PARENT_PID, whichever comes first, and SIGKILL
`GRACE_SECONDS` later. On Linux the kernel also kills the program should the guard itself be killed. Exits as
the program did. When the parent is gone, the folder LEFTOVER (unless empty) is removed, and with the last of
its siblings the folder that holds them.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

GRACE_SECONDS = 20.0
POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the program to its end."""
    parent, leftover, command = int(arguments[0]), arguments[1], arguments[2:]
    asked_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked_to_stop.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops us in order
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, guard)
    print(child, flush=True)
    deadline: float | None = None
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if leftover and os.getppid() != parent:
                _remove(Path(leftover))
            return os.waitstatus_to_exitcode(status)
        if deadline is None and (asked_to_stop or os.getppid() != parent):
            deadline = time.monotonic() + GRACE_SECONDS
            os.kill(child, signal.SIGTERM)
        elif deadline is not None and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        if _stdin_ended():
            asked_to_stop.append(0)


def _remove(leftover: Path) -> None:
    """Remove one node's folder, and the whole cluster's once no node's is left."""
    shutil.rmtree(leftover, ignore_errors=True)
    if not any(leftover.parent.glob("node-*")):
        shutil.rmtree(leftover.parent, ignore_errors=True)


def _become(command: list[str], guard: int) -> None:
    """In the forked child: tie its life to the guard's, then turn into the program."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # the guard died before the kernel was told
        os._exit(1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # stdout carried the child's pid to the parent; the program writes where the errors go
    try:
        os.execv(command[0], command)  # noqa: S606 - replacing ourselves is the point
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        os._exit(127)


def _stdin_ended() -> bool:
    """Wait up to a poll's time; True when stdin has come to its end."""
    try:
        readable, _, _ = select.select([0], [], [], POLL_SECONDS)
    except InterruptedError:
        return False
    if readable and os.read(0, 1024) == b"":
        time.sleep(POLL_SECONDS)  # an ended stdin stays readable: do not spin
        return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
