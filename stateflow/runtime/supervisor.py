"""Several workers on one machine: child processes, watched, restarted after a crash, stopped together.

Children hold the reading end of a pipe whose writing end only the supervisor has: when it dies, however it dies,
they see the end of the pipe and stop cleanly, so no worker outlives it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stateflow.clock import Clock
from stateflow.errors import MembershipLost, ProducerFenced, StateflowError
from stateflow.runtime.draining import Quiet, QuietReader

_LOG = logging.getLogger(__name__)

PARENT_PIPE_OPTION = "--stop-with-parent"
QUIET_PIPE_OPTION = "--tell-quiet"
_RESTARTS_MAX = 5
_RESTART_WINDOW_SECONDS = 60.0
_CHECK_SECONDS = 0.1
# What a worker ends with that hung so long that others took its tasks: it holds nothing any more and may start anew.
_TAKEN_OVER = (ProducerFenced.exit_code, MembershipLost.exit_code)
_STOP_TIMEOUT_SECONDS = 60.0


class WorkerFailed(StateflowError):
    """A worker ended with an error, or crashed too often to be worth another start."""

    def __init__(self, name: str, code: int) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        super().__init__(
            f"worker {name} {how}.",
            action="see the worker's own lines above; state and progress are kept, so start again when it is mended.",
            worker=name,
            code=code,
        )
        self.exit_code = code if code > 0 else 1


@dataclass(slots=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    quiet: QuietReader | None
    crashes_seconds: deque[float] = field(default_factory=deque)


class Supervisor:
    """Keeps ``count`` worker processes running until ``stop``."""

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        count: int,
        clock: Clock,
        *,
        hears_quiet: bool = False,
    ) -> None:
        """``command(name)`` is the command line of the worker of that name (``w0``, ``w1``, …).

        With ``hears_quiet`` workers tell when they have nothing left to do, and somebody has to call ``quiet``.
        """
        self._command = command
        self._clock = clock
        self._hears_quiet = hears_quiet
        self._lock = threading.Lock()
        """Held to replace a worker, and to hear all of them."""
        self._stopping = threading.Event()
        self._children = [self._spawn(f"w{index}") for index in range(count)]

    @property
    def pids(self) -> dict[str, int]:
        """Worker name → process id."""
        return {child.name: child.process.pid for child in self._children}

    def quiet(self) -> list[Quiet]:
        """What each worker said last; from any one thread."""
        with self._lock:
            return [child.quiet.last() for child in self._children if child.quiet is not None]

    def stop(self) -> None:
        """Ask ``run`` to stop all workers; may be called from a signal handler or another thread."""
        self._stopping.set()

    def run(self) -> None:
        """Watch until ``stop``; raises ``WorkerFailed`` after stopping the others when one cannot go on."""
        try:
            while not self._stopping.wait(_CHECK_SECONDS):
                for child in self._children:
                    self._check(child)
        finally:
            self._stop_all()

    def _spawn(self, name: str, said_total: int = 0) -> _Child:
        command = [*self._command(name), PARENT_PIPE_OPTION]
        quiet = QuietReader(name, said_total) if self._hears_quiet else None
        if quiet is not None:
            command += [QUIET_PIPE_OPTION, str(quiet.write)]
        # A session of its own: Ctrl-C reaches the supervisor alone, which then stops the workers in order.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if quiet is None else (quiet.write,),
        )
        if quiet is not None:
            quiet.close_writing()
        _LOG.info("Worker %s is process %d.", name, process.pid)
        return _Child(name, process, quiet)

    def _check(self, child: _Child) -> None:
        code = child.process.poll()
        if code is None:
            return
        if code >= 0 and code not in _TAKEN_OVER:  # an error that another start would meet again
            raise WorkerFailed(child.name, code)
        now_seconds = self._clock.monotonic_seconds()
        child.crashes_seconds.append(now_seconds)
        while child.crashes_seconds[0] < now_seconds - _RESTART_WINDOW_SECONDS:
            child.crashes_seconds.popleft()
        if len(child.crashes_seconds) > _RESTARTS_MAX:
            raise WorkerFailed(child.name, code)
        how = f"was killed by signal {-code}" if code < 0 else f"was taken over while it hung (code {code})"
        _LOG.warning("Worker %s %s; starting it again.", child.name, how)
        _close_pipe(child.process)
        with self._lock:
            said_total = 0
            if child.quiet is not None:
                said_total = child.quiet.last().said_total + 1
                child.quiet.close()
            successor = self._spawn(child.name, said_total)
            child.process, child.quiet = successor.process, successor.quiet

    def _stop_all(self) -> None:
        for child in self._children:
            _close_pipe(child.process)
        for child in self._children:
            try:
                child.process.wait(_STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                _LOG.warning(
                    "Worker %s does not stop; killing it. Its open transaction will be aborted.", child.name
                )
                child.process.kill()
                child.process.wait()


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None, "workers are started with a pipe"
    process.stdin.close()


def stop_with_parent(stop: Callable[[], None]) -> None:
    """In a worker: call ``stop`` when the supervisor closes its end of the pipe, or dies."""

    def watch() -> None:
        # Not through sys.stdin: at exit the interpreter wants its lock, and aborts when this thread still reads.
        while os.read(0, 1):
            pass
        stop()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
