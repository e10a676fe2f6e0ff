"""The items of a key with the largest scores, whichever way these move.

Two maps hold all items of a key: item → score, and rank → item, where a rank is the score, larger ones first, behind
which stands the item. So a change costs a few lookups and a scan of the first ``n``, however many items there are.

The score is written as a float. Of an integer that is none, what the float lacks or exceeds it by stands between it and
the item, behind a byte that puts it before the items of that very float, or behind them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stateflow.codec.ordered import OrderedFloat, OrderedInteger
from stateflow.codec.scalar import Bytes, String
from stateflow.codec.structured import MsgPack
from stateflow.errors import GraphError
from stateflow.operators.classes.operator import Context, Operator, OperatorClass
from stateflow.operators.stateful.stateful import operator_node
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.topology.graph import Graph, Node
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf

_INTEGER, _TEXT = b"i", b"s"
Item = str | int
Ranked = list[list[Any]]
"""``[item, score]``, the largest score first."""


@dataclass(frozen=True, slots=True)
class TopRules:
    """How many of which."""

    count: int
    score_of: Callable[[Any], Any]
    item_of: Callable[[Any], Any]


class Top(Operator[Any, Any, Ranked]):
    """Base of such operators: subclasses declare their state and rules."""

    rules: TopRules
    scores: MapOf[bytes, Any]
    ranks: MapOf[bytes, Any]

    def on_record(self, value: Any, ctx: Context[Ranked]) -> None:
        """An item has a new score, or none any more."""
        entry, score = item_bytes(self.rules.item_of(value)), self.rules.score_of(value)
        rank = None if score is None else _rank(score, entry)
        before, first = self.scores.get(entry), self._first()
        if before is not None:
            self._leave(before, entry)
        if rank is None:
            self.scores.remove(entry)
        else:
            self.scores.put(entry, score)
            self.ranks.put(rank, score)
        now = self._first()
        if now != first:
            ctx.emit(now)

    def _leave(self, score: float, entry: bytes) -> None:
        rank = _rank(score, entry)
        if len(rank) > _SCORE_BYTES + len(entry) and rank not in self.ranks:
            rank = _rank(float(score), entry)  # where former builds put integers that are no floats
        self.ranks.remove(rank)

    def _first(self) -> Ranked:
        found = self.ranks.range(limit=self.rules.count)
        return [[_item(_entry(rank)), score] for rank, score in found]


_SCORE_BYTES = len(OrderedFloat.encode(0.0))
_EXACT_MAX = 1 << sys.float_info.mant_dig
"""Integers up to here are floats, too."""
_LARGER, _SMALLER = b"\x01", b"\xff"
"""Than the float: bytes before and behind those that an item begins with."""
_REST_BYTES = 1 + len(OrderedInteger.encode(0))


def _rank(score: float, entry: bytes) -> bytes:
    """Raises ``EncodeError`` for a score that is no number."""
    if isinstance(score, int) and not -_EXACT_MAX <= score <= _EXACT_MAX:
        rest = int(float(score)) - score
        if rest:
            between = (_LARGER if rest < 0 else _SMALLER) + OrderedInteger.encode(rest)
            return OrderedFloat.encode(-float(score)) + between + entry
    return OrderedFloat.encode(-float(score)) + entry


def _entry(rank: bytes) -> bytes:
    """The item of a rank."""
    found = rank[_SCORE_BYTES:]
    return found[_REST_BYTES:] if found[:1] in (_LARGER, _SMALLER) else found


def item_bytes(item: Any) -> bytes:
    """An item in its order: integers, then text. Raises ``TypeError`` for anything else."""
    if isinstance(item, str):
        return _TEXT + String.encode(item)
    if isinstance(item, int) and not isinstance(item, bool):
        return _INTEGER + OrderedInteger.encode(item)
    raise TypeError(f"an item is text or an integer, not a {type(item).__name__}")


def _item(data: bytes) -> Item:
    codec: Any = String if data[:1] == _TEXT else OrderedInteger
    found: Item = codec.decode(data[1:])
    return found


def top_node(graph: Graph, parent: Node, rules: TopRules, name: str, on_error: Policy) -> Node:
    """The first of all items of each key; added to the graph. Raises ``GraphError`` for none."""
    if rules.count < 1:
        raise GraphError(f"{name!r} tells of the first {rules.count} items.", action="Give n from 1 up.")
    chosen = rules

    class Declared(Top):
        rules = chosen
        scores: MapOf[bytes, Any] = state(codec=MsgPack, key_codec=Bytes)
        ranks: MapOf[bytes, Any] = state(codec=MsgPack, key_codec=Bytes)

    return graph.add(operator_node(graph, parent, OperatorClass(name, Declared), name, on_error))
