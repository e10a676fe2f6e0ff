"""Builds the native core into this checkout: with the machine's C compiler, else with one fetched for the moment.

    python tools/native_core.py INSTALLER…    what installs packages, such as `python -m pip install`

Run by `python3 dev.py` in the environment, once for each state of the sources. Always ends with exit code 0: what
cannot be built is left out with one line, and plain Python does its work.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILDING = ROOT / "stateflow" / "native" / "building.py"
LOCK = ROOT / "native.lock"
SECONDS_MAX = 300.0


def main(installer: Sequence[str]) -> int:
    """Build, and say why if that cannot be done."""
    if problem := problem_of(installer):
        print(f"dev.py: the native core is left out, plain Python does its work: {problem}", file=sys.stderr)
    return 0


def problem_of(installer: Sequence[str]) -> str:
    """Why the native core is not there after all was tried; empty if it is."""
    build = [sys.executable, str(BUILDING)]
    problem = _failure(build, {})
    if not problem or not installer:
        return problem
    with tempfile.TemporaryDirectory(
        prefix="stateflow-compiler-"
    ) as folder:  # 400 MB for a file of 40 KB: not kept
        packages = ["--target", folder, "--no-deps", "--require-hashes", "-r", str(LOCK)]
        fetched = _failure([*installer, *packages], {"PIP_RETRIES": "1", "UV_HTTP_RETRIES": "1"})
        return fetched or _failure(build, {"PYTHONPATH": folder})


def _failure(command: Sequence[str], variables: dict[str, str]) -> str:
    """Run a program; the last line of its errors if it fails, else nothing."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1] if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
