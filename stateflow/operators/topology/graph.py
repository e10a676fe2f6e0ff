"""The graph as it is written down: immutable nodes, each knowing the nodes before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.errors import GraphError
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topics.lookup_tables import LookupPlace
from stateflow.operators.topics.topic_options import Topic
from stateflow.state.evolution import Rewriter
from stateflow.state.index import IndexFor
from stateflow.state.merging import MergeFor

Keyed = Literal["no", "routing", "derived"]
"""Is the key the one that the stage's partitions are chosen by? ``derived``: it was built from that one."""

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,120}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """One step of the graph. ``make`` builds its running form inside a task."""

    kind: str
    """The verb: ``map``, ``count``, ``to`` …"""
    name: str
    """What errors and dead letters call it."""
    parents: tuple[Node, ...]
    make: Callable[[Environment], Step]
    key: Codec[Any]
    value: Codec[Any] | None
    """Codec of the values it passes on, where it is known."""
    keyed: Keyed
    stores: tuple[StoreEntry, ...] = ()
    """Its stores; the stage is filled in when the graph is split into stages."""
    merges: Mapping[str, MergeFor] = field(default_factory=dict)
    """Store name → what makes one value of two, where the application says so."""
    rewriters: Mapping[str, Callable[[StoreEntry], Rewriter]] = field(default_factory=dict)
    """Store name → what writes its values by the present schema."""
    indexes: Mapping[str, IndexFor] = field(default_factory=dict)
    """Store name → its indexes, where it has any."""
    outputs: tuple[str, ...] = ()
    """Topics that it may write to."""
    sinks: tuple[str, ...] = ()
    """Those of them that its results go to; the others are for dead letters."""
    topics: tuple[Topic[Any, Any], ...] = ()
    """Of a source: what it reads."""
    rekey: str | None = None
    """Of a ``key_by``: the step it writes to."""
    reads: Node | None = None
    """Of what follows a ``key_by``: that step."""
    looks_up: tuple[LookupPlace, ...] = ()
    """The tables that each task of its stage has whole."""
    has_effect: bool = False
    """True for a step that does something even if nobody reads its result."""
    is_table: bool = False
    """True for a step whose rows are changes of a table: what a key's value was, and what it is."""

    @property
    def is_source(self) -> bool:
        """True for a node where records enter a stage."""
        return bool(self.topics) or self.reads is not None


class Graph:
    """All nodes of an application in the order they were written."""

    def __init__(self, app: str) -> None:
        self.app = check_name("application", app)
        self.nodes: list[Node] = []
        self._known: set[Node] = set()
        self._names: set[tuple[str, str]] = set()
        self._global_tables: dict[str, LookupPlace] = {}

    def add(self, node: Node) -> Node:
        """Append a node; its parents are in the graph already. Raises ``GraphError`` for those of another one."""
        for parent in node.parents:
            if parent not in self._known:
                raise GraphError(
                    f"The step {node.name!r} of the application {self.app!r} is given {parent.name!r}, which is"
                    " part of another application.",
                    action="Make streams and tables by the App that uses them. What another application computes is"
                    " read from a topic that it writes.",
                )
        self.nodes.append(node)
        self._known.add(node)
        return node

    def claim(self, what: str, name: str) -> str:
        """Take a name for a step; raises ``GraphError`` when it is invalid or taken."""
        check_name(what, name)
        if (what, name) in self._names:
            raise GraphError(
                f"The name {name!r} is used by two {what}s.",
                action="Give each step its own name: topics of stateful and re-key steps are named after them.",
            )
        self._names.add((what, name))
        return name

    def claim_global_table(self, place: LookupPlace) -> None:
        """Note a global table; raises ``GraphError`` where another one of its topic has another bound.

        A worker holds a topic once for all tables of it, so that only one bound can hold.
        """
        before = self._global_tables.setdefault(place.topic, place)
        if before.bytes_max != place.bytes_max:
            raise GraphError(
                f"The global tables {before.name!r} and {place.name!r} of the topic {place.topic!r} have different"
                f" bounds: {before.bytes_max:,} and {place.bytes_max:,} bytes.",
                action="Give both one bytes_max=…, or use one table for both: a worker holds a topic once.",
            )

    def numbered(self, kind: str) -> str:
        """A name for a step that was given none: ``map-3``."""
        number = len(self.nodes)
        while ("step", f"{kind}-{number}") in self._names:
            number += 1
        return f"{kind}-{number}"


def check_name(what: str, name: object) -> str:
    """A name that can be part of a topic's; raises ``GraphError`` for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise GraphError(
            f"{name!r} cannot be the name of a {what}.",
            action="Use 1 to 120 letters, digits, dots, dashes and underscores. Kafka allows topics 249: the names of"
            " tasks, their directories and topics are made of this one and others, and need the rest.",
        )
    return name


def effective(nodes: Iterable[Node]) -> set[Node]:
    """The nodes with an effect, and all that feed them; the others need not run."""
    needed: set[Node] = set()
    todo = [node for node in nodes if node.has_effect]
    while todo:
        node = todo.pop()
        if node not in needed:
            needed.add(node)
            todo.extend(node.parents)
            if node.reads is not None:
                todo.append(node.reads)
    return needed
