"""The sides of a benchmark: how each is started, as a process of its own that ends by saying what it measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from stateflow.cli.main import installed_version
from stateflow.connectors.broker.java import find_java
from stateflow.errors import ConfigError, SetupError
from stateflow.lab.bench import java_peer, peer_env
from stateflow.lab.bench.peer_env import FAUST, QUIX, PythonPeer
from stateflow.lab.bench.peer_settings import faust_settings, quix_settings, streams_settings
from stateflow.lab.bench.result import OURS, Ran
from stateflow.lab.bench.workload import RESTORES, WORKS, Workload, WorkName
from stateflow.native.loading import VARIABLE as NATIVE_VARIABLE

RUN_SECONDS_MAX = 1_800.0
_PEER_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Place:
    """Where one run happens: the broker, an id that nobody else has, and an empty folder for its state."""

    brokers: str
    app_id: str
    state_dir: Path


class Side(Protocol):
    """One program that can do the work."""

    name: str

    def inputs(self, load: Workload) -> list[str]:
        """Topics beside the input of all that it needs with the same content."""
        ...

    def empty_topics(self, load: Workload) -> list[str]:
        """Topics that must be there, and empty."""
        ...

    def setup(self, load: Workload) -> dict[str, Any]:
        """What it is, and how it is set up for the work, as the result shows it."""
        ...

    def run(self, load: Workload, place: Place) -> Ran:
        """Do the work. Raises ``SetupError`` where its process fails."""
        ...


class Ours:
    """This project: this checkout, or another one to compare it with."""

    def __init__(self, name: str = OURS, checkout: Path | None = None, shared_writers: int = 0) -> None:
        self.name = name
        self._checkout = checkout
        self._shared_writers = shared_writers
        if checkout is not None and not (checkout / "lab" / "bench" / "ours.py").exists():
            raise ConfigError(
                f"{checkout} is not a checkout that has this benchmark.",
                action="Name the folder of one, with lab/bench/ours.py in it.",
            )

    def inputs(self, load: Workload) -> list[str]:  # noqa: ARG002 - of the protocol
        """None but the input."""
        return []

    def empty_topics(self, load: Workload) -> list[str]:  # noqa: ARG002 - of the protocol
        """None."""
        return []

    def setup(self, load: Workload) -> dict[str, Any]:
        """Default settings but for these."""
        own = {"guarantee": load.guarantee, "commit_interval_seconds": load.commit_seconds}
        settings = {**own, "partitions": load.partitions, "shared_writers": self._shared_writers}
        return {"version": installed_version(), "python": platform.python_version(), "settings": settings}

    def run(self, load: Workload, place: Place) -> Ran:
        """Run the module ``ours``."""
        own = replace(load, shared_writers=self._shared_writers)
        arguments = [own.encode(), place.brokers, str(place.state_dir), place.app_id]
        command = [sys.executable, "-m", "stateflow.lab.bench.ours", *arguments]
        return ran_by(command, place, {"PYTHONPATH": str(self._checkout)} if self._checkout else {})


class KafkaStreams:
    """Kafka Streams; reading is Java's consumer, writing its producer."""

    name = "kafka-streams"

    def __init__(self) -> None:
        self.command = java_peer.prepare()
        self.version = java_peer.PEER_JARS.version

    def inputs(self, load: Workload) -> list[str]:
        """Of a restore its own changelog, under the name that it looks for."""
        return [f"{_restored_app(load)}-state-changelog"] if load.work in RESTORES else []

    def empty_topics(self, load: Workload) -> list[str]:
        """Of a restore a source topic, so that nothing is processed beside it."""
        return [f"{load.topic}-empty"] if load.work in RESTORES else []

    def about(self) -> dict[str, Any]:
        """Versions, and the Java machine."""
        jars = {jar.artifact: jar.version for jar in java_peer.PEER_JARS.jars}
        arguments = list(java_peer.JVM_ARGUMENTS)
        java = {"java": find_java().major, "java_arguments": arguments}
        return {"version": self.version, "rocksdb": jars["rocksdbjni"], **java}

    def setup(self, load: Workload) -> dict[str, Any]:
        """Versions, the Java machine and every setting that is not the default."""
        return {**self.about(), "settings": streams_settings(load)}

    def run(self, load: Workload, place: Place) -> Ran:
        """Run the Java program."""
        app_id = _restored_app(load) if load.work in RESTORES else place.app_id
        told = json.loads(load.encode()) | {
            "brokers": place.brokers,
            "app": app_id,
            "state_dir": str(place.state_dir),
            "empty_topic": f"{load.topic}-empty",
            "settings": streams_settings(load),
        }
        return ran_by([*self.command, json.dumps(told)], place)


class Python:
    """A peer in Python, from an environment of its own."""

    def __init__(self, name: str, peer: PythonPeer, folder: Path) -> None:
        self.name, self.version = name, peer.version
        self._script = _PEER_FOLDER / peer.script
        self._python = peer_env.made(peer, folder)

    def inputs(self, load: Workload) -> list[str]:  # noqa: ARG002 - of the protocol
        """None but the input."""
        return []

    def empty_topics(self, load: Workload) -> list[str]:  # noqa: ARG002 - of the protocol
        """None."""
        return []

    def setup(self, load: Workload) -> dict[str, Any]:
        """Its version, and the arguments of its application."""
        python = platform.python_version()
        return {"version": self.version, "python": python, "settings": _PYTHON_SETTINGS[self.name](load)}

    def run(self, load: Workload, place: Place) -> Ran:
        """Run the peer's script there; it knows only libraries of that environment."""
        told = json.loads(load.encode()) | {"settings": _PYTHON_SETTINGS[self.name](load)}
        arguments = [json.dumps(told), place.brokers, str(place.state_dir), place.app_id]
        return ran_by([str(self._python), str(self._script), *arguments], place)


PYTHON_PEERS = {"quix": QUIX, "faust": FAUST}
_PYTHON_SETTINGS = {"quix": quix_settings, "faust": faust_settings}
WORKS_OF: dict[str, frozenset[WorkName]] = {
    KafkaStreams.name: frozenset(WORKS),
    **dict.fromkeys(PYTHON_PEERS, frozenset[WorkName]({"count", "operator"})),
}
"""What each peer can be asked for."""


def side_environment() -> dict[str, str]:
    """This process's, without settings of applications. A choice of the native core is meant for the sides."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("STATEFLOW_") or name == NATIVE_VARIABLE
    }


def ran_by(command: list[str], place: Place, more: Mapping[str, str] = MappingProxyType({})) -> Ran:
    """What the last line of a program's output says. Raises ``SetupError`` where it fails."""
    place.state_dir.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=RUN_SECONDS_MAX,
        env={**side_environment(), **more},
        cwd=place.state_dir.parent,  # so that no module is found by where this was started
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise SetupError(
            f"A side of the benchmark ended with code {done.returncode}: {(done.stdout + done.stderr)[-1500:]}",
            action="Run `stateflow doctor`; if nothing is amiss there, report this text.",
        )
    return replace(Ran(0, 0.0, 0.0, ""), **json.loads(lines[-1]))


def _restored_app(load: Workload) -> str:
    return f"{load.topic}-streams"
