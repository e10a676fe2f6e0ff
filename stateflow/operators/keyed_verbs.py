"""Verbs of a stream that bring it together with others by key."""

from __future__ import annotations

from typing import Generic, TypeVar

from stateflow.operators.graph import Graph, Node

K = TypeVar("K")
V = TypeVar("V")


class KeyedVerbs(Generic[K, V]):
    """The part of ``Stream`` that joins, and makes tables."""

    _graph: Graph
    _node: Node

    @property
    def node(self) -> Node:
        """Its place in the graph."""
        return self._node
