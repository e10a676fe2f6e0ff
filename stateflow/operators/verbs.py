"""Nodes of the stateless verbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for, codec_or_none, result_type
from stateflow.codec.scalar import String
from stateflow.codec.structured import Plain
from stateflow.errors import GraphError
from stateflow.operators.edges import RekeyStep, SinkStep, key_converter
from stateflow.operators.fields import Pick, picker
from stateflow.operators.graph import Graph, Keyed, Node
from stateflow.operators.guard import Guard
from stateflow.operators.policy import Policy, dead_letter_topics
from stateflow.operators.sources import ReadStep, SourceStep
from stateflow.operators.step import Environment, Step
from stateflow.operators.topics import Topic

Declared = Codec[Any] | type[Any] | None
"""A codec, a type to infer it from, or None where nothing was said."""


def source_node(graph: Graph, topics: Sequence[Topic[Any, Any]], keyed: Keyed, on_error: Policy) -> Node:
    """Where records of source topics enter; their codecs must agree."""
    first = topics[0]
    for topic in topics[1:]:
        if (topic.key, topic.value, topic.timestamp) != (first.key, first.value, first.timestamp):
            raise GraphError(
                f"The topics {first.name!r} and {topic.name!r} are one stream but declared differently.",
                action="Declare them with the same codecs and timestamp, or merge two streams.",
            )
    name = "+".join(topic.name for topic in topics)

    def make(env: Environment) -> Step:
        return SourceStep(first.value, first.timestamp, env.context, env.guard(name, on_error))

    return graph.add(
        Node(
            kind="stream",
            name=name,
            parents=(),
            make=make,
            key=first.key,
            value=first.value,
            keyed=keyed,
            topics=tuple(topics),
            outputs=dead_letter_topics(on_error),
        )
    )


def verb_node(
    graph: Graph,
    parents: tuple[Node, ...],
    kind: str,
    make: Callable[[Guard], Step],
    value: Codec[Any] | None,
    on_error: Policy,
    *,
    has_effect: bool = False,
) -> Node:
    """A step that keeps keys as they are."""
    name = graph.numbered(kind)
    parent = parents[0]
    return graph.add(
        Node(
            kind=kind,
            name=name,
            parents=parents,
            make=lambda env: make(env.guard(name, on_error)),
            key=parent.key,
            value=value,
            keyed=parent.keyed,
            outputs=dead_letter_topics(on_error),
            has_effect=has_effect,
        )
    )


def rekey_nodes(
    graph: Graph, parent: Node, pick: Pick, name: str, declared: tuple[Declared, Declared], on_error: Policy
) -> Node:
    """The end of one stage and the beginning of the next; returns the beginning."""
    graph.claim("key_by step", name)
    key_of = picker(pick)
    key = _declared(declared[0]) or codec_or_none(result_type(key_of), "msgpack") or String
    value = _declared(declared[1]) or parent.value or Plain

    def write(env: Environment) -> Step:
        return RekeyStep(name, key_of, (key, value), env.context, env.guard(name, on_error))

    def read(env: Environment) -> Step:
        return ReadStep(value, env.context, env.guard(name, on_error))

    written = graph.add(
        Node(
            kind="key_by",
            name=name,
            parents=(parent,),
            make=write,
            key=key,
            value=value,
            keyed="no",
            rekey=name,
            outputs=dead_letter_topics(on_error),
            has_effect=True,
        )
    )
    return graph.add(
        Node(
            kind="read",
            name=name,
            parents=(),
            make=read,
            key=key,
            value=value,
            keyed="routing",
            reads=written,
        )
    )


def _declared(declared: Declared) -> Codec[Any] | None:
    return None if declared is None else codec_for(declared, "msgpack")


def sink_node(graph: Graph, parent: Node, topic: Topic[Any, Any], on_error: Policy) -> Node:
    """Where values leave for a topic."""
    convert = key_converter(parent.key, topic.key)
    name = f"to {topic.name}"

    def make(env: Environment) -> Step:
        return SinkStep(topic.name, convert, topic.value, env.context, env.guard(name, on_error))

    return graph.add(
        Node(
            kind="to",
            name=name,
            parents=(parent,),
            make=make,
            key=topic.key,
            value=topic.value,
            keyed="no",
            outputs=(topic.name, *dead_letter_topics(on_error)),
            has_effect=True,
        )
    )
