"""Nodes of the stateful verbs: their stores as the catalog knows them, and how their steps are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.details import details_of
from stateflow.codec.infer import codec_or_none
from stateflow.codec.timed import TimedCodec
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.operators.aggregates.aggregation import AggregateStep
from stateflow.operators.aggregates.decoded import accumulators_of
from stateflow.operators.aggregates.expiring import ExpiringAccumulators
from stateflow.operators.classes.operator import OperatorClass
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.steps.error_policy import Policy, dead_letter_topics
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.state.declare import StateField
from stateflow.state.due_order import TimersByDue
from stateflow.state.evolution import Rewriter
from stateflow.state.index import IndexFor
from stateflow.state.merging import MergeFor, value_merge


@dataclass(frozen=True, slots=True, kw_only=True)
class Stateful:
    """What every aggregating verb says."""

    kind: str
    name: str
    aggregate: Aggregate[Any, Any, Any]
    ttl: timedelta | None
    on_error: Policy

    @property
    def ttl_ms(self) -> int | None:
        """Time to live, ms; None for ever."""
        return None if self.ttl is None else declared_ms(f"ttl of {self.name!r}", self.ttl)


def require_routing_key(parent: Node, name: str) -> None:
    """Raise ``GraphError`` unless the stream's key is what its stage is partitioned by."""
    if parent.keyed == "routing":
        return
    if parent.keyed == "derived":
        raise GraphError(
            f"The step {name!r} keeps state by a window's key, which its stage is not partitioned by.",
            action="Put key_by(…, name=…) before it.",
        )
    raise GraphError(
        f"The step {name!r} keeps state by key, but its stream has no key of its own.",
        action="Put key_by(…, name=…) before it, or, where producers already key the topic as Kafka's"
        " default partitioner does, say app.stream(topic, co_partitioned=True).",
    )


def aggregate_node(graph: Graph, parent: Node, spec: Stateful) -> Node:
    """One accumulator per key."""
    require_routing_key(parent, spec.name)
    graph.claim("store", spec.name)
    codec = spec.aggregate.codec()
    ttl_ms = checked_ttl(spec)

    def make(env: Environment) -> Step:
        guard = env.guard(spec.name, spec.on_error)
        if ttl_ms is None:
            accumulators = accumulators_of(spec.aggregate, codec, env.context, spec.name, guard)
            return AggregateStep(accumulators, guard)
        store, reached_ms = env.context.store(spec.name), env.context.watermark_ms
        forgetful = ExpiringAccumulators(spec.aggregate, codec, store, guard, ttl_ms, reached_ms)
        return AggregateStep(forgetful, guard)

    entry = StoreEntry(
        name=spec.name,
        stage="",
        kind="value",
        layout="plain",
        key_codec=parent.key.describe(),
        value_codec=(codec if ttl_ms is None else TimedCodec(codec)).describe(),
        retention_ms=ttl_ms,
        value_details=details_of(codec),
        filled_by=filled_by(spec.aggregate),
    )
    return store_node(parent, spec, make, entry, parent.key, dead_letter_topics(spec.on_error))


def filled_by(aggregate: Aggregate[Any, Any, Any], window: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the catalog says of where a store's values come from."""
    said = {"aggregate": aggregate.kind, "window": window}
    return {what: each for what, each in said.items() if each is not None}


def operator_node(graph: Graph, parent: Node, operator: OperatorClass, name: str, on_error: Policy) -> Node:
    """A typed operator."""
    require_routing_key(parent, name)
    graph.claim("operator", name)
    entries = operator.entries(parent.key)
    for entry in entries:
        graph.claim("store", entry.name)

    def make(env: Environment) -> Step:
        return OperatorStep(operator, parent.key, env.context, env.guard(name, on_error))

    return Node(
        kind="process",
        name=name,
        parents=(parent,),
        make=make,
        key=parent.key,
        value=codec_or_none(operator.output_type, "msgpack"),
        keyed=parent.keyed,
        stores=entries,
        indexes=_indexes(operator),
        merges=merges_of(operator.fields),
        rewriters=rewriters_of(operator.fields),
        outputs=dead_letter_topics(on_error),
        has_effect=True,
    )


def merges_of(fields: Sequence[StateField]) -> dict[str, MergeFor]:
    """What makes one value of two in each store of declared states, where that was said."""
    return {field.store: merge for field in fields if (merge := field.merge()) is not None}


def rewriters_of(fields: Sequence[StateField]) -> dict[str, Callable[[StoreEntry], Rewriter]]:
    """What writes the values of each store of declared states by the present schema."""
    return {field.store: field.rewriter for field in fields if field.kind.evolves}


def _indexes(operator: OperatorClass) -> dict[str, IndexFor]:
    indexes: dict[str, IndexFor] = {
        field.store: field.made_index for field in operator.fields if field.options.index
    }
    if operator.timers_store is not None:
        indexes[operator.timers_store] = TimersByDue
    return indexes


def store_node(
    parent: Node,
    spec: Stateful,
    make: Any,
    entry: StoreEntry,
    key: Codec[Any],
    outputs: tuple[str, ...],
    indexes: Mapping[str, IndexFor] = MappingProxyType({}),
) -> Node:
    """The node of an aggregating step with one store; its results have ``key`` as their key's codec."""
    merge = spec.aggregate.merge
    return Node(
        kind=spec.kind,
        name=spec.name,
        parents=(parent,),
        make=make,
        key=key,
        value=codec_or_none(spec.aggregate.result_type, "msgpack"),
        keyed="routing" if key is parent.key else "derived",
        stores=(entry,),
        indexes=indexes,
        merges={} if merge is None else {entry.name: lambda _: value_merge(spec.aggregate.codec(), merge)},
        outputs=outputs,
        has_effect=True,
    )


def checked_ttl(spec: Stateful) -> int | None:
    """Time to live, ms, None for ever; raises ``GraphError`` for one below 1 ms."""
    if spec.ttl_ms is not None and spec.ttl_ms < 1:
        raise GraphError(f"The ttl of {spec.name!r} is below 1 ms.", action="Give a longer one.")
    return spec.ttl_ms
