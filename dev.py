#!/usr/bin/env python3
"""Everything from a fresh checkout, with Python 3.11 or newer and pip and nothing else:

    python3 dev.py demo [ARGS]    run the demonstration on a real broker, with real input
    python3 dev.py test [ARGS]    lint, types, import contracts, and pytest with ARGS beside them
    python3 dev.py test --fast    the same without what needs a broker, Spark or a long time
    python3 dev.py check          lint, types and import contracts alone
    python3 dev.py fetch          fill the caches (packages, broker jars); later starts need no network
    python3 dev.py lock [ARGS]    write requirements.lock anew (--upgrade: newest versions)
    python3 dev.py exec COMMAND…  run a command in the environment, such as `stateflow doctor`

The environment is `.venv` in the checkout; it is made, and brought up to date, when it is needed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / "stateflow.stamp"
CORE = ROOT / "stateflow" / "native"
CORE_STAMP = VENV / "native-core.stamp"
PYTHON_MIN = (3, 11)
TEST_JARS = (
    ROOT / "tests" / "foreign" / "kafka-streams.json",
    ROOT / "lab" / "time" / "topology-test-driver.json",
    ROOT / "tests" / "spark" / "jdbc-databases.json",
)
FETCH_JARS = [str(PYTHON), "-m", "stateflow.connectors.broker", *map(str, TEST_JARS)]
MAKE_CLASS_ARCHIVES = [str(PYTHON), "-m", "tests.class_archive"]
NOT_HANDED_ON = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
USAGE_EXIT_CODE = 2
INTERRUPTED = 130
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


def main(arguments: list[str]) -> int:
    """Run one command of this script; returns its exit code."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if command not in COMMANDS:
        print(__doc__)
        return 0 if command in ("help", "-h", "--help") else USAGE_EXIT_CODE
    if sys.version_info < PYTHON_MIN:
        return _fail(f"this is Python {sys.version.split()[0]}", "run it with Python 3.11 or newer")
    return COMMANDS[command](rest)


def demo(arguments: list[str]) -> int:
    """Run the demonstration."""
    return ensure_environment() or _call([str(PYTHON), "examples/flights/demo.py", *arguments])


def test(arguments: list[str]) -> int:
    """Run every check and the tests side by side; pytest's closing line is the last one printed."""
    fast = "--fast" in arguments
    if code := ensure_environment():
        return code
    checks = _Checks(lambda text: print(text, flush=True))
    checks.start()  # the jars come from the network, and leave time for them
    if code := 0 if fast else _call(FETCH_JARS) or _call(MAKE_CLASS_ARCHIVES):
        checks.stop()
        checks.join()
        return code
    chosen = [argument for argument in arguments if argument != "--fast"]
    notes = [LEFT_OUT] if fast else []
    return _run_side_by_side([*LANES, *(FAST if fast else ()), *chosen], notes, checks)


def check(_arguments: list[str]) -> int:
    """Run lint, types and import contracts."""
    if code := ensure_environment():
        return code
    checks = _Checks(lambda text: print(text, flush=True))
    checks.run()
    return int(bool(checks.failed))


def fetch(_arguments: list[str]) -> int:
    """Make the environment and fetch the jars of the broker and of the tests."""
    return ensure_environment() or _call(FETCH_JARS)


def lock(arguments: list[str]) -> int:
    """Write requirements.lock anew."""
    return _call([sys.executable, str(ROOT / "tools" / "lock.py"), *arguments])


def execute(arguments: list[str]) -> int:
    """Run a command with the environment's programs first on the PATH."""
    if not arguments:
        return _fail("no command was given", "write `python3 dev.py exec stateflow doctor`, for example")
    return ensure_environment() or _call(arguments)


COMMANDS = {"demo": demo, "test": test, "check": check, "fetch": fetch, "lock": lock, "exec": execute}


# --- the environment ----------------------------------------------------------------------------------------


