"""Quix Streams in a Python environment of its own, below the user's cache: its libraries are not this project's."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from stateflow.connectors.broker.filelock import file_lock
from stateflow.errors import SetupError

VERSION = "3.28.1"
_INSTALL_SECONDS = 600.0


def made(folder: Path) -> tuple[Path, str]:
    """The environment's Python, made in ``folder`` when it is not there, and the version of Quix Streams in it.

    Raises ``SetupError`` where the package cannot be had.
    """
    place = folder / f"quix-{VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"
    python, ready = place / "bin" / "python", place / "ready"
    place.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / "quix.lock", timeout_seconds=_INSTALL_SECONDS):
        if not ready.exists():
            venv.EnvBuilder(clear=True, with_pip=True).create(place)
            command = [str(python), "-m", "pip", "install", "--quiet", f"quixstreams=={VERSION}"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
            )
            if done.returncode != 0:
                raise SetupError(
                    f"Quix Streams {VERSION} could not be installed: {done.stderr[-500:]}",
                    action="Check the network, or leave it out of --vs.",
                )
            ready.touch()
    return python, VERSION
