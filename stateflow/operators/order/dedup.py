"""Records of a key that have come before are left out: each identity is remembered for a while of event time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Boolean, Bytes
from stateflow.errors import ProcessingError
from stateflow.operators.classes.operator import Context, Operator, OperatorClass
from stateflow.operators.stateful.stateful import operator_node
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.topology.graph import Graph, Node
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf

DUPLICATES = "duplicate_records_total"
"""The counter of what was left out."""


def dedup_node(
    graph: Graph,
    parent: Node,
    name: str,
    identity: tuple[Callable[[Any], Any], Codec[Any]],
    within: timedelta,
    on_error: Policy,
) -> Node:
    """A keyed stream without the records whose identity it has passed on not longer ago; added to the graph.

    ``identity`` is what makes two values of a key the same, and how it is written.
    """
    identity_of, codec = identity

    class Dedup(Operator[Any, Any, Any]):
        seen: MapOf[bytes, bool] = state(codec=Boolean, key_codec=Bytes, ttl=within)

        def on_record(self, value: Any, ctx: Context[Any]) -> None:
            found = identity_of(value)
            if found is None:
                raise ProcessingError(
                    "the identity of the record is None.", action="Give dedup a by=… that each record has."
                )
            entry = codec.encode(found)
            if entry in self.seen:
                ctx.count(DUPLICATES)
                return
            self.seen.put(entry, True)
            ctx.emit(value)

    node = operator_node(graph, parent, OperatorClass(name, Dedup), name, on_error)
    return graph.add(replace(node, kind="dedup", value=parent.value))
