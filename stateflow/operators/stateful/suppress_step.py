"""The newest record of each key, told at regular intervals or after a time: what comes between replaces what is held.

What is held is state, so nothing of it has to be told early for want of memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.held import HeldCodec
from stateflow.codec.scalar import Bytes
from stateflow.codec.structured import Plain
from stateflow.errors import GraphError
from stateflow.operators.classes.every import Every
from stateflow.operators.classes.operator import Context, Operator, OperatorClass
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.stateful.hold_step import HoldRules, HoldStep, held_entry
from stateflow.operators.stateful.limits import TimeLimit, bounds_of
from stateflow.operators.stateful.stateful import operator_node, require_routing_key
from stateflow.operators.steps.error_policy import Policy, dead_letter_topics
from stateflow.operators.steps.headers import packed, unpacked
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topics.tombstones import forward_sparing
from stateflow.operators.topology.graph import Graph, Node
from stateflow.record import RecordBatch
from stateflow.state.declaration import state
from stateflow.state.due_order import WindowsByStamp
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


def suppress_node(graph: Graph, parent: Node, name: str, until: Every | TimeLimit, on_error: Policy) -> Node:
    """The newest of each key at each tick, or so long after the first that was held; added to the graph."""
    if parent.keyed == "derived":
        raise GraphError(
            f"The step {name!r} keeps state by a window's key, which its stage is not partitioned by.",
            action="Give the window emit=sf.Every(…), sf.TimeLimit(…) or sf.OnClose(…) in its place.",
        )
    if isinstance(until, Every):
        return _at_ticks(graph, parent, name, until, on_error)
    if not isinstance(until, TimeLimit):
        raise GraphError(
            f"The step {name!r} is to hold records back until {until!r}.",
            action="Give sf.Every(interval) or sf.TimeLimit(limit).",
        )
    return _until_limit(graph, parent, name, until, on_error)


def _at_ticks(graph: Graph, parent: Node, name: str, chosen: Every, on_error: Policy) -> Node:
    codec: Codec[Any] = (parent.value or Plain).as_state

    class Declared(Suppressing):
        every = chosen
        held: Value[Any] = state(codec=codec)
        headers: Value[bytes | None] = state(codec=Bytes)

    declared = OperatorClass(name, Declared)
    node = operator_node(graph, parent, declared, name, on_error)

    def make(env: Environment) -> Step:
        return SuppressStep(declared, parent.key, env.context, env.guard(name, on_error))

    return graph.add(replace(node, kind="suppress", make=make, value=parent.value))


def _until_limit(graph: Graph, parent: Node, name: str, until: TimeLimit, on_error: Policy) -> Node:
    """As Kafka Streams' ``untilTimeLimit``: the limit counts from the time of the first record that is held."""
    require_routing_key(parent, name)
    graph.claim("operator", name)
    limit_ms = until.limit_ms
    rules = HoldRules(
        store=graph.claim("store", f"{name}-held"),
        codec=HeldCodec((parent.value or Plain).as_state),
        due_ms=lambda _suffix, time_ms, _event_ms: time_ms + limit_ms,
        bounds=bounds_of(until),
    )

    def make(env: Environment) -> Step:
        return HoldStep(rules, env.context, env.guard(name, on_error))

    return graph.add(
        Node(
            kind="suppress",
            name=name,
            parents=(parent,),
            make=make,
            key=parent.key,
            value=parent.value,
            keyed=parent.keyed,
            stores=(held_entry(rules, parent.key.describe(), limit_ms),),
            indexes={rules.store: WindowsByStamp},
            outputs=dead_letter_topics(on_error),
            has_effect=True,
        )
    )
