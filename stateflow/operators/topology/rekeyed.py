"""Nodes at the border of two stages: one writes rows under new keys, the other reads them."""

from __future__ import annotations

from typing import Any

from stateflow.codec.base import Codec
from stateflow.operators.steps.error_policy import Policy, dead_letter_topics
from stateflow.operators.steps.step import MakeStep
from stateflow.operators.topology.graph import Graph, Node


def rekeyed(
    graph: Graph,
    parent: Node,
    name: str,
    codecs: tuple[Codec[Any], Codec[Any]],
    steps: tuple[MakeStep, MakeStep],
    on_error: Policy,
) -> Node:
    """A step that sends rows under new keys to the next stage, and the one that reads them there; returns that."""
    graph.claim("key_by step", name)
    (key, value), (write, read) = codecs, steps
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
