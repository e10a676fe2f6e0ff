"""The processes of a study: the application under its supervisor, and commands beside it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stateflow.errors import StateflowError, StillRunning, exit_codes
from stateflow.lab.chaos.plan import WORKERS
from stateflow.lab.chaos.report import Report
from stateflow.lab.endurance.watching import family

TARGET = "stateflow.lab.chaos.application:app"
STOP_SECONDS, COMMAND_SECONDS = 90.0, 180.0
_BEGUN_SECONDS, _GONE_SECONDS = 60.0, 120.0
_LOOK_SECONDS, _PAUSE_SECONDS = 0.2, 1.0
_ENDS_MAX = 3
PASSING = frozenset(
    {code for code, error in exit_codes().items() if error.retriable} | {StillRunning.exit_code}
)
"""What the documents say passes by itself: a command that ends so is given once more. The group remembers the names of
killed workers for a while, so ``StillRunning`` is of them."""
_BEGUN = re.compile(r"Worker w\d is process \d+")
_RESTARTED = re.compile(r"Worker w\d ((?:was|ended)[^;\n]+); starting it again")

_CRASHED = re.compile(r"by signal (?!9$)|exit code 1$")
_TRACE = "Traceback (most recent call last)"


class GaveUp(StateflowError):
    """The study cannot go on: what it found says why."""


def wait_until(happened: Callable[[], bool], seconds: float) -> bool:
    """Whether it happened in time."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


