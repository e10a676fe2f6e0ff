"""Splitting the graph into stages at its re-key steps.

What is connected without crossing a ``key_by`` runs in one task; so do all steps that read one source
topic, since a topic's partitions are assigned once. Each such part becomes a stage, named after the re-key
step it reads or after its first source topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import NoReturn

import msgspec

from stateflow.catalog.model import StoreEntry
from stateflow.catalog.names import (
    changelog_topic,
    claims_topic,
    control_topic,
    members_topic,
    repartition_topic,
    without_generation,
)
from stateflow.errors import GraphError
from stateflow.operators.topology.event_time_delay import hold_back_ms
from stateflow.operators.topology.graph import Graph, Node, effective
from stateflow.operators.topology.pipeline import StagePlan
from stateflow.operators.topology.topology import Input, Stage, Topology


def split_into_stages(graph: Graph) -> Topology:
    """The stages of a graph, upstream first; raises ``GraphError`` when there are none or they cannot run."""
    needed = effective(graph.nodes)
    nodes = [node for node in graph.nodes if node in needed]
    if not nodes:
        raise GraphError(
            f"The application {graph.app!r} does nothing.",
            action="Read a topic with app.stream(…) and end in .to(topic), .key_by(…) or a stateful step.",
        )
    parts = _connected(nodes)
    names = {id(part[0]): _stage_name(part) for part in parts}
    part_of = {node: part for part in parts for node in part}
    stages = []
    tell_origin = _before_dead_letters(nodes)
    for part in parts:
        entered = {_step_of(node): names[id(part_of[node][0])] for node in _entered(part)}
        stages.append(_stage(part, names[id(part[0])], entered, tell_origin))
    _check_unique(stages)
    _check_outputs(graph.app, stages)
    return Topology(graph.app, _upstream_first(stages))


def _connected(nodes: Sequence[Node]) -> list[list[Node]]:
    """Groups of nodes that must run together, each in the order of the graph."""
    group: dict[object, list[Node]] = {}

    def join(one: object, two: object) -> None:
        merged, other = group[one], group[two]
        if merged is not other:
            merged.extend(other)
            for member in [key for key, members in group.items() if members is other]:
                group[member] = merged

    for node in nodes:
        group[node] = [node]
        for topic in node.topics:
            if topic.name not in group:
                group[topic.name] = group[node]
            join(topic.name, node)
        for parent in node.parents:
            join(parent, node)
    position = {node: index for index, node in enumerate(nodes)}
    distinct = {id(members): members for members in group.values()}.values()
    parts = [sorted(members, key=position.__getitem__) for members in distinct]
    return sorted(parts, key=lambda part: position[part[0]])


def _entered(part: Sequence[Node]) -> list[Node]:
    """The ``key_by`` nodes that a part reads, in the order of the graph; none when it reads topics."""
    rekeys = list(dict.fromkeys(node.reads for node in part if node.reads is not None))
    topics = sorted({topic.name for node in part for topic in node.topics})
    if rekeys and topics:
        raise GraphError(
            f"A merge joins what is partitioned in different ways: {', '.join(map(_step_of, rekeys))} by the"
            f" application's own routing, {', '.join(topics)} by its producers.",
            action="Put key_by(…, name=…) behind the source topic as well, or merge before key_by.",
        )
    return rekeys


def _step_of(node: Node) -> str:
    assert node.rekey is not None, "a stage reads key_by steps only"
    return node.rekey


def _stage_name(part: Sequence[Node]) -> str:
    entered = _entered(part)
    if entered:
        return _step_of(entered[0])
    return next(topic.name for node in part for topic in node.topics)


def _stage(part: Sequence[Node], name: str, entered: Mapping[str, str], tell_origin: Set[str]) -> Stage:
    """``entered`` are the re-key steps that it reads, each with the stage that writes it."""
    rekeys = frozenset(node.rekey for node in part if node.rekey is not None)
    sources = dict.fromkeys(topic.name for node in part for topic in node.topics)
    inputs = [Input(topic) for topic in sources] + [Input(step, stage) for step, stage in entered.items()]
    outputs = dict.fromkeys(topic for node in part for topic in node.outputs)
    stores = [msgspec.structs.replace(store, stage=name) for node in part for store in node.stores]
    _check_eventual(name, stores, reads_one_log=len(entered) == 1)
    return Stage(
        name=name,
        inputs=tuple(inputs),
        stores=tuple(stores),
        outputs=tuple(outputs),
        rekeys=tuple(node.rekey for node in part if node.rekey is not None),
        build=StagePlan(tuple(part), rekeys & tell_origin),
        indexes={name: index for node in part for name, index in node.indexes.items()},
        merges={name: merge for node in part for name, merge in node.merges.items()},
        rewriters={name: rewriter for node in part for name, rewriter in node.rewriters.items()},
        hold_back_ms=hold_back_ms(part),
        shared_inputs=_shared_inputs(part),
        looks_up=tuple(dict.fromkeys(place for node in part for place in node.looks_up)),
    )


def _shared_inputs(nodes: Sequence[Node]) -> frozenset[str]:
    """The names of a stage's inputs from which several ways lead to one node; ``nodes`` has parents first.

    Where a topic is split by ``branch`` and both arms are joined, or is a stream and a table at once, a whole batch
    would take one way before the other: what a step sees would depend on batches. The records of such an input go
    through the stage one by one.
    """
    ways: dict[Node, Counter[str]] = {}
    shared: set[str] = set()
    for node in nodes:
        read = [str(node.name)] if node.reads is not None else [topic.name for topic in node.topics]
        found = Counter(read)
        for parent in node.parents:
            found.update(ways[parent])
        ways[node] = found
        shared.update(name for name, count in found.items() if count > 1)
    return frozenset(shared)


def _before_dead_letters(nodes: Sequence[Node]) -> set[str]:
    """The re-key steps, by name, behind which a step may send its input record to a dead-letter topic."""
    writes: set[Node] = {node for node in nodes if set(node.outputs) - set(node.sinks)}
    found: set[str] = set()
    for node in reversed(nodes):  # each stands behind what it reads
        if node in writes:
            writes.update(node.parents)
            if node.reads is not None:
                writes.add(node.reads)
                found.add(_step_of(node.reads))
    return found


def _check_eventual(stage: str, stores: Sequence[StoreEntry], *, reads_one_log: bool) -> None:
    """Replaying input gives the same state again only if it is one log, and nothing else is changed by it."""
    eventual = [store.name for store in stores if store.changelog_policy == "eventual"]
    if eventual and (len(stores) > 1 or not reads_one_log):
        others = ", ".join(store.name for store in stores if store.name not in eventual[:1])
        raise GraphError(
            f"The window {eventual[0]!r} has an eventual changelog, but its stage {stage!r} "
            + (f"also keeps {others}." if others else "does not read one re-key step alone."),
            action="Put key_by(…, name=…) before the window, and what else keeps state in another stage;"
            " or leave the changelog out.",
        )


def _check_unique(stages: Sequence[Stage]) -> None:
    names = [stage.name for stage in stages]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GraphError(
            f"A re-key step is named like a source topic: {', '.join(twice)}.",
            action="Give key_by(name=…) another name: a stage is named after what it reads.",
        )


def _check_outputs(app: str, stages: Sequence[Stage]) -> None:
    """What is written beside the application's own records, of its state or between its stages, would damage them."""
    own = {control_topic(app): "its control topic", members_topic(app): "its topic of standby members"}
    own[claims_topic(app)] = "the topic of its shared writers"
    for stage in stages:
        own |= {
            changelog_topic(app, store.name): f"the changelog of {store.name!r}" for store in stage.stores
        }
        own |= {repartition_topic(app, step): f"the repartition topic of {step!r}" for step in stage.rekeys}
    for stage in stages:
        for topic in stage.outputs:
            if without_generation(topic) in own:
                raise GraphError(
                    f"The application writes results or dead letters to {topic!r}, {own[without_generation(topic)]}.",
                    action="Choose another topic: what is not written by stateflow there cannot be restored or read.",
                )


