"""The newest record of each key, told at regular intervals: what comes between two ticks replaces what is held.

What is held is state, so nothing of it has to be told early for want of memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Bytes
from stateflow.codec.structured import Plain
from stateflow.operators.classes.every import Every
from stateflow.operators.classes.operator import Context, Operator, OperatorClass
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.stateful.stateful import operator_node
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.steps.headers import packed, unpacked
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topics.tombstones import forward_sparing
from stateflow.operators.topology.graph import Graph, Node
from stateflow.record import RecordBatch
from stateflow.state.declare import state
from stateflow.state.value import Value


class Suppressing(Operator[Any, Any, Any]):
    """Base of such operators: subclasses declare their state and interval."""

    held: Value[Any]
    headers: Value[bytes | None]
    """Those of the record that is held, or of the deletion."""

    def on_record(self, value: Any, ctx: Context[Any]) -> None:
        """Hold it in the place of what is held; without a value it is a deletion, which is told, too."""
        if value is None:
            self.held.clear()
        else:
            self.held.set(value)
        self.headers.set(packed(ctx.headers))

    def on_every(self, ctx: Context[Any]) -> None:
        """Tell it."""
        ctx.emit(self.held.get() if self.held.is_set else None, headers=unpacked(self.headers.get() or b""))
        self.held.clear()
        self.headers.clear()


class SuppressStep(OperatorStep):
    """Such an operator at work: deletions go only to the steps that take such."""

    def forward(self, batch: RecordBatch) -> None:
        """Hand rows to every step behind this one that takes them."""
        forward_sparing(self, batch)


def suppress_node(graph: Graph, parent: Node, name: str, chosen: Every, on_error: Policy) -> Node:
    """The newest of each key at each tick; added to the graph."""
    codec: Codec[Any] = parent.value or Plain

    class Declared(Suppressing):
        every = chosen
        held: Value[Any] = state(codec=codec)
        headers: Value[bytes | None] = state(codec=Bytes)

    declared = OperatorClass(name, Declared)
    node = operator_node(graph, parent, declared, name, on_error)

    def make(env: Environment) -> Step:
        return SuppressStep(declared, parent.key, env.context, env.guard(name, on_error))

    return graph.add(replace(node, kind="suppress", make=make, value=parent.value))
