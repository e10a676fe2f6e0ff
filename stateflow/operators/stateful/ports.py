"""An operator with several inputs: each has a handler of its own, all share the state of the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from stateflow.errors import GraphError
from stateflow.operators.classes.operator import Operator, OperatorClass
from stateflow.operators.stateful.stateful import operator_node
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.steps.step import Environment, PortedStep, Step
from stateflow.operators.topology.copartition import co_partitioned
from stateflow.operators.topology.graph import Graph, Node
from stateflow.record import RecordBatch


class PortStep(Step):
    """One input of an operator: hands rows to it, to be given to this port's handler."""

    def __init__(self, handler: str, *, takes_tombstones: bool) -> None:
        super().__init__()
        self._handler = handler
        self.takes_tombstones = takes_tombstones

    def process(self, batch: RecordBatch) -> None:
        """Hand rows to the operator."""
        for child in self.children:
            assert isinstance(child, PortedStep), "behind a port stands its operator"
            child.process_from(self._handler, batch)


def several_inputs_node(
    graph: Graph,
    operator: type[Operator[Any, Any, Any]],
    inputs: Mapping[str, Node],
    name: str,
    on_error: Policy,
    between: Callable[[Mapping[str, Node]], Node] | None = None,
) -> Node:
    """A typed operator over several streams, given by the names of their handlers; added to the graph.

    ``between`` makes the node that stands between all of its ports, by their handlers, and the operator.
    """
    if not inputs:
        raise GraphError(f"The operator {name!r} has no inputs.", action="Name one stream or more.")
    declared = OperatorClass(name, operator, tuple(inputs))
    found = co_partitioned(graph, name, inputs, on_error)
    ports = {
        handler: port_node(graph, name, handler, node) for handler, node in zip(inputs, found, strict=True)
    }
    parents = tuple(ports.values()) if between is None else (between(ports),)
    node = operator_node(graph, parents[0], declared, name, on_error)
    return graph.add(replace(node, parents=parents))


def port_node(graph: Graph, name: str, handler: str, parent: Node, *, takes_tombstones: bool = True) -> Node:
    """One input of the operator ``name``."""

    def make(_env: Environment) -> Step:
        return PortStep(handler, takes_tombstones=takes_tombstones)

    return graph.add(
        Node(
            kind="port",
            name=f"{name}.{handler}",
            parents=(parent,),
            make=make,
            key=parent.key,
            value=parent.value,
            keyed=parent.keyed,
        )
    )
