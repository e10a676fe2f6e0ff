"""Runs lint, types, import contracts and pytest side by side, in the environment of `dev.py`.

    python tools/side_by_side.py test [--fast] [ARGS]   all of it, with ARGS for pytest
    python tools/side_by_side.py check                  the checks alone
    python tools/side_by_side.py fetch                  the jars alone, of the broker and of the tests

What the tests need besides packages, jars and archives of Java's classes, comes meanwhile, too: pytest collects the
tests, and begins with them when all of it is there.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TEST_JARS = (
    ROOT / "tests" / "foreign" / "kafka-streams.json",
    ROOT / "lab" / "time" / "topology-test-driver.json",
    ROOT / "tests" / "spark" / "jdbc-databases.json",
)
FETCH_JARS = [sys.executable, "-m", "stateflow.connectors.broker", *map(str, TEST_JARS)]
MAKE_ARCHIVE = [sys.executable, "-m", "tests.class_archive"]
PREPARATION = (
    (FETCH_JARS, [*MAKE_ARCHIVE, "broker"]),
    ([*MAKE_ARCHIVE, "spark"],),
)
"""What the tests need: rows of programs, which run side by side. Spark's archive takes longest, and one core."""
START_AFTER = "STATEFLOW_TESTS_START_AFTER"
"""The file descriptor that tests/prepared.py waits for."""
READY = b"\n"
INTERRUPTED = 130
Command = Sequence[str]
CLOSING_LINE = re.compile(r"\b(passed|failed|errors?|skipped|deselected|no tests ran)\b.* in [0-9.]+s")

LANES = ("-n", "auto", "--dist", "loadfile")
"""Several processes of pytest; tests/conftest.py says how many, and in which order they get the files."""
FAST = ("-n", "logical", "-m", "not broker and not spark and not slow")
LEFT_OUT = (
    "dev.py: left out by --fast: what is marked broker, spark or slow; `python3 dev.py test` runs it all"
)

CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("lint", ("ruff", "check", "--quiet", ".")),
    ("format", ("ruff", "format", "--check", "--quiet", ".")),
    ("types", ("mypy",)),
    ("types of the scripts", ("mypy", "dev.py", "tools")),
    ("import contracts", ("lint-imports",)),
)


def main(arguments: Sequence[str]) -> int:
    """Run one command of this script; returns its exit code."""
    command, *rest = arguments
    return {"test": test, "check": check, "fetch": fetch}[command](rest)


def test(arguments: Sequence[str]) -> int:
    """Run every check and the tests; pytest's closing line is the last one printed."""
    fast = "--fast" in arguments
    chosen = [argument for argument in arguments if argument != "--fast"]
    first = () if fast else PREPARATION
    return run_tests([*LANES, *(FAST if fast else ()), *chosen], [LEFT_OUT] if fast else [], first)


def check(_arguments: Sequence[str]) -> int:
    """Run lint, types and import contracts."""
    checks = Checks(lambda text: print(text, flush=True))
    checks.run()
    return int(bool(checks.failed))


def fetch(_arguments: Sequence[str]) -> int:
    """Fetch the jars of the broker and of the tests."""
    return subprocess.run(FETCH_JARS, cwd=ROOT, check=False).returncode


def run_tests(arguments: Sequence[str], notes: Sequence[str], first: Sequence[Sequence[Command]]) -> int:
    """Run pytest beside the checks, and print its closing line again should anything have come after.

    It begins with the tests when the programs `first` have run, rows of them side by side; where one fails it ends,
    with that one's exit code. Returns pytest's, and 1 when only the checks failed.
    """
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    preparation = Preparation(first)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *colour, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", START_AFTER: str(preparation.told)},
        pass_fds=(preparation.told,),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    os.close(preparation.told)
    lines = Echo(process)
    checks = Checks(lines.say)
    beside = (preparation, checks)
    for other in beside:
        other.start()

    def interrupt() -> None:
        for other in beside:
            other.stop()

    code = wait(process, interrupt)
    lines.finish()
    preparation.stop()  # pytest may have ended without it: there is no such option, or it was to collect only
    if preparation.code:
        checks.stop()
    interrupted = not all([join(preparation), join(checks)])
    code = INTERRUPTED if interrupted else preparation.code or code
    if checks.failed and not preparation.code and code != INTERRUPTED:
        lines.say(f"dev.py: checks that failed: {', '.join(checks.failed)}")
    for note in notes:
        lines.say(note)
    lines.repeat_closing_line()
    return code or int(bool(checks.failed))


def wait(process: subprocess.Popen[bytes], at_interrupt: Callable[[], None]) -> int:
    """Wait for the end of a program; 130 after Ctrl-C."""
    interrupted = False
    while True:
        try:
            code = process.wait()
            return INTERRUPTED if interrupted else code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            interrupted = True  # the terminal told the program too: let it end in order
            at_interrupt()


def join(other: Beside) -> bool:
    """Wait for what runs beside pytest; false after Ctrl-C, which ends it."""
    try:
        other.join()
        return True
    except KeyboardInterrupt:
        other.stop()
        other.join()
        return False


