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
import os
import shutil
import subprocess
import sys
import threading
import time
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
SIDE_BY_SIDE = [str(PYTHON), str(ROOT / "tools" / "side_by_side.py")]
NOT_HANDED_ON = ("PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
USAGE_EXIT_CODE = 2
INTERRUPTED = 130


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
    return ensure_environment() or _call([*SIDE_BY_SIDE, "test", *arguments])


def check(_arguments: list[str]) -> int:
    """Run lint, types and import contracts."""
    return ensure_environment() or _call([*SIDE_BY_SIDE, "check"])


def fetch(_arguments: list[str]) -> int:
    """Make the environment and fetch the jars of the broker and of the tests."""
    return ensure_environment() or _call([*SIDE_BY_SIDE, "fetch"])


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
    interrupted = False
    while True:
        try:
            code = process.wait()
            return INTERRUPTED if interrupted else code if code >= 0 else 128 - code
        except KeyboardInterrupt:
            interrupted = True  # the terminal told the program too: let it end in order


def _fail(problem: str, action: str, code: int = 1) -> int:
    print(f"error: {problem}. What to do: {action}.", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
