"""Verbs of an application that begin with several streams, or with a table."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from stateflow.errors import GraphError
from stateflow.operators.error_policy import Fail, LatePolicy, Policy, Skip
from stateflow.operators.graph import Graph
from stateflow.operators.operator import Operator
from stateflow.operators.ports import Port, several_inputs_node
from stateflow.operators.stream import Stream
from stateflow.operators.table import Table
from stateflow.operators.topic_options import Topic
from stateflow.operators.verbs import source_node

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

FAIL = Fail()
SKIP = Skip()


class AppVerbs:
    """The part of ``App`` that makes tables, and operators of several inputs."""

    _graph: Graph

    def table(
        self,
        topic: Topic[K, V],
        *,
        name: str,
        co_partitioned: bool = False,
        history: timedelta | None = None,
        on_error: Policy = FAIL,
        late: LatePolicy = SKIP,
    ) -> Table[K, V]:
        """The newest value of each key of a topic, kept in a store of that name; a record without a value deletes.

        Records go through the re-key step ``<name>-table``, so that the table follows the application's own partitions
        and can be joined with what is keyed there. ``co_partitioned`` says that producers choose the partition by the
        key as Kafka's default partitioner does: it is then kept by theirs, without that step, joined only with
        what is kept so, too, and cannot be repartitioned. ``history`` as for ``to_table``, ``on_error`` and ``late`` as
        for ``stream``.
        """
        node = source_node(self._graph, (topic,), "routing" if co_partitioned else "no", on_error, late)
        return Stream[K, V](self._graph, node).to_table(name=name, history=history, on_error=on_error)

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
