"""A packed Python environment with this checkout's stateflow, made as docs/spark-clusters.md says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from stateflow.errors import SetupError
from stateflow.lab.spark_faults.standalone import ROOT

_LEFT_OUT = shutil.ignore_patterns(".*", "build", "tests", "docs", "__pycache__", "*.egg-info")


def packed_environment(folder: Path) -> Path:
    """``environment.tar.gz``, 80 MB; pip fetches what it has not cached. Raises ``SetupError``."""
    source, environment = folder / "source", folder / "environment"
    shutil.copytree(
        ROOT, source, ignore=_LEFT_OUT, symlinks=True
    )  # pip builds in place, and leaves what it built
    target = folder / "environment.tar.gz"
    pip = str(environment / "bin" / "pip")
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [pip, "install", "--quiet", str(source), "pyarrow", "venv-pack"],
        [
            str(environment / "bin" / "venv-pack"),
            "--quiet",
            "--prefix",
            str(environment),
            "--output",
            str(target),
        ],
    ):
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise SetupError(
                f"No environment could be packed: {' '.join(command)} failed.",
                action=f"see what it says: {done.stderr.strip()[-500:]}",
            )
    return target