class Beside(threading.Thread):
    """Work beside pytest, until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()

    def stop(self) -> None:
        """Begin nothing more."""
        self.stopped.set()


class Programs(Beside):
    """Runs programs, one after the other, until it is stopped."""

    niceness = 0

    def __init__(self) -> None:
        super().__init__()
        self.running: subprocess.Popen[str] | None = None

    def stop(self) -> None:
        """Begin no further program, and end the one that runs."""
        super().stop()
        if self.running is not None:
            self.running.terminate()

    def _run(self, command: Sequence[str], output: int | None = None) -> tuple[int, str]:
        """Run a program to its end; returns its exit code and, where `output` is a pipe, what it printed."""
        self.running = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output and subprocess.STDOUT,
            text=True,
        )
        if self.niceness:
            with suppress(ProcessLookupError):  # it has ended
                priority = os.getpriority(os.PRIO_PROCESS, self.running.pid)
                os.setpriority(os.PRIO_PROCESS, self.running.pid, priority + self.niceness)
        if self.stopped.is_set():  # since the last look, when there was no process to end yet
            self.running.terminate()
        printed, _ = self.running.communicate()
        return self.running.returncode, printed


class Row(Programs):
    """Programs of which each needs those before it. Where one fails, the others of the preparation are stopped."""

    def __init__(self, commands: Sequence[Command], stop_all: Callable[[], None]) -> None:
        super().__init__()
        self.code = 0
        """The exit code of the program that failed."""
        self._commands = commands
        self._stop_all = stop_all

    def run(self) -> None:
        """Run them."""
        for command in self._commands:
            code, _ = self._run(command)
            if self.stopped.is_set():
                return
            if code:
                self.code = abs(code)
                self._stop_all()
                return


class Preparation(Beside):
    """Runs what must be done before the tests, and tells pytest, which reads from `told`, when it is."""

    def __init__(self, rows: Sequence[Sequence[Command]]) -> None:
        super().__init__()
        self.told, self._telling = os.pipe()
        self.code = 0
        """The exit code of the program that failed."""
        self._rows = [Row(commands, self.stop) for commands in rows]

    def stop(self) -> None:
        """Begin no further program, and end those that run."""
        super().stop()
        for row in self._rows:
            row.stop()

    def run(self) -> None:
        """Run all rows; where one fails, or they are stopped, the end of the pipe says that no test can begin."""
        with open(self._telling, "wb", buffering=0) as telling:
            for row in self._rows:
                row.start()
            for row in self._rows:
                row.join()
            self.code = next((row.code for row in self._rows if row.code), 0)
            if not self.stopped.is_set():
                with suppress(BrokenPipeError):  # pytest has ended
                    telling.write(READY)


class Checks(Programs):
    """Runs the checks, and says how each ended; the output of those that fail is shown."""

    niceness = 5
    """Nothing waits for them, and the tests wait for what is prepared beside them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.say = say
        self._passed: set[str] = set()

    @property
    def failed(self) -> list[str]:
        """Those that did not end well, by their names."""
        return [name for name, _ in CHECKS if name not in self._passed]

    def run(self) -> None:
        """Run them all, also after one that fails."""
        for name, command in CHECKS:
            if not self.stopped.is_set():
                self._check(name, [str(BIN / command[0]), *command[1:]])

    def _check(self, name: str, command: Sequence[str]) -> None:
        started = time.monotonic()
        code, output = self._run(command, subprocess.PIPE)
        if self.stopped.is_set():
            return
        self.say(f"{name}: {'FAILED' if code else 'ok'} ({time.monotonic() - started:.1f} s)")
        if code:
            self.say(output)
        else:
            self._passed.add(name)


class Echo:
    """Copies a program's output as it comes, remembering pytest's closing line and what was printed last."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert isinstance(process.stdout, io.BufferedReader)
        self._stream = process.stdout
        self._closing = b""
        self._last = b""
        self._part = b""  # of a line that has not ended
        self._to_say: list[str] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Print lines of our own, between two lines of the program."""
        with self._lock:
            self._to_say.append(text)
            if not self._part:
                self._say_all()

    def _say_all(self) -> None:
        for text in self._to_say:
            print(text, flush=True)
            self._last = text.encode()
        self._to_say.clear()

    def _copy(self) -> None:
        while read := self._stream.read1(1 << 16):
            with self._lock:
                self._show(read)

    def _show(self, read: bytes) -> None:
        *lines, rest = (self._part + read).split(b"\n")
        whole, newline, begun = read.rpartition(b"\n")
        self._write(whole + newline)
        for line in lines:
            self._note(line)
        if newline:
            self._say_all()
        self._write(begun)
        self._part = rest

    def _write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def _note(self, line: bytes) -> None:
        if line.strip():
            self._last = line
        if CLOSING_LINE.search(line.decode(errors="replace")):
            self._closing = line

    def finish(self) -> None:
        """Wait for the end of the output; a forgotten grandchild that holds the pipe is not waited for."""
        self._thread.join(timeout=5.0)
        with self._lock:
            if self._part:
                self._write(b"\n")
                self._note(self._part)
                self._part = b""
            self._say_all()

    def repeat_closing_line(self) -> None:
        """Print the closing line once more if it is not the last line on the screen."""
        if self._closing and self._last != self._closing:
            self._write(b"\n" + self._closing + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
