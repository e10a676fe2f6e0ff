"""Whether an executor builds the same graph as the driver: code brought there otherwise may be older."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from stateflow.errors import GraphError
from stateflow.operators.topology.topology import Stage, Topology


def fingerprints(topology: Topology) -> dict[str, str]:
    """Stage name → hash of what a stage reads, keeps and writes; the code of its functions is not in it."""
    return {stage.name: _fingerprint(stage) for stage in topology.stages}


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """Builds the graph on an executor, and makes sure that it is the driver's."""

    load: Callable[[], Topology]
    """A module-level function, or a partial of one: no object of the user's has to travel."""
    app: str
    expected: Mapping[str, str]

    @classmethod
    def of(cls, load: Callable[[], Topology], topology: Topology) -> CheckedGraph:
        """What travels, for the driver's graph."""
        return cls(load, topology.app, fingerprints(topology))

    def __call__(self) -> Topology:
        """The graph. Raises ``GraphError`` when it is another than the driver's."""
        topology = self.load()
        found = fingerprints(topology)
        names = self.expected.keys() | found.keys()
        differing = sorted(name for name in names if self.expected.get(name) != found.get(name))
        if differing or topology.app != self.app:
            raise GraphError(
                f"an executor has another version of {self.app!r} than the driver"
                f" (it differs in {', '.join(differing) or 'its id'}).",
                action="bring the same code to all executors: --py-files, --archives, or a packed environment.",
                stages=differing,
            )
        return topology


def _fingerprint(stage: Stage) -> str:
    parts = {
        "inputs": [(port.name, port.upstream) for port in stage.inputs],
        "stores": [msgspec.to_builtins(store) for store in stage.stores],
        "outputs": stage.outputs,
        "rekeys": stage.rekeys,
        "indexes": sorted(stage.indexes),
        "hold_back_ms": stage.hold_back_ms,
        "shared_inputs": sorted(stage.shared_inputs),
        "looks_up": [(place.name, place.topic, place.fingerprint) for place in stage.looks_up],
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()
