"""Peers in Python, each in an environment of its own below the user's cache: their libraries are not this project's."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from stateflow.connectors.broker.filelock import file_lock
from stateflow.errors import SetupError

_INSTALL_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class PythonPeer:
    """What is installed for a peer, and the script that works with it, beside this module."""

    title: str
    version: str
    requirements: tuple[str, ...]
    script: str


QUIX = PythonPeer("Quix Streams", "3.28.1", ("quixstreams==3.28.1",), "quix_peer.py")
FAUST = PythonPeer(
    "Faust",
    "0.15.3",
    ("faust-streaming[rocksdict]==0.15.3", "lz4==4.4.5", "cramjam==2.14.0"),
    "faust_peer.py",
)


def made(peer: PythonPeer, folder: Path) -> Path:
    """The Python of a peer's environment, which is made in ``folder`` when it is not there.

    Raises ``SetupError`` where the packages cannot be had.
    """
    name = Path(peer.script).stem.removesuffix("_peer")
    place = folder / f"{name}-{peer.version}-python{sys.version_info.major}.{sys.version_info.minor}"
    python, ready = place / "bin" / "python", place / "ready"
    place.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / f"{name}.lock", timeout_seconds=_INSTALL_SECONDS):
        if not ready.exists():
            venv.EnvBuilder(clear=True, with_pip=True).create(place)
            command = [str(python), "-m", "pip", "install", "--quiet", *peer.requirements]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
            )
            if done.returncode != 0:
                raise SetupError(
                    f"{peer.title} {peer.version} could not be installed: {done.stderr[-500:]}",
                    action="Check the network, or leave it out of --vs.",
                )
            ready.touch()
    return python
