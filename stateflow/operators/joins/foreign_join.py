"""Joins of two tables by a key that stands in the value of one: each row subscribes to the other table's row.

Three stages. The left table's numbers its key's changes and sends each, as a *subscription*, to the foreign key that
it names; where it named another before, that one is told to forget it. The right table's keeps the subscriptions of
each key and answers them, at once and whenever its row changes. The last one, by the left key again, keeps the newest
answer: answers of several tasks come in any order, and one that was made for an older change of the left row is known
by its number and dropped.

A pair that fails and is let go is answered, too: by no result. So what a row has does not depend on which table was
read first, and no other row of the foreign key is undone with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from stateflow.codec.base import Codec
from stateflow.codec.change import Change
from stateflow.codec.structured import MsgPackOf
from stateflow.operators.classes.operator import Context, Operator, OperatorClass
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.joins.interval_join import LEFT, RIGHT
from stateflow.operators.joins.join_nodes import joined_ports
from stateflow.operators.stateful.stateful import operator_node
from stateflow.operators.steps.error_policy import Fail, Policy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.tables.table_nodes import TablePlace
from stateflow.operators.tables.table_readers import TableReader
from stateflow.operators.topology.graph import Graph, Node
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf
from stateflow.state.value import Value


class Subscription(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row of the left table, sent to its foreign key; without a value where it names another by now."""

    foreign: bytes
    key: bytes
    number: int
    value: bytes | None