def _upstream_first(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    ordered: list[Stage] = []
    waiting = list(stages)
    while waiting:
        known = {None, *(stage.name for stage in ordered)}
        ready = [stage for stage in waiting if all(port.upstream in known for port in stage.inputs)]
        if not ready:
            _refuse_cycle(waiting)
        ordered.extend(ready)
        waiting = [stage for stage in waiting if stage not in ready]
    return tuple(ordered)


def _refuse_cycle(waiting: Sequence[Stage]) -> NoReturn:
    """Of these stages each waits for another one of them, or for itself: what was brought into one belongs in two."""
    among = {stage.name for stage in waiting}
    steps = sorted({port.name for stage in waiting for port in stage.inputs if port.upstream in among})
    raise GraphError(
        f"What comes through {', '.join(steps)} is joined or merged with what it was made of, one stage before.",
        action="Use the earlier one a second time: app.table(topic, name=…) or app.stream(topic) of the same topic"
        " again; or send it through a key_by(…, name=…) of its own first.",
    )


def feeds(graph: Graph, first: Node, second: Node) -> bool:
    """Whether the stage of the second step reads what that of the first sends it, directly or not, or is the same."""
    part_of = {node: part for part in _connected(graph.nodes) for node in part}
    parts: dict[int, Sequence[Node]] = {}
    todo = [part_of[second]]
    while todo:
        part = todo.pop()
        if id(part) not in parts:
            parts[id(part)] = part
            todo += [part_of[node.reads] for node in part if node.reads is not None]
    return id(part_of[first]) in parts