class Processes:
    """One application, at most one supervisor of it at a time, and commands. All write to files in ``place``."""

    def __init__(self, environment: Mapping[str, str], place: Path, report: Report) -> None:
        self.place = place
        self.report = report
        self.state_dir = place / "state"
        self._environment = {**os.environ, **environment, "STATEFLOW_STATE_DIR": str(self.state_dir)}
        self._log = place / "application.log"
        self._commands = place / "commands.log"
        self._run: subprocess.Popen[bytes] | None = None
        self._told_from = 0
        self._ours: set[int] = set()
        """Every process of the application that was seen, so that none is left behind."""

    # --- the application ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the supervisor, and again where it ends at its start by what passes; return when workers are begun."""
        deadline = time.monotonic() + COMMAND_SECONDS
        while True:
            self._spawn()
            if not wait_until(lambda: self._has_begun or self._code is not None, _BEGUN_SECONDS):
                self.report.note_stuck("the application did not start its workers")
                self.kill()
            if self._has_begun:
                return
            code = self._left()
            if code not in PASSING or time.monotonic() > deadline:
                self.report.note_refused(f"the application ended with exit code {code} at its start")
                raise GaveUp("The application does not start.", action=f"Read {self._log}.")
            time.sleep(_PAUSE_SECONDS)

    def check(self) -> None:
        """See that it still runs; an application that ended by itself is a finding, and is started again."""
        if self._run is None or self._code is None:
            return
        code = self._left()
        self.report.note_ended(f"the application ended by itself with exit code {code}")
        if self.report.ended >= _ENDS_MAX:
            raise GaveUp("The application ends again and again.", action=f"Read {self._log}.")
        self._await_gone()
        self.start()

    def worker(self, number: int) -> int | None:
        """The process of a worker; None when there is none within a while."""
        found: list[int] = []

        def is_there() -> bool:
            self.check()
            found[:] = [pid for pid in self._family() if _is_worker(pid, number)]
            return bool(found)

        return found[0] if wait_until(is_there, _BEGUN_SECONDS) else None

    def stop(self) -> None:
        """Ask it to commit and end: within the bound, with exit code 0."""
        self.check()
        if self._run is None:
            return
        self._family()
        self._run.terminate()
        if not wait_until(lambda: self._code is not None, STOP_SECONDS):
            self.report.note_stuck(f"the application did not stop within {STOP_SECONDS:.0f} s")
            self.kill()
            return
        code = self._left()
        if code != 0:
            self.report.note_refused(f"the application that was asked to stop ended with exit code {code}")
        self._await_gone()

    def kill(self) -> None:
        """SIGKILL everything of it at the same time."""
        for pid in self._family():
            send(pid, signal.SIGKILL)
        if self._run is not None:
            self._left()
        self._await_gone()

    def kill_supervisor(self, *, at_once: bool) -> None:
        """SIGKILL the supervisor: its workers notice, commit and end. Another starts then, or ``at_once``."""
        self.check()
        assert self._run is not None, "it runs between events"
        self._family()
        self._run.kill()
        self._left()
        if not at_once:
            self._await_gone()
        self.start()

    def drain(self) -> None:
        """Run to the end of the input, where all windows close; end with 0."""
        arguments = (
            "run",
            TARGET,
            "--workers",
            str(WORKERS),
            "--verbose",
            "--until-drained",
            "--end-of-input",
        )
        self.command("run --end-of-input", *arguments)

    # --- commands -------------------------------------------------------------------------------------

    def command(
        self,
        name: str,
        *arguments: str,
        passing: frozenset[int] = PASSING,
        refusals: frozenset[int] = frozenset(),
    ) -> bool:
        """Run a command until it succeeds, or refuses for a good reason; any other end that does not pass is a finding.

        Returns whether it succeeded.
        """
        deadline = time.monotonic() + COMMAND_SECONDS
        while (code := self._command(name, arguments)) != 0:
            if code is None:
                self.report.note_stuck(f"`{name}` did not end within {COMMAND_SECONDS:.0f} s")
                return False
            if code in refusals:
                return False
            if code not in passing:
                self.report.note_refused(f"`{name}` ended with exit code {code}")
                return False
            if time.monotonic() > deadline:
                self.report.note_stuck(
                    f"`{name}` ended with exit code {code} again and again for {COMMAND_SECONDS:.0f} s"
                )
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def command_killed(
        self, name: str, *arguments: str, begun: Callable[[], bool], after_seconds: float
    ) -> None:
        """Run a command and kill it, so long after it has begun with its work, if it has not ended by then."""
        with self._begin(arguments) as process:
            wait_until(lambda: process.poll() is not None or begun(), _BEGUN_SECONDS)
            wait_until(lambda: process.poll() is not None, after_seconds)
            _kill_family(process)
            self.report.exit_codes[name][process.returncode] += 1

    def _command(self, name: str, arguments: tuple[str, ...]) -> int | None:
        """Its exit code; None where it did not end in time and was killed."""
        with self._begin(arguments) as process:
            if not wait_until(lambda: process.poll() is not None, COMMAND_SECONDS):
                _kill_family(process)
                return None
            self.report.exit_codes[name][process.returncode] += 1
        return process.returncode

    @contextmanager
    def _begin(self, arguments: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
        with self._commands.open("ab") as log:
            log.write(f"--- {_now()} {' '.join(arguments)}\n".encode())
            log.flush()
            process = self._popen(arguments, log.fileno())
            self._ours.add(process.pid)
            yield process
            log.write(f"--- {_now()} exit code {process.returncode}\n".encode())

    # --- processes ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave no process behind."""
        self.kill()
        said = "".join(_read(log) for log in (self._log, self._commands))
        self.report.restarted.update(_RESTARTED.findall(said))
        for how, times in self.report.restarted.items():
            if _CRASHED.search(how):
                self.report.note_crashed(f"a worker {how}", times)
        if traces := said.count(_TRACE):
            self.report.note_crashed("a trace of Python in the logs", traces)

    def _spawn(self) -> None:
        self._told_from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._run = self._popen(("run", TARGET, "--workers", str(WORKERS), "--verbose"), log.fileno())
        self._ours.add(self._run.pid)

    def _popen(self, arguments: tuple[str, ...], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "stateflow.cli", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    @property
    def _code(self) -> int | None:
        assert self._run is not None, "it was started"
        return self._run.poll()

    @property
    def _has_begun(self) -> bool:
        return len(_BEGUN.findall(_read(self._log, self._told_from))) >= WORKERS

    def _left(self) -> int:
        """The supervisor's end, noted; it has ended or was just killed."""
        assert self._run is not None, "it was started"
        code = self._run.wait()
        self._run = None
        self.report.exit_codes["run"][code] += 1
        return code

    def _family(self) -> list[int]:
        """All processes of the application that live."""
        if self._run is not None:
            self._ours.update(family(self._run.pid))
        self._ours = {pid for pid in self._ours if _is_ours(pid)}
        return sorted(self._ours)

    def _await_gone(self) -> None:
        """Workers end when their supervisor does."""
        if not wait_until(lambda: not self._family(), _GONE_SECONDS):
            self.report.note_stuck("workers outlived their supervisor")
            for pid in self._family():
                send(pid, signal.SIGKILL)


def _read(log: Path, first: int = 0) -> str:
    """What is in a log from a byte on; nothing if there is none yet."""
    if not log.exists():
        return ""
    with log.open("rb") as opened:
        opened.seek(first)
        return opened.read().decode(errors="replace")


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _kill_family(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:  # else its number may be another's by now
        for pid in family(process.pid):
            send(pid, signal.SIGKILL)
    process.wait()


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may just have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _is_ours(pid: int) -> bool:
    """Whether it is still what it was: a zombie has no command line, and another process has another."""
    return "stateflow.cli" in _command_line(pid)


def _is_worker(pid: int, number: int) -> bool:
    line = _command_line(pid)
    return "--name" in line and line[line.index("--name") + 1] == f"w{number}"