def ensure_environment() -> int:
    """Make `.venv` hold what the lock says; returns 0, or the installer's exit code.

    A stamp says what it was made from, so a second start only reads two files. It is written last: an
    interrupted installation is simply done again.
    """
    wanted = _fingerprint()
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        ensure_core()
        return 0
    started = time.monotonic()
    print("dev.py: preparing .venv (the first time takes a minute or two)", file=sys.stderr, flush=True)
    if not PYTHON.exists():
        import venv  # here, as what else only a new environment needs: every command waits for the others

        venv.create(VENV, with_pip=False)  # Debian's python3 has no ensurepip; the pip that runs us serves
    STAMP.unlink(missing_ok=True)
    _remove_former()
    installer = _installer()
    if installer is None:
        return _fail("neither pip nor uv was found", "install pip for this Python (Debian: python3-pip)")
    core = threading.Thread(target=ensure_core)  # it needs none of the packages
    core.start()
    code = _call([sys.executable, str(ROOT / "tools" / "packages.py"), str(VENV), *installer])
    core.join()
    if code:
        return _fail("the packages could not be installed", "read the installer's message above", code)
    STAMP.write_text(wanted)
    print(f"dev.py: .venv is ready after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return 0


def ensure_core() -> None:
    """Build the native core of these sources, once; where that cannot be done everything works in Python."""
    files = [CORE / "building.py", *sorted((CORE / "source").iterdir())]
    wanted = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
    if not CORE_STAMP.exists() or CORE_STAMP.read_text() != wanted:
        _call([str(PYTHON), str(ROOT / "tools" / "native_core.py"), *(_installer() or ())])
        CORE_STAMP.write_text(wanted)


def _remove_former() -> None:
    """Remove what was installed while the distribution had the name of the import; both have the same files."""
    from importlib.metadata import Distribution

    for info in VENV.glob("lib/python*/site-packages/stateflow-*.dist-info"):
        for file in Distribution.at(info).files or ():
            (info.parent / file).unlink(missing_ok=True)
        shutil.rmtree(info)
    shutil.rmtree(ROOT / "stateflow.egg-info", ignore_errors=True)


def _fingerprint() -> str:
    """What the environment depends on: the lock, the project file, the interpreter and the place."""
    place = f"{sys.version}\0{ROOT}".encode()
    parts = (LOCK.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), place)
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _installer() -> list[str] | None:
    """How to install into `.venv`: this Python's pip, else uv (`uv run` gives a Python without pip)."""
    from importlib.util import find_spec

    if find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "--python", str(PYTHON), "install"]
        return [*pip, "--quiet", "--disable-pip-version-check", "--no-input"]
    uv = os.environ.get("UV") or shutil.which("uv")
    return [uv, "pip", "install", "--quiet", "--python", str(PYTHON)] if uv else None


# --- running things -----------------------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    """Our variables, with `.venv` as the active environment, and with compiled modules kept.

    Where PYTHONDONTWRITEBYTECODE is set, as in many container images, each of the hundreds of processes that the
    tests start would compile the whole package for itself: half of its time until it works.
    """
    variables = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
    return {
        **variables,
        "VIRTUAL_ENV": str(VENV),
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


def _call(command: list[str]) -> int:
    """Run a program from the checkout's root and wait for it; 130 after Ctrl-C, 127 when it is not there."""
    try:
        process = subprocess.Popen(command, cwd=ROOT, env=_environment())
    except FileNotFoundError:
        return _fail(f"there is no program {command[0]}", "check its name", 127)
    return _wait(process)


def _wait(process: subprocess.Popen[bytes], at_interrupt: Callable[[], None] = lambda: None) -> int:
    interrupted = False
    while True:
        try:
            code = process.wait()
            return INTERRUPTED if interrupted else code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            interrupted = True  # the terminal told the program too: let it end in order
            at_interrupt()


class _Checks(threading.Thread):
    """Runs the checks one after the other, and says how each ended; the output of those that fail is shown."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self.say = say
        self._passed: set[str] = set()
        self._running: subprocess.Popen[str] | None = None
        self._stopped = threading.Event()

    @property
    def failed(self) -> list[str]:
        """Those that did not end well, by their names."""
        return [name for name, _ in CHECKS if name not in self._passed]

    def run(self) -> None:
        for name, command in CHECKS:
            if not self._stopped.is_set():
                self._check(name, [str(BIN / command[0]), *command[1:]])

    def stop(self) -> None:
        """Begin no further check, and end the one that runs."""
        self._stopped.set()
        if self._running is not None:
            self._running.terminate()

    def _check(self, name: str, command: list[str]) -> None:
        started = time.monotonic()
        self._running = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if self._stopped.is_set():  # since the last look, when there was no process to end yet
            self._running.terminate()
        output, _ = self._running.communicate()
        if self._stopped.is_set():
            return
        passed = self._running.returncode == 0
        self.say(f"{name}: {'ok' if passed else 'FAILED'} ({time.monotonic() - started:.1f} s)")
        if passed:
            self._passed.add(name)
        else:
            self.say(output)


def _run_side_by_side(arguments: list[str], notes: list[str], checks: _Checks) -> int:
    """Run pytest beside the checks, which have begun, and print its closing line again should anything have come after.

    Returns its exit code, and 1 when only the checks failed.
    """
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    process = subprocess.Popen(
        [str(PYTHON), "-m", "pytest", *colour, *arguments],
        cwd=ROOT,
        env={**_environment(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = _Echo(process)
    checks.say = lines.say
    code = _wait(process, checks.stop)
    lines.finish()
    code = _joined(checks) or code
    if checks.failed and code != INTERRUPTED:
        lines.say(f"dev.py: checks that failed: {', '.join(checks.failed)}")
    for note in notes:
        lines.say(note)
    lines.repeat_closing_line()
    return code or int(bool(checks.failed))


def _joined(checks: _Checks) -> int:
    """Wait for the checks; 130 after Ctrl-C, which ends them."""
    try:
        checks.join()
        return 0
    except KeyboardInterrupt:
        checks.stop()
        checks.join()
        return INTERRUPTED


class _Echo:
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


def _fail(problem: str, action: str, code: int = 1) -> int:
    print(f"error: {problem}. What to do: {action}.", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
