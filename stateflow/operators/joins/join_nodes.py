"""Nodes of joins: their inputs brought into one task, their stores as the catalog knows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from stateflow.codec.base import Codec
from stateflow.codec.change import ChangeCodec
from stateflow.codec.structured import Plain
from stateflow.errors import GraphError
from stateflow.operators.classes.operator import OperatorClass
from stateflow.operators.joins.as_of_join import AsOfJoinStep, AsOfRules, as_of_operator
from stateflow.operators.joins.interval_join import (
    LEFT,
    RIGHT,
    IntervalJoinStep,
    IntervalRules,
    interval_state,
)
from stateflow.operators.joins.table_joins import (
    JoinedTable,
    OverlappingTablesStep,
    Pairing,
    StreamTableStep,
    TableTableStep,
)
from stateflow.operators.stateful.ports import port_node
from stateflow.operators.stateful.stateful import (
    merges_of,
    operator_node,
    require_routing_key,
    rewriters_of,
)
from stateflow.operators.steps.error_policy import Policy, check_late_policy, dead_letter_topics
from stateflow.operators.steps.guard import remaking
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.tables.table_nodes import TablePlace, kept_place
from stateflow.operators.tables.table_readers import TableReader
from stateflow.operators.topology.copartition import co_partitioned
from stateflow.operators.topology.graph import Graph, Node
from stateflow.state.due_order import EntriesByTime


def interval_join_node(
    graph: Graph,
    sides: tuple[Node, Node],
    rules: IntervalRules,
    value: Codec[Any] | None,
    on_error: Policy,
) -> Node:
    """Two streams joined by their times."""
    check_late_policy(f"The join {rules.name!r}", rules.late)
    ports = joined_ports(graph, sides, rules.name, on_error)
    require_routing_key(ports[0], rules.name)
    graph.claim("operator", rules.name)
    kept = interval_state(rules, sides[0].value or Plain, sides[1].value or Plain)
    first, *others = kept.entries(ports[0].key)
    for entry in (first, *others):
        graph.claim("store", entry.name)

    def make(env: Environment) -> Step:
        guard = env.guard(rules.name, on_error)
        return IntervalJoinStep(kept, rules, ports[0].key, env.context, guard)

    return graph.add(
        Node(
            kind=f"{rules.kind}_join",
            name=rules.name,
            parents=ports,
            make=make,
            key=ports[0].key,
            value=value,
            keyed=ports[0].keyed,
            stores=(msgspec.structs.replace(first, grace_ms=rules.within.delay_ms), *others),
            indexes={kept.left.store: EntriesByTime, kept.right.store: EntriesByTime},
            merges=merges_of(kept.fields),
            rewriters=rewriters_of(kept.fields),
            outputs=dead_letter_topics(on_error, rules.late),
            has_effect=True,
        )
    )


def stream_table_node(
    graph: Graph,
    stream: Node,
    table: TablePlace,
    name: str,
    function: Callable[[Any, Any], Any],
    value: Codec[Any] | None,
    on_error: Policy,
    *,
    is_inner: bool,
) -> Node:
    """A stream with what a table holds."""
    ports = joined_ports(graph, (stream, table.node), name, on_error)

    def make(env: Environment) -> Step:
        reader, guard = table.read(env.context), env.guard(name, on_error)
        is_as_of = table.history_ms is not None
        return StreamTableStep(reader, function, is_inner=is_inner, is_as_of=is_as_of, guard=guard)

    return graph.add(
        _stateless(ports, "inner_join" if is_inner else "left_join", name, make, value, on_error)
    )


def as_of_node(
    graph: Graph,
    stream: Node,
    table: TablePlace,
    rules: AsOfRules,
    value: Codec[Any] | None,
    on_error: Policy,
) -> Node:
    """A stream whose records wait until what the table held at their time is known."""
    if table.history_ms is None or not 0 <= rules.grace_ms < table.history_ms:
        raise GraphError(
            f"The join {rules.name!r} waits {rules.grace_ms} ms for a table that remembers "
            + ("nothing." if table.history_ms is None else f"{table.history_ms} ms."),
            action="Give the table a history=… longer than the join's grace, or leave the grace out.",
        )
    ports = joined_ports(graph, (stream, table.node), rules.name, on_error)
    declared = OperatorClass(rules.name, as_of_operator(rules, stream.value or Plain), (LEFT,))
    node = operator_node(graph, ports[0], declared, rules.name, on_error)

    def make(env: Environment) -> Step:
        guard = env.guard(rules.name, on_error)
        return AsOfJoinStep(declared, rules, table.read(env.context), ports[0].key, env.context, guard)

    return graph.add(_delaying(node, ports, make, value, rules.waits_ms))


def _delaying(
    node: Node,
    ports: tuple[Node, ...],
    make: Callable[[Environment], Step],
    value: Codec[Any] | None,
    delay_ms: int,
) -> Node:
    """An operator's node as that of a join, whose rows lie so far behind event time."""
    first, *others = node.stores
    kept = (msgspec.structs.replace(first, grace_ms=delay_ms), *others)
    return replace(node, kind="join", parents=ports, make=make, value=value, stores=kept)


def table_table_place(
    graph: Graph,
    left: TablePlace,
    right: TablePlace,
    name: str,
    pairing: Pairing,
    value: Codec[Any],
    on_error: Policy,
) -> TablePlace:
    """Two tables as one. Nothing is kept for it, but where both are computed of one table."""
    ports = joined_ports(graph, (left.node, right.node), name, on_error)

    if not tables_before(left.node).isdisjoint(tables_before(right.node)):
        graph.claim("store", name)

        def make_kept(env: Environment) -> Step:
            guard = env.guard(name, on_error)
            joined = JoinedTable(left.read(env.context), right.read(env.context), pairing.joined)
            return OverlappingTablesStep(joined, value, env.context.store(name), guard)

        return kept_place(graph, ports, f"{pairing.kind}_join", name, value, make_kept, on_error)

    def make(env: Environment) -> Step:
        guard = env.guard(name, on_error)
        return TableTableStep(left.read(env.context), right.read(env.context), pairing, guard)

    def read(context: Any) -> TableReader:
        joined = remaking(pairing.joined, on_error)
        return JoinedTable(left.read(context), right.read(context), joined)

    node = _stateless(ports, f"{pairing.kind}_join", name, make, ChangeCodec(value), on_error)
    return TablePlace(node=graph.add(replace(node, is_table=True)), value=value, read=read)


def tables_before(node: Node) -> set[Node]:
    """The tables of its stage that a table is computed of, itself among them."""
    own = {node} if node.is_table else set()
    return own.union(*map(tables_before, node.parents))


def joined_ports(graph: Graph, sides: tuple[Node, Node], name: str, on_error: Policy) -> tuple[Node, ...]:
    """The two inputs of a join, brought into one task; the join's name is taken."""
    graph.claim("join", name)
    found = co_partitioned(graph, name, {"left": sides[0], "right": sides[1]}, on_error)
    return tuple(
        port_node(graph, name, handler, node, takes_tombstones=False)
        for handler, node in zip((LEFT, RIGHT), found, strict=True)
    )


def _stateless(
    ports: tuple[Node, ...],
    kind: str,
    name: str,
    make: Callable[[Environment], Step],
    value: Codec[Any] | None,
    on_error: Policy,
) -> Node:
    return Node(
        kind=kind,
        name=name,
        parents=ports,
        make=make,
        key=ports[0].key,
        value=value,
        keyed=ports[0].keyed,
        outputs=dead_letter_topics(on_error),
    )
