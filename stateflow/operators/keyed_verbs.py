"""Verbs of a stream that bring it together with others by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from stateflow.operators.error_policy import Fail, Policy
from stateflow.operators.graph import Graph, Node
from stateflow.operators.table_nodes import table_place

if TYPE_CHECKING:
    from stateflow.operators.table import Table

K = TypeVar("K")
V = TypeVar("V")

FAIL = Fail()


class KeyedVerbs(Generic[K, V]):
    """The part of ``Stream`` that joins, and makes tables."""

    _graph: Graph
    _node: Node

    @property
    def node(self) -> Node:
        """Its place in the graph."""
        return self._node

    def to_table(self, *, name: str, on_error: Policy = FAIL) -> Table[K, V]:
        """The newest value of each key, kept in a store of that name.

        Newest is what came last. A stream that is not keyed goes through the re-key step ``<name>-table``, under the
        key it has. Records without a value, where the stream still has them, delete.
        """
        from stateflow.operators.table import Table  # it is made of streams itself

        return Table(self._graph, table_place(self._graph, self._node, name, on_error))
