"""Nodes of aggregates in windows: their stores as the catalog knows them, and how their steps are built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stateflow.catalog.model import StoreEntry, StoreKind
from stateflow.changelog.eventual import Eventual
from stateflow.codec.base import Codec
from stateflow.codec.details import details_of
from stateflow.codec.offset_stamped import OffsetStampedCodec
from stateflow.codec.windowed import CountedCodec, SessionCodec, WindowedCodec
from stateflow.errors import GraphError
from stateflow.operators.aggregates.decoded import accumulators_of
from stateflow.operators.aggregates.eventual import EventualAccumulators
from stateflow.operators.aggregates.stamped_accumulators import StampedAccumulators
from stateflow.operators.stateful.stateful import (
    Stateful,
    checked_ttl,
    filled_by,
    require_routing_key,
    store_node,
)
from stateflow.operators.steps.error_policy import LatePolicy, dead_letter_topics
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.windows.count_step import CountedAccumulators, CountStep, counted_codec
from stateflow.operators.windows.held_windows import held_windows_node
from stateflow.operators.windows.session_step import SessionRules, SessionStep
from stateflow.operators.windows.sliding_step import SlidingRules, SlidingStep
from stateflow.operators.windows.window_step import WindowAggregateStep, WindowRules
from stateflow.operators.windows.windows import (
    Calendar,
    CountWindow,
    Delayed,
    Emission,
    FixedWindow,
    Hopping,
    Session,
    Sliding,
    TimeWindow,
    Tumbling,
)
from stateflow.state.due_order import WindowsByStamp, WindowsByStart


def window_aggregate_node(
    graph: Graph,
    parent: Node,
    spec: Stateful,
    window: TimeWindow,
    emit: Emission,
    late: LatePolicy,
    changelog: Eventual | None = None,
) -> Node:
    """One accumulator per key and window; every change is logged unless ``changelog`` says otherwise."""
    if isinstance(emit, Delayed):
        node = window_aggregate_node(graph, parent, spec, window, "on_update", late, changelog)
        return held_windows_node(graph, node, window, emit, spec)
    require_routing_key(parent, spec.name)
    graph.claim("store", spec.name)
    ttl_ms = checked_ttl(spec)
    if emit == "on_close" and ttl_ms is not None:
        raise GraphError(
            f"The window {spec.name!r} emits on close and has a ttl, but closing drops its state.",
            action="Leave the ttl out, or emit on update.",
        )
    retention_ms = max(window.grace_ms, ttl_ms or 0)
    if isinstance(window, FixedWindow):
        rules = WindowRules(window, emit, late, retention_ms)
        return _fixed_node(parent, spec, rules, changelog)
    if changelog is not None:
        raise GraphError(
            f"The window {spec.name!r} is a {_name_of(window)} and has an eventual changelog.",
            action="Leave changelog= out: only windows that a record's time alone tells can be computed again.",
        )
    if spec.aggregate.merge is None:
        raise GraphError(
            f"The window {spec.name!r} is a {_name_of(window)}, and its aggregate has no merge.",
            action="Give sf.fold(…, merge=…): what two parts of a window, folded apart, are together.",
        )
    if isinstance(window, Session):
        return _session_node(parent, spec, SessionRules(window, emit, late, retention_ms))
    assert isinstance(window, Sliding), "there are no others"
    return _sliding_node(parent, spec, SlidingRules(window, emit, late, retention_ms))


def _fixed_node(parent: Node, spec: Stateful, rules: WindowRules, changelog: Eventual | None) -> Node:
    codec, window = spec.aggregate.codec(), rules.window

    def make(env: Environment) -> Step:
        guard = env.guard(spec.name, spec.on_error)
        if changelog is None:
            accumulators = accumulators_of(spec.aggregate, codec, env.context, spec.name, guard)
        else:
            eventual, store = env.context.eventual(spec.name, changelog), env.context.store(spec.name)
            accumulators = EventualAccumulators(spec.aggregate, codec, store, guard, eventual)
        return WindowAggregateStep(spec.name, rules, accumulators, env.context, guard)

    stored: Codec[object] = codec if changelog is None else OffsetStampedCodec(codec)
    entry = StoreEntry(
        name=spec.name,
        stage="",
        kind="window",
        layout="window",
        key_codec=parent.key.describe(),
        value_codec=stored.describe(),
        changelog_policy="coalesced" if changelog is None else "eventual",
        window_ms=window.longest_ms,
        grace_ms=window.grace_ms,
        retention_ms=rules.retention_ms,
        value_details=details_of(codec),
        filled_by=filled_by(spec.aggregate, _definition(window)),
    )
    outputs = dead_letter_topics(spec.on_error, rules.late)
    key = window.key_codec(parent.key)
    return store_node(parent, spec, make, entry, key, outputs, {spec.name: WindowsByStart})


def count_window_node(
    graph: Graph, parent: Node, spec: Stateful, window: CountWindow, emit: Emission
) -> Node:
    """One accumulator per key and window of records."""
    if isinstance(emit, Delayed):
        node = count_window_node(graph, parent, spec, window, "on_update")
        return held_windows_node(graph, node, window, emit, spec)
    require_routing_key(parent, spec.name)
    graph.claim("store", spec.name)
    if spec.ttl is not None:
        raise GraphError(
            f"The window {spec.name!r} is one of records and has a ttl.",
            action="Leave the ttl out: how many records a key had is kept.",
        )

    def make(env: Environment) -> Step:
        guard, store = env.guard(spec.name, spec.on_error), env.context.store(spec.name)
        return CountStep(CountedAccumulators(spec.aggregate, window, store), window, emit, guard)

    entry = StoreEntry(
        name=spec.name,
        stage="",
        kind="count",
        layout="window",
        key_codec=parent.key.describe(),
        value_codec=counted_codec(spec.aggregate, window).describe(),
        value_details=details_of(spec.aggregate.codec()),
        filled_by=filled_by(spec.aggregate),
    )
    key: CountedCodec[object] = CountedCodec(parent.key, window.size)
    return replace(store_node(parent, spec, make, entry, key, dead_letter_topics(spec.on_error)), merges={})


def _session_node(parent: Node, spec: Stateful, rules: SessionRules) -> Node:
    accumulators = StampedAccumulators(spec.aggregate)

    def make(env: Environment) -> Step:
        guard = env.guard(spec.name, spec.on_error)
        return SessionStep(spec.name, rules, accumulators, env.context, guard)

    entry = _stamped_entry(parent, spec, "session", accumulators, rules.window.gap_ms, rules)
    outputs = dead_letter_topics(spec.on_error, rules.late)
    key: SessionCodec[object] = SessionCodec(parent.key)
    node = store_node(parent, spec, make, entry, key, outputs, {spec.name: WindowsByStamp})
    return replace(node, merges={spec.name: accumulators.value_merge})


def _sliding_node(parent: Node, spec: Stateful, rules: SlidingRules) -> Node:
    accumulators, difference_ms = StampedAccumulators(spec.aggregate), rules.window.difference_ms

    def make(env: Environment) -> Step:
        guard = env.guard(spec.name, spec.on_error)
        return SlidingStep(spec.name, rules, accumulators, env.context, guard)

    entry = _stamped_entry(parent, spec, "sliding", accumulators, difference_ms, rules)
    outputs = dead_letter_topics(spec.on_error, rules.late)
    key: WindowedCodec[object] = WindowedCodec(parent.key, difference_ms)
    node = store_node(parent, spec, make, entry, key, outputs, {spec.name: WindowsByStamp})
    return replace(node, merges={spec.name: accumulators.value_merge})


def _stamped_entry(
    parent: Node,
    spec: Stateful,
    kind: StoreKind,
    accumulators: StampedAccumulators,
    window_ms: int,
    rules: SessionRules | SlidingRules,
) -> StoreEntry:
    return StoreEntry(
        name=spec.name,
        stage="",
        kind=kind,
        layout="window",
        key_codec=parent.key.describe(),
        value_codec=accumulators.stored.describe(),
        window_ms=window_ms,
        grace_ms=rules.window.grace_ms,
        retention_ms=rules.retention_ms,
        value_details=details_of(spec.aggregate.codec()),
        filled_by=filled_by(spec.aggregate),
    )


def _definition(window: FixedWindow) -> dict[str, Any] | None:
    """Where windows begin, as far as their size does not tell: state of other windows is not theirs."""
    match window:
        case Calendar():
            return {"unit": window.unit, "zone": window.zone}
        case Hopping():
            return {"advance_ms": window.advance_ms, "offset_ms": window.offset_ms}
        case Tumbling():
            return {"advance_ms": window.size_ms, "offset_ms": window.offset_ms}
    return None


def _name_of(window: TimeWindow) -> str:
    return "session" if isinstance(window, Session) else "sliding window"
