"""Nodes of the stateless verbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for, codec_or_none, result_type
from stateflow.codec.scalar import String
from stateflow.codec.structured import Plain
from stateflow.codec.windowed import WindowedCodec, WindowKeyCodec, can_stand_for
from stateflow.errors import GraphError
from stateflow.operators.steps.error_policy import (
    LatePolicy,
    Policy,
    Skip,
    check_late_policy,
    dead_letter_topics,
)
from stateflow.operators.steps.fields import Pick, picker
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topics.future_records import AheadLimit
from stateflow.operators.topics.handover import Handover
from stateflow.operators.topics.rekey_and_sinks import (
    ChoiceStep,
    KeyChoice,
    RekeyStep,
    SinkStep,
)
from stateflow.operators.topics.source_keys import SourceKeys
from stateflow.operators.topics.sources import ReadStep, SourceStep
from stateflow.operators.topics.topic_options import Topic, check_topic
from stateflow.operators.topology.graph import Graph, Keyed, Node
from stateflow.operators.topology.rekeyed import rekeyed

SKIP = Skip()

Declared = Codec[Any] | type[Any] | None
"""A codec, a type to infer it from, or None where nothing was said."""


def _reading(topic: Topic[Any, Any]) -> tuple[object, ...]:
    return topic.key, topic.value, topic.timestamp, topic.max_ahead


def source_node(
    graph: Graph, topics: Sequence[Topic[Any, Any]], keyed: Keyed, on_error: Policy, late: LatePolicy = SKIP
) -> Node:
    """Where records of source topics enter; their codecs must agree."""
    for topic in topics:
        check_topic(topic, "read")
    first = topics[0]
    for topic in topics[1:]:
        if _reading(topic) != _reading(first):
            raise GraphError(
                f"The topics {first.name!r} and {topic.name!r} are one stream but declared differently.",
                action="Declare them with the same codecs, timestamp and max_ahead, or merge two streams.",
            )
    name = "+".join(topic.name for topic in topics)

    check_late_policy(f"The stream of {name!r}", late)

    def make(env: Environment) -> Step:
        guard = env.guard(name, on_error)
        limit = AheadLimit(name, first.max_ahead_ms, late, env, guard)
        keys = SourceKeys(first.key, guard)
        return SourceStep(first.value, first.timestamp, limit, env.context, guard, keys)

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
            outputs=dead_letter_topics(on_error, late),
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
    name: str | None = None,
    has_effect: bool = False,
) -> Node:
    """A step that keeps keys as they are; without a name it is numbered."""
    called = graph.claim("step", graph.numbered(kind) if name is None else name)
    parent = parents[0]
    return graph.add(
        Node(
            kind=kind,
            name=called,
            parents=parents,
            make=lambda env: make(env.guard(called, on_error)),
            key=parent.key,
            value=value,
            keyed=parent.keyed,
            outputs=dead_letter_topics(on_error),
            has_effect=has_effect,
        )
    )


def rekey_nodes(
    graph: Graph,
    parent: Node,
    pick: Pick | Callable[[Any, Any], Any],
    name: str,
    declared: tuple[Declared, Declared],
    on_error: Policy,
    *,
    by_pairs: bool = False,
) -> Node:
    """The end of one stage and the beginning of the next; returns the beginning.

    ``by_pairs``: ``pick`` is a function of the key that a record has and its value.
    """
    key_of: Callable[..., Any] = picker(cast(Pick, pick))
    choose = KeyChoice(key_of, parent.key if by_pairs else None)
    key = (_declared(declared[0]) or codec_or_none(result_type(key_of), "msgpack") or String).for_keys()
    value = _declared(declared[1]) or parent.value or Plain

    def write(env: Environment) -> Step:
        guard = env.guard(name, on_error)
        return RekeyStep(choose, (key, value), Handover(name, env, guard), guard)

    def read(env: Environment) -> Step:
        return ReadStep(value, env.context, env.guard(name, on_error))

    return rekeyed(graph, parent, name, (key, value), (write, read), on_error)


def _declared(declared: Declared) -> Codec[Any] | None:
    return None if declared is None else codec_for(declared, "msgpack")


def sink_node(
    graph: Graph,
    parent: Node,
    topics: Sequence[Topic[Any, Any]],
    on_error: Policy,
    choose: Callable[[Any], Any] | None = None,
) -> Node:
    """Where values leave for a topic; for one of several, by what ``choose`` says of each value."""
    names = tuple(topic.name for topic in topics)
    name = f"to {'+'.join(names)}"
    for topic in topics:
        if isinstance(parent.key, WindowKeyCodec):
            _check_windowed(name, parent.key, topic.key)

    def make(env: Environment) -> Step:
        guard = env.guard(name, on_error)
        sinks = {
            topic.name: SinkStep(topic.name, (parent.key, topic.key), topic.value, env.context, guard)
            for topic in topics
        }
        return sinks[names[0]] if choose is None else ChoiceStep(choose, sinks, guard)

    return graph.add(
        Node(
            kind="to",
            name=name,
            parents=(parent,),
            make=make,
            key=topics[0].key,
            value=topics[0].value,
            keyed="no",
            outputs=(*names, *dead_letter_topics(on_error)),
            sinks=names,
            has_effect=True,
        )
    )


def _check_windowed(name: str, inside: WindowKeyCodec[Any], outside: Codec[Any]) -> None:
    """Raise ``GraphError`` where a window's result would be written under a key that loses the window unseen."""
    if isinstance(outside, WindowKeyCodec):
        if not outside.says_same(inside):
            raise GraphError(
                f"The step {name!r} writes {_windows(inside)} to a topic declared with {_windows(outside)}.",
                action=f"Declare the topic with key={inside!r}: not all of the window is in the bytes of a key.",
            )
    elif not can_stand_for(outside, inside.key):
        raise GraphError(
            f"The step {name!r} writes results of windows, and the topic's key codec {outside!r} has no window.",
            action=f"Declare the topic with key=sf.{inside!r}; or with the inner key alone, {inside.key!r}: then"
            " only a record's timestamp, the window's start, tells the windows of a key apart.",
        )


def _windows(key: WindowKeyCodec[Any]) -> str:
    return f"windows of {key.size_ms} ms" if isinstance(key, WindowedCodec) else repr(key)
