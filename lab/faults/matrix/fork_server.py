"""Worker processes that start warm: forked from one process that has imported everything and done nothing.

Each child is the `stateflow` command with its own arguments, environment, session and log, as if typed in a shell; it
only skips the half second of imports. The fork_server has one thread and no client of anything, so a fork is safe. When
whoever owns it goes away, however, all children are killed, stopped ones too.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PRELOADED = (
    "stateflow.cli.main",
    "stateflow.cli.run",
    "stateflow.cli.checkpoint",
    "stateflow.cli.restore",
    "stateflow.log.kafka",
    "stateflow.connectors.broker.running",
)
_PR_SET_PDEATHSIG = 1
STACKS_SIGNAL = signal.SIGUSR1
"""Makes a child write what each of its threads is doing to its log."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """How a child stands: running, stopped, or ended with a code (negative: the signal that killed it)."""

    stopped: bool = False
    code: int | None = None


class ForkServer:
    """Starts children, signals them and tells how they stand. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stateflow.lab.faults.matrix.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for its owner, who ends it in order
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill all children that are left."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> int:
        """Run one `stateflow` command in ``folder``; what it writes goes to ``log``. Returns its process id."""
        asked = {"arguments": list(arguments), "environment": dict(environment)}
        return int(self._ask({"do": "start", **asked, "folder": str(folder), "log": str(log)})["pid"])

    def state(self, pid: int) -> ProcessState:
        """How a child stands now."""
        return ProcessState(**self._ask({"do": "state", "pid": pid}))

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Signal a child; nothing for one that has ended."""
        self._ask({"do": "signal", "pid": pid, "number": int(number)})

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            assert self._process is not None, "the fork_server is not open"
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
            return answer


# --- in the process that children are forked from ---------------------------------------------------------


class _Children:
    def __init__(self) -> None:
        self._states: dict[int, ProcessState] = {}

    def born(self, pid: int) -> None:
        self._states[pid] = ProcessState()

    def state(self, pid: int) -> ProcessState:
        """Reap what has ended; a child that is not reaped keeps its number, so no other process is ever signalled."""
        known = self._states[pid]
        if known.code is not None:
            return known
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if found:
            if os.WIFSTOPPED(status):
                known = ProcessState(stopped=True)
            elif os.WIFCONTINUED(status):
                known = ProcessState()
            else:
                known = ProcessState(code=os.waitstatus_to_exitcode(status))
            self._states[pid] = known
        return known

    def signal(self, pid: int, number: int) -> None:
        if self.state(pid).code is None:
            os.kill(pid, number)

    def kill_all(self) -> None:
        for pid in self._states:
            self.signal(pid, signal.SIGKILL)
        for pid, state in self._states.items():
            if state.code is None:
                os.waitpid(pid, 0)


def _serve() -> dict[str, Any] | None:
    """Answer until the owner goes away; in a child, return at once what it is to run."""
    children = _Children()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            answer: dict[str, Any] = {}
            if request["do"] == "start":
                pid = os.fork()
                if not pid:
                    return dict(request)
                children.born(pid)
                answer["pid"] = pid
            elif request["do"] == "state":
                state = children.state(request["pid"])
                answer = {"stopped": state.stopped, "code": state.code}
            else:
                children.signal(request["pid"], request["number"])
            print(json.dumps(answer), flush=True)
    except BaseException:
        children.kill_all()
        raise
    children.kill_all()
    return None


def _become(request: Mapping[str, Any]) -> None:
    """Turn this fork into the command that was asked for."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should the fork_server be killed
    os.setsid()
    os.chdir(request["folder"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the old one has the owner's next requests in its buffer
    os.environ.update(request["environment"])
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL)
    sys.argv = ["stateflow", *request["arguments"]]


def main() -> None:
    """Import, serve, and in a child run the command."""
    for name in _PRELOADED:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "no fork is safe beside other threads"
    gc.freeze()
    request = _serve()
    if request is not None:
        _become(request)
        command = importlib.import_module("stateflow.cli.main")
        command.main()


if __name__ == "__main__":
    main()
