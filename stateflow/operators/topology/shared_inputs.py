"""Inputs whose records reach one step in several ways.

Where a topic is split by ``branch`` and both arms are joined, or is a stream and a table at once, a whole batch would
take one way before the other: what a step sees would depend on batches. The records of such an input go through the
stage one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stateflow.operators.topology.graph import Node


def shared_inputs(nodes: Sequence[Node]) -> frozenset[str]:
    """The names of a stage's inputs from which several ways lead to one node; ``nodes`` has parents first."""
    ways: dict[Node, Counter[str]] = {}
    shared: set[str] = set()
    for node in nodes:
        found = Counter(_entered(node))
        for parent in node.parents:
            found.update(ways[parent])
        ways[node] = found
        shared.update(name for name, count in found.items() if count > 1)
    return frozenset(shared)


def _entered(node: Node) -> list[str]:
    if node.reads is not None:
        return [str(node.name)]
    return [topic.name for topic in node.topics]
