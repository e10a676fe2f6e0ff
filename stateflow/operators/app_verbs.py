"""Verbs of an application that begin with several streams, or with a table."""

from __future__ import annotations

from typing import Any, TypeVar

from stateflow.errors import GraphError
from stateflow.operators.error_policy import Fail, Policy
from stateflow.operators.graph import Graph
from stateflow.operators.operator import Operator
from stateflow.operators.ports import Port, several_inputs_node
from stateflow.operators.stream import Stream

K = TypeVar("K")
R = TypeVar("R")

FAIL = Fail()


class AppVerbs:
    """The part of ``App`` that makes operators of several inputs."""

    _graph: Graph

    def process(
        self, operator: type[Operator[K, Any, R]], *inputs: Port[K, R], name: str, on_error: Policy = FAIL
    ) -> Stream[K, R]:
        """Run an operator over several streams: ``app.process(Match, sf.port(orders, Match.on_order), …, name=…)``.

        Each stream is given to a method of its own; all share the state of the key, and event time is the least of the
        inputs'. A stream that is not partitioned by the application goes through the re-key step ``<name>-<method>``,
        under the key it has. Raises ``GraphError`` for keys that are written differently.
        """
        nodes = {port.handler: port.stream.node for port in inputs}
        if len(nodes) < len(inputs):
            raise GraphError(
                f"Two inputs of {name!r} have the same handler.",
                action="Merge the streams, or give each a method of its own.",
            )
        return Stream(self._graph, several_inputs_node(self._graph, operator, nodes, name, on_error))