class Reply(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a change of the left table has come to; None where the result has no such key."""

    key: bytes
    number: int
    value: bytes | None


class Kept(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A subscription as the foreign key keeps it."""

    number: int
    value: bytes


@dataclass(frozen=True, slots=True)
class ForeignRules:
    """What is joined how, and how everything is written."""

    name: str
    foreign_key_of: Callable[[Any], Any]
    function: Callable[[Any, Any], Any]
    is_inner: bool
    left: Codec[Any]
    left_key: Codec[Any]
    foreign_key: Codec[Any]
    result: Codec[Any]

    def joined(self, left: Any, right: Any) -> bytes | None:
        """The result for two values, of which the right one may be missing."""
        if right is None and self.is_inner:
            return None
        found = self.function(left, right)
        return None if found is None else self.result.encode(found)


class Subscribing(Operator[Any, Change[Any], Subscription]):
    """Numbers the changes of a row, and tells the foreign keys that it names and named."""

    rules: ForeignRules
    number: Value[int]
    guard: Guard

    def on_record(self, change: Change[Any], ctx: Context[Any]) -> None:
        """One change of the left table. Of a row that fails nobody is told but who it named before."""
        rules, guard, number = self.rules, self.guard, self.number.get() + 1
        self.number.set(number)
        key = rules.left_key.encode(ctx.key)
        old = guard.remaking(self._foreign)(change.old)
        named = guard.one_of_several(self._foreign, change.new, offset=ctx.offset)
        new = named[0] if named else None
        if old is not None and old != new:
            ctx.emit(Subscription(old, key, number, None))
        if new is not None:
            ctx.emit(Subscription(new, key, number, rules.left.encode(change.new)))
            return
        results: list[bytes | None] = []
        if named and change.new is not None:
            results = guard.one_of_several(rules.joined, change.new, None, offset=ctx.offset)
        ctx.emit(Reply(key, number, results[0] if results else None))

    def _foreign(self, value: Any) -> bytes | None:
        found = None if value is None else self.rules.foreign_key_of(value)
        return None if found is None else self.rules.foreign_key.encode(found)


class Answering(Operator[Any, Any, Reply]):
    """Keeps the subscriptions of a foreign key, and answers them."""

    rules: ForeignRules
    subscriptions: MapOf[bytes, Kept]
    right: TableReader
    key: Any
    guard: Guard

    def on_left(self, wanted: Subscription, ctx: Context[Reply]) -> None:
        """A row of the left table names this key, or does so no longer."""
        if wanted.value is None:
            self.subscriptions.remove(wanted.key)
            return
        kept = Kept(wanted.number, wanted.value)
        self.subscriptions.put(wanted.key, kept)
        found = self.right.get(self.key.key, ctx.timestamp_ms)
        if found is None:
            self._answer(wanted.key, kept, None, ctx.timestamp_ms, ctx)
        else:
            self._answer(wanted.key, kept, found.value, max(ctx.timestamp_ms, found.timestamp_ms), ctx)

    def on_right(self, change: Change[Any], ctx: Context[Reply]) -> None:
        """The row of this key has changed."""
        for key, kept in self.subscriptions.items():
            self._answer(key, kept, change.new, ctx.timestamp_ms, ctx)

    def _answer(self, key: bytes, kept: Kept, right: Any, at_ms: int, ctx: Context[Reply]) -> None:
        results = self.guard.one_of_several(self._joined, kept.value, right, offset=ctx.offset)
        ctx.emit(Reply(key, kept.number, results[0] if results else None), timestamp_ms=at_ms)

    def _joined(self, left: bytes, right: Any) -> bytes | None:
        return self.rules.joined(self.rules.left.decode(left), right)


class Newest(Operator[Any, Reply, Any]):
    """Drops answers to what is not the newest change of the left row."""

    rules: ForeignRules
    number: Value[int]

    def on_record(self, reply: Reply, ctx: Context[Any]) -> None:
        """An answer, from any task."""
        known = self.number.get()
        if reply.number >= known:
            if reply.number > known:
                self.number.set(reply.number)
            ctx.emit(None if reply.value is None else self.rules.result.decode(reply.value))


class SubscribingStep(OperatorStep):
    """The first operator at work."""

    def __init__(
        self, declared: OperatorClass, key_codec: Codec[Any], env: Environment, guard: Guard
    ) -> None:
        super().__init__(declared, key_codec, env.context, guard)
        assert isinstance(self._operator, Subscribing), "it is made for this step"
        self._operator.guard = guard


class AnsweringStep(OperatorStep):
    """The middle operator at work: it reads the right table, which is kept in its own stage."""

    takes_tombstones = False

    def __init__(
        self,
        declared: OperatorClass,
        right: TableReader,
        key_codec: Codec[Any],
        env: Environment,
        guard: Guard,
    ) -> None:
        super().__init__(declared, key_codec, env.context, guard)
        assert isinstance(self._operator, Answering), "it is made for this step"
        self._operator.right, self._operator.key = right, self._scope
        self._operator.guard = guard


def subscribing_node(graph: Graph, changes: Node, rules: ForeignRules, on_error: Policy) -> Node:
    """The first stage's operator, behind the changes of the left table; added to the graph."""
    chosen = rules

    class Declared(Subscribing):
        rules = chosen
        number: Value[int] = state(default=0)

    declared = OperatorClass(f"{rules.name}-left", Declared)
    node = operator_node(graph, changes, declared, declared.name, on_error)

    def make(env: Environment) -> Step:
        return SubscribingStep(declared, changes.key, env, env.guard(declared.name, on_error))

    return graph.add(replace(node, make=make))


def answering_node(
    graph: Graph, subscriptions: Node, right: TablePlace, rules: ForeignRules, on_error: Policy
) -> Node:
    """The middle stage; added to the graph."""
    chosen = rules

    class Declared(Answering):
        rules = chosen
        subscriptions: MapOf[bytes, Kept] = state()

    ports = joined_ports(graph, (subscriptions, right.node), rules.name, on_error)
    declared = OperatorClass(f"{rules.name}-foreign", Declared, (LEFT, RIGHT))
    node = operator_node(graph, ports[0], declared, declared.name, on_error)

    def make(env: Environment) -> Step:
        return AnsweringStep(
            declared, right.read(env.context), ports[0].key, env, env.guard(rules.name, on_error)
        )

    value = MsgPackOf(Reply)
    return graph.add(replace(node, kind="foreign_join", parents=ports, make=make, value=value))


def newest_node(graph: Graph, replies: Node, rules: ForeignRules) -> Node:
    """The last stage's operator; added to the graph. What it is given was made here, so it fails on nothing."""
    chosen = rules

    class Declared(Newest):
        rules = chosen
        number: Value[int] = state(default=0)

    name = f"{rules.name}-newest"
    node = operator_node(graph, replies, OperatorClass(name, Declared), name, Fail())
    return graph.add(replace(node, value=rules.result))
