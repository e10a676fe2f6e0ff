"""Several workers on one machine: child processes, watched, started again with back-off, stopped together.

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

from stateflow import backoff
from stateflow.clock import Clock
from stateflow.errors import Interrupted, MembershipLost, StateflowError, exit_codes
from stateflow.runtime.progress.draining import Quiet, QuietReader

_LOG = logging.getLogger(__name__)

PARENT_PIPE_OPTION = "--stop-with-parent"
QUIET_PIPE_OPTION = "--tell-quiet"


@dataclass(frozen=True, slots=True)
class _Limit:
    """More restarts than so many within so long are too many."""

    restarts_max: int
    window_seconds: float


_CRASHES = _Limit(5, 120.0)
_REPLACED = _Limit(2, 3600.0)
"""Of two living processes of one name the one that was replaced ends, now and then two sessions later. Started again it
replaces the other one: against a process without a supervisor that settles it, two supervisors would take turns."""
_PAUSE_SECONDS_MIN = 0.2
_PAUSE_SECONDS_MAX = 30.0
"""Bounds of the pause before a worker is started once more, which doubles each time; the first time there is none."""
_CHECK_SECONDS = 0.1
# What passes without anybody doing anything, as brokers that do not answer just when a worker starts: it is started
# again however often.
_PASSING = {code for code, error in exit_codes().items() if error.retriable}
# As a signal may be: ended in order without being asked by us, also before it ran, by an error that nobody foresaw, or
# because another process has taken its name in the group.
_COUNTED = {0, StateflowError.exit_code, MembershipLost.exit_code, Interrupted.exit_code}
_STOP_TIMEOUT_SECONDS = 60.0


class WorkerFailed(StateflowError):
    """A worker ended with an error, or crashed too often to be worth another start."""

    def __init__(self, name: str, code: int, often: str = "") -> None:
        super().__init__(
            f"worker {name} {_how(code)}{often}.",
            action="see the worker's own lines above; state and progress are kept, so start again when it is fixed.",
            worker=name,
            code=code,
        )
        self.exit_code = code if code > 0 else 1


@dataclass(slots=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    quiet: QuietReader | None
    """None while the process is gone, or when nobody asks."""
    said_total: int = 0
    ends_in_a_row: int = 0
    ended_seconds: float = float("-inf")
    start_seconds: float | None = None
    """When it is to be started again; None while it runs."""
    crashes_seconds: deque[float] = field(default_factory=deque)
    replaced_seconds: deque[float] = field(default_factory=deque)


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
        """Watch until ``stop``; raises ``WorkerFailed`` after stopping the others when one cannot go on.

        One that was killed, or ended with an error that passes, is started again; the others keep running meanwhile.
        """
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
        if child.start_seconds is not None:
            if self._clock.monotonic_seconds() >= child.start_seconds:
                self._start_again(child)
            return
        code = child.process.poll()
        if code is not None:
            self._ended(child, code)

    def _ended(self, child: _Child, code: int) -> None:
        """Decide when it is started again. Raises ``WorkerFailed`` for what another start would meet again."""
        now_seconds = self._clock.monotonic_seconds()
        is_crash = code < 0 or code in _COUNTED
        if not (is_crash or code in _PASSING):
            raise WorkerFailed(child.name, code)
        if is_crash:
            _count(child, code, now_seconds)
        if now_seconds - child.ended_seconds > _CRASHES.window_seconds:
            child.ends_in_a_row = 0
        child.ends_in_a_row += 1
        child.ended_seconds = now_seconds
        pause_seconds = _pause_seconds(child.ends_in_a_row)
        child.start_seconds = now_seconds + pause_seconds
        _LOG.warning("Worker %s %s; starting it again%s.", child.name, _how(code), _when(pause_seconds))
        _close_pipe(child.process)
        with self._lock:
            if child.quiet is not None:
                child.said_total = child.quiet.last().said_total + 1
                child.quiet.close()
                child.quiet = None

    def _start_again(self, child: _Child) -> None:
        with self._lock:
            successor = self._spawn(child.name, child.said_total)
            child.process, child.quiet = successor.process, successor.quiet
            child.start_seconds = None

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


def _count(child: _Child, code: int, now_seconds: float) -> None:
    """Note one more of these ends. Raises ``WorkerFailed`` if it is one too many."""
    is_replaced = code == MembershipLost.exit_code
    limit, ends = (_REPLACED, child.replaced_seconds) if is_replaced else (_CRASHES, child.crashes_seconds)
    ends.append(now_seconds)
    while ends[0] < now_seconds - limit.window_seconds:
        ends.popleft()
    if len(ends) > limit.restarts_max:
        raise WorkerFailed(child.name, code, f", {len(ends)} times within {limit.window_seconds:.0f} s")


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by signal {-code}"
    error = exit_codes().get(code)
    return f"ended with exit code {code}" + (f" ({error.__name__})" if error and error.retriable else "")


def _pause_seconds(ends_in_a_row: int) -> float:
    if ends_in_a_row == 1:
        return 0.0
    return backoff.pause_seconds(ends_in_a_row - 1, _PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX)


def _when(pause_seconds: float) -> str:
    return f" in {pause_seconds:.1f} s" if pause_seconds else ""


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
