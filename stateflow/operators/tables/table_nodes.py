"""Nodes of tables: their stores as the catalog knows them, and how their steps are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.change import ChangeCodec
from stateflow.codec.details import details_of
from stateflow.codec.faithful import faithful
from stateflow.codec.optional import OptionalCodec
from stateflow.codec.structured import Plain
from stateflow.codec.timed import TimedCodec
from stateflow.operators.steps.error_policy import Policy, dead_letter_topics
from stateflow.operators.steps.fields import Pick, picker
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.step import Environment, MakeStep, Step
from stateflow.operators.tables.table_readers import MakeReader, StoredTable, TableReader
from stateflow.operators.tables.table_steps import AggregateTableStep, RegroupStep, TableStep
from stateflow.operators.tables.versioned_tables import VersionedTable, VersionedTableStep
from stateflow.operators.topics.handover import Handover
from stateflow.operators.topics.sources import ReadStep
from stateflow.operators.topology.copartition import co_partitioned, rekeyed_by_own_key
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.topology.rekeyed import rekeyed
from stateflow.state.versioned import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table in the graph."""

    node: Node
    """Its rows are changes."""
    value: Codec[Any]
    """Codec of its values."""
    read: MakeReader
    history_ms: int | None = None
    """How long before event time it can be asked what it held; None for a table that knows only what it holds."""


def table_place(
    graph: Graph, node: Node, name: str, on_error: Policy, history_ms: int | None = None
) -> TablePlace:
    """A stream's newest values, kept under ``name``; a stream that is not keyed is sent through a re-key step."""
    graph.claim("store", name)
    (parent,) = co_partitioned(graph, name, {"table": node}, on_error)
    value = parent.value or Plain
    if history_ms is not None:
        return _versioned_place(graph, parent, name, value, history_ms, on_error)

    def make(env: Environment) -> Step:
        return TableStep(value, env.context.store(name), env.guard(name, on_error))

    return kept_place(graph, (parent,), "table", name, value, make, on_error)


def kept_again(graph: Graph, table: TablePlace, values: Node, name: str, on_error: Policy) -> TablePlace:
    """A table, of which these are the values, kept in another stage, too, behind a re-key step of that name."""
    moved = rekeyed_by_own_key(graph, values, name, on_error)
    return table_place(graph, moved, name, on_error, table.history_ms)


def aggregated_place(
    graph: Graph,
    parent: Node,
    functions: tuple[Callable[[], Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]],
    name: str,
    value: Codec[Any],
    on_error: Policy,
) -> TablePlace:
    """An accumulator per group of a regrouped table."""
    graph.claim("store", name)

    def make(env: Environment) -> Step:
        guard = env.guard(name, on_error)
        codec = TimedCodec(faithful(value, name, alike=True))
        return AggregateTableStep(functions, codec, env.context.store(name), guard)

    return kept_place(graph, (parent,), "aggregate", name, value, make, on_error)


def kept_place(
    graph: Graph,
    parents: tuple[Node, ...],
    kind: str,
    name: str,
    value: Codec[Any],
    make: MakeStep,
    on_error: Policy,
) -> TablePlace:
    """A table that a step keeps in a store of its name, under the key of its parents."""
    entry = StoreEntry(
        name=name,
        stage="",
        kind="value",
        layout="plain",
        key_codec=parents[0].key.describe(),
        value_codec=TimedCodec(value).describe(),
        value_details=details_of(value),
    )

    def read(context: Any) -> TableReader:
        return StoredTable(context.store(name), TimedCodec(value))

    node = _keeping(parents, kind, entry, value, make, on_error)
    return TablePlace(node=graph.add(node), value=value, read=read)


def _versioned_place(
    graph: Graph, parent: Node, name: str, value: Codec[Any], history_ms: int, on_error: Policy
) -> TablePlace:
    retention = Retention(history_ms=history_ms, max_versions=None, ttl_ms=None)
    entry = StoreEntry(
        name=name,
        stage="",
        kind="versioned",
        layout="prefixed",
        key_codec=parent.key.describe(),
        value_codec=OptionalCodec(value).describe(),
        retention_ms=history_ms,
        value_details=details_of(value),
    )

    def make(env: Environment) -> Step:
        return VersionedTableStep(value, retention, name, env.context, env.guard(name, on_error))

    def read(context: Any) -> TableReader:
        return VersionedTable(context.store(name), value)

    node = _keeping((parent,), "table", entry, value, make, on_error)
    return TablePlace(node=graph.add(node), value=value, read=read, history_ms=history_ms)


def _keeping(
    parents: tuple[Node, ...],
    kind: str,
    entry: StoreEntry,
    value: Codec[Any],
    make: MakeStep,
    on_error: Policy,
) -> Node:
    return Node(
        kind=kind,
        name=entry.name,
        parents=parents,
        make=make,
        key=parents[0].key,
        value=ChangeCodec(value),
        keyed=parents[0].keyed,
        stores=(entry,),
        outputs=dead_letter_topics(on_error),
        has_effect=True,
        is_table=True,
    )


def change_node(
    graph: Graph,
    parents: tuple[Node, ...],
    kind: str,
    make: Callable[[Environment, Guard], Step],
    value: Codec[Any],
    on_error: Policy,
    *,
    is_table: bool = True,
) -> Node:
    """A step behind tables that keeps their keys; ``value`` is the codec of the rows that it passes on."""
    name = graph.numbered(kind)
    return graph.add(
        Node(
            kind=kind,
            name=name,
            parents=parents,
            make=lambda env: make(env, env.guard(name, on_error)),
            key=parents[0].key,
            value=value,
            keyed=parents[0].keyed,
            outputs=dead_letter_topics(on_error),
            is_table=is_table,
        )
    )


def regroup_nodes(
    graph: Graph, table: TablePlace, pick: Pick, name: str, key: Codec[Any], on_error: Policy
) -> Node:
    """The end of one stage and the beginning of the next; returns the beginning, whose rows are changes."""
    key_of, change = picker(pick), ChangeCodec(table.value)

    def write(env: Environment) -> Step:
        guard = env.guard(name, on_error)
        return RegroupStep(key_of, (key, change), Handover(name, env, guard), guard)

    def read(env: Environment) -> Step:
        return ReadStep(change, env.context, env.guard(name, on_error))

    return rekeyed(graph, table.node, name, (key, change), (write, read), on_error)
