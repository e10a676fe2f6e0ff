"""A benchmark from its load to its result: sides chosen, a broker begun, every round run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stateflow.connectors.broker.places import cache_dir
from stateflow.errors import ConfigError
from stateflow.lab.bench.latency import LatencyLoad
from stateflow.lab.bench.latency_study import LatencySide, measure_latency, our_command, streams_command
from stateflow.lab.bench.matrix import measure_matrix
from stateflow.lab.bench.peer_settings import latency_streams_settings
from stateflow.lab.bench.restart_study import RestartLoad, measure_restart
from stateflow.lab.bench.result import OURS
from stateflow.lab.bench.side import PYTHON_PEERS, WORKS_OF, KafkaStreams, Ours, Python, Side
from stateflow.lab.bench.study import measure
from stateflow.lab.bench.workload import Workload, WorkName
from stateflow.testing.broker import open_test_broker

Tell = Callable[[str], None]
_PEERS = (KafkaStreams.name, *PYTHON_PEERS)


@dataclass(frozen=True, slots=True)
class Beside:
    """Who else does the work, and where all of it runs."""

    peers: Sequence[str]
    before: Path | None
    shared_writers: Sequence[int]
    brokers: str | None
    rounds: int


def peers_for(work: WorkName, names: Sequence[str]) -> Sequence[str]:
    """The names, if all of them have a program for the work. Raises ``ConfigError``."""
    for name in names:
        if name not in _PEERS:
            raise ConfigError(f"There is no peer called {name!r}.", action=f"Name {' or '.join(_PEERS)}.")
        if work not in WORKS_OF[name]:
            raise ConfigError(
                f"`bench {work}` has no program for {name}.",
                action=f"Leave it out; it takes part in {', '.join(sorted(WORKS_OF[name]))}.",
            )
    return names


def measure_throughput(load: Workload, beside: Beside, tell: Tell, *, matrix: bool) -> dict[str, Any]:
    """The result of one size, or of each of the matrix."""
    with (
        tempfile.TemporaryDirectory(prefix="stateflow-bench-") as folder,
        open_test_broker(beside.brokers) as broker,
    ):
        sides = _sides(beside)

        def one(cell: Workload) -> dict[str, Any]:
            result = measure(cell, sides, broker.bootstrap, Path(folder), beside.rounds, tell)
            setups = {side.name: side.setup(cell) for side in sides}
            return {"workload": _size(cell), "setups": setups, **result}

        return {"work": load.work, **(measure_matrix(load, one) if matrix else one(load))}


def measure_lateness(load: LatencyLoad, beside: Beside, tell: Tell) -> dict[str, Any]:
    """How long results take. Raises ``ConfigError`` for a peer that has no program for it."""
    return _served(
        beside,
        lambda sides, brokers, place: measure_latency(load, sides, brokers, place, beside.rounds, tell),
        {"workload": asdict(load)},
        latency_streams_settings(load.threads, load.commit_seconds),
    )


def measure_restarts(load: RestartLoad, beside: Beside, tell: Tell) -> dict[str, Any]:
    """How long a start takes. Raises ``ConfigError`` for a peer that has no program for it."""
    return _served(
        beside,
        lambda sides, brokers, place: measure_restart(load, sides, brokers, place, beside.rounds, tell),
        {"workload": asdict(load)},
        latency_streams_settings(load.threads, None),
    )


def name_of(writers: int, all_writers: Sequence[int]) -> str:
    """Of our side with so many shared writers: the first is the one that others are compared with."""
    return OURS if writers == all_writers[0] else f"shared-writers-{writers}"


def _served(
    beside: Beside,
    measured: Callable[[Sequence[LatencySide], str, Path], dict[str, Any]],
    body: dict[str, Any],
    streams_settings: dict[str, Any],
) -> dict[str, Any]:
    """What was measured of sides that run until they are told to end."""
    with tempfile.TemporaryDirectory(prefix="stateflow-bench-") as folder:
        place, writers = Path(folder), beside.shared_writers
        sides = [LatencySide(name_of(n, writers), our_command(n)) for n in writers]
        setups: dict[str, dict[str, Any]] = {}
        if KafkaStreams.name in beside.peers:
            peer = KafkaStreams()
            sides.append(LatencySide(peer.name, streams_command(peer.command)))
            setups[peer.name] = {**peer.about(), "settings": streams_settings}
        with open_test_broker(beside.brokers) as broker:
            return {**body, "setups": setups, **measured(sides, broker.bootstrap, place)}


def _sides(beside: Beside) -> list[Side]:
    writers = beside.shared_writers
    sides: list[Side] = [Ours(name_of(n, writers), shared_writers=n) for n in writers]
    if beside.before is not None:
        sides.append(Ours("before", beside.before.resolve()))
    if KafkaStreams.name in beside.peers:
        sides.append(KafkaStreams())
    for name, peer in PYTHON_PEERS.items():
        if name in beside.peers:
            sides.append(Python(name, peer, cache_dir() / "bench"))
    return sides


def _size(load: Workload) -> dict[str, Any]:
    return {name: value for name, value in asdict(load).items() if name != "work"}
