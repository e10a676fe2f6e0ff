"""Bringing equal keys of several streams into one task.

Streams can share a task where their partitions are chosen alike: all by the application's own routing (they stand
behind re-key steps), or all by their producers. What is not partitioned so yet is sent through a re-key step of its
own, under the key that it has.
"""

from __future__ import annotations

from collections.abc import Mapping

from stateflow.codec.optional import OptionalCodec
from stateflow.codec.structured import Plain
from stateflow.errors import GraphError
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topics.handover import Handover
from stateflow.operators.topics.tombstones import KeyedReadStep, RekeyByKeyStep
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.topology.rekeyed import rekeyed


def co_partitioned(graph: Graph, name: str, ports: Mapping[str, Node], on_error: Policy) -> list[Node]:
    """The nodes of the ports, in their order, such that equal keys meet in one task of the step ``name``.

    A stream whose partitions do not fit goes through the re-key step ``<name>-<port>``. Raises ``GraphError`` for keys
    that are written differently, and for a table that is kept by its producers' partitions while others are not.
    """
    nodes = list(ports.values())
    _check_keys(name, nodes)
    if (
        all(node.keyed == "routing" for node in nodes)
        and len({_is_by_producers(node) for node in nodes}) == 1
    ):
        return nodes
    return [
        node
        if _is_routed(node)
        else rekeyed_by_own_key(graph, _movable(name, node), f"{name}-{port}", on_error)
        for port, node in ports.items()
    ]


def rekeyed_by_own_key(graph: Graph, node: Node, name: str, on_error: Policy) -> Node:
    """The same records, tombstones among them, in the partitions that the application's routing gives their keys."""
    value = node.value or Plain
    wire = OptionalCodec(value)

    def write(env: Environment) -> Step:
        guard = env.guard(name, on_error)
        return RekeyByKeyStep(wire, Handover(name, env, guard), guard)

    def read(env: Environment) -> Step:
        return KeyedReadStep(wire, env.context, env.guard(name, on_error))

    return rekeyed(graph, node, name, (node.key, value), (write, read), on_error)


def _check_keys(name: str, nodes: list[Node]) -> None:
    first = nodes[0]
    for node in nodes[1:]:
        if node.key != first.key:
            raise GraphError(
                f"{name!r} brings {first.name!r} and {node.name!r} together, whose keys are written differently:"
                f" {first.key!r} and {node.key!r}.",
                action="Give both the same key codec: app.topic(…, key=…) or key_by(…, key=…).",
            )


def _is_routed(node: Node) -> bool:
    return node.keyed == "routing" and not _is_by_producers(node)


def _is_by_producers(node: Node) -> bool:
    """True where the stage of the node reads source topics."""
    return bool(node.topics) or any(map(_is_by_producers, node.parents))


def _movable(name: str, node: Node) -> Node:
    if node.is_table:
        raise GraphError(
            f"{name!r} brings the table {node.name!r}, which is kept by its producers' partitions, together with"
            " what the application partitions itself.",
            action="Leave co_partitioned=True out where the table is made, so that the application keeps it by its own"
            " partitions; or let all inputs be co_partitioned.",
        )
    return node
