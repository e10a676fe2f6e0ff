"""The fluent face of tables: for each key the newest value, with what it was before behind every change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from stateflow.callbacks import checked, checked_pick
from stateflow.codec.base import Codec
from stateflow.codec.change import Change, ChangeCodec
from stateflow.codec.infer import codec_for, codec_or_none, result_type
from stateflow.codec.scalar import Integer, String
from stateflow.codec.structured import MsgPackOf, Plain
from stateflow.errors import GraphError
from stateflow.operators.dsl.stream import Stream
from stateflow.operators.joins.foreign_join import (
    ForeignRules,
    Reply,
    Subscription,
    answering_node,
    newest_node,
    subscribing_node,
)
from stateflow.operators.joins.interval_join import JoinKind
from stateflow.operators.joins.join_nodes import table_table_place
from stateflow.operators.joins.table_joins import Pairing
from stateflow.operators.steps.error_policy import Fail, Policy
from stateflow.operators.steps.fields import Pick, picker
from stateflow.operators.steps.guard import remaking
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.tables.table_nodes import (
    TablePlace,
    aggregated_place,
    change_node,
    kept_again,
    regroup_nodes,
    table_place,
)
from stateflow.operators.tables.table_readers import ComputedTable
from stateflow.operators.tables.table_steps import ChangesStep, CurrentStep
from stateflow.operators.topics.topic_options import Takes
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.topology.stages import feeds

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
A = TypeVar("A")
R = TypeVar("R")

FAIL = Fail()


class Table(Generic[K, V]):
    """For each key of type K the newest value of type V.

    It changes with each record that comes, in the order of the log; a record without a value deletes. Every change is
    passed on, with the value before it, so that what is computed of a table follows deletions, too. Functions given to
    the verbs are called for values that are there, never with None, and should be pure: they are called again for the
    value before. ``on_error`` says what happens to a change on which one raises.
    """

    def __init__(self, graph: Graph, place: TablePlace) -> None:
        self._graph = graph
        self._place = place

    @property
    def place(self) -> TablePlace:
        """Its place in the graph."""
        return self._place

    def filter(self, predicate: Callable[[V], object], *, on_error: Policy = FAIL) -> Table[K, V]:
        """The keys whose values fulfil the predicate; one that does so no longer is deleted."""

        checked(predicate, "The table's filter")

        def kept(value: V) -> V | None:
            return value if predicate(value) else None

        return self._computed("filter", kept, self._place.value, on_error)

    def map(
        self,
        function: Callable[[V], V2],
        *,
        value: Codec[V2] | type[V2] | None = None,
        on_error: Policy = FAIL,
    ) -> Table[K, V2]:
        """Each value replaced by the function's result; None for a key that is to be absent.

        ``value`` is the result's codec or type, needed where the function is not annotated and a ``group_by`` or
        another join by key follows.
        """
        codec = _codec(value, result_type(checked(function, "The table's map")))
        return self._computed("map", function, codec, on_error)

    def to_stream(self) -> Stream[K, V]:
        """Each new value as a record; a deletion is a record without a value.

        Output topics and operators are given those, functions of the value are spared them.
        """
        node = change_node(
            self._graph,
            (self._place.node,),
            "to_stream",
            lambda _env, _guard: CurrentStep(),
            self._place.value,
            FAIL,
            is_table=False,
        )
        return Stream(self._graph, node)

    def changes(self) -> Stream[K, Change[V]]:
        """Each change as a record: the value before and the value now, None where there was, or is, none."""
        node = self._place.node
        assert node.value is not None, "the rows of a table have a codec"
        passed_on = change_node(
            self._graph, (node,), "changes", lambda _env, _guard: Step(), node.value, FAIL, is_table=False
        )
        return Stream(self._graph, passed_on)

    def to(self, topic: Takes[V], *, on_error: Policy = FAIL) -> None:
        """Write each new value to a topic, and a tombstone for each deletion."""
        self.to_stream().to(topic, on_error=on_error)

    def join(
        self,
        other: Table[K, V2],
        function: Callable[[V, V2], R],
        *,
        name: str,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Table[K, R]:
        """The keys that both tables have, with the function's result for their values.

        It follows both: a change on either side changes the result, a deletion deletes it. Nothing is kept for it.
        """
        return self._joined("inner", other, function, name, value, on_error)

    def left_join(
        self,
        other: Table[K, V2],
        function: Callable[[V, V2 | None], R],
        *,
        name: str,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Table[K, R]:
        """As ``join``, with every key of this table; None stands for what the other does not have."""
        return self._joined("left", other, function, name, value, on_error)

    def outer_join(
        self,
        other: Table[K, V2],
        function: Callable[[V | None, V2 | None], R],
        *,
        name: str,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Table[K, R]:
        """As ``join``, with every key of either table; None stands for what one does not have."""
        return self._joined("outer", other, function, name, value, on_error)

    def foreign_join(
        self,
        other: Table[K2, V2],
        by: Callable[[V], K2 | None],
        function: Callable[[V, V2], R],
        *,
        name: str,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Table[K, R]:
        """Each row with the row of another table whose key it names: ``by`` gives that key, or None for none.

        The result has this table's keys, those whose partner is there. It follows both tables: a changed row of the
        other one changes every row that names it. It is kept in a store of that name; subscriptions go through the
        re-key steps ``<name>-to-foreign``, ``<name>-back`` and ``<name>-unnamed``.
        """
        return self._foreign(other, by, function, name, value, on_error, is_inner=True)

    def left_foreign_join(
        self,
        other: Table[K2, V2],
        by: Callable[[V], K2 | None],
        function: Callable[[V, V2 | None], R],
        *,
        name: str,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Table[K, R]:
        """As ``foreign_join``, with every row of this table; None stands for a partner that is not there."""
        return self._foreign(other, by, function, name, value, on_error, is_inner=False)

    @overload
    def group_by(
        self,
        pick: Callable[[V], K2] | str,
        *,
        name: str,
        key: Codec[K2] | type[K2],
        on_error: Policy = FAIL,
    ) -> GroupedTable[K2, V]: ...
    @overload
    def group_by(
        self, pick: Callable[[V], K2], *, name: str, on_error: Policy = FAIL
    ) -> GroupedTable[K2, V]: ...
    @overload
    def group_by(self, pick: str, *, name: str, on_error: Policy = FAIL) -> GroupedTable[Any, V]: ...
    def group_by(
        self, pick: Pick, *, name: str, key: Codec[Any] | type[Any] | None = None, on_error: Policy = FAIL
    ) -> GroupedTable[Any, V]:
        """The rows by another key, to be aggregated: one stage ends, the next begins.

        Changes go through the topic ``<app>-<name>-repartition``. ``pick`` is a function of the value or a field's
        name, ``key`` the codec or type of the group; without it the function's annotation, else text.
        """
        picked = picker(checked_pick(pick, "group_by", name))
        inferred = codec_or_none(result_type(picked), "msgpack") or String
        codec = (inferred if key is None else codec_for(key, "msgpack")).for_keys()
        return GroupedTable(self._graph, regroup_nodes(self._graph, self._place, pick, name, codec, on_error))

    def _joined(
        self,
        kind: JoinKind,
        other: Table[Any, Any],
        function: Callable[[Any, Any], Any],
        name: str,
        value: Codec[Any] | type[Any] | None,
        on_error: Policy,
    ) -> Table[K, Any]:
        _check_is_table(name, other)
        codec = _codec(value, result_type(checked(function, "The join", name)))
        pairing = Pairing(kind, function)
        place = table_table_place(self._graph, self._place, other.place, name, pairing, codec, on_error)
        return Table(self._graph, place)

    def _foreign(
        self,
        other: Table[Any, Any],
        by: Callable[[Any], Any],
        function: Callable[[Any, Any], Any],
        name: str,
        value: Codec[Any] | type[Any] | None,
        on_error: Policy,
        *,
        is_inner: bool,
    ) -> Table[K, Any]:
        _check_is_table(name, other)
        checked(by, "by of the foreign join", name)
        checked(function, "The foreign join", name)
        left, right = self._place, other.place
        if feeds(self._graph, right.node, left.node):  # its stage cannot read what comes of itself
            right = kept_again(self._graph, right, other.to_stream().node, f"{name}-others", on_error)
        rules = ForeignRules(
            name=name,
            foreign_key_of=by,
            function=function,
            is_inner=is_inner,
            left=left.value,
            left_key=left.node.key,
            foreign_key=right.node.key,
            result=_codec(value, result_type(function)),
        )
        subscribing = subscribing_node(self._graph, self.changes().node, rules, on_error)
        told: Stream[Any, Any] = Stream(self._graph, subscribing)
        wanted, unnamed = told.branch(lambda each: isinstance(each, Subscription))
        to_foreign = wanted.key_by(
            lambda each: rules.foreign_key.decode(each.foreign),
            name=f"{name}-to-foreign",
            key=rules.foreign_key,
            value=MsgPackOf(Subscription),
        )
        answered: Stream[Any, Reply] = Stream(
            self._graph, answering_node(self._graph, to_foreign.node, right, rules, on_error)
        )
        replies = [
            each.key_by(
                lambda reply: rules.left_key.decode(reply.key),
                name=f"{name}-{step}",
                key=rules.left_key,
                value=MsgPackOf(Reply),
            )
            for step, each in (("back", answered), ("unnamed", unnamed))
        ]
        newest = newest_node(self._graph, replies[0].merge(replies[1]).node, rules)
        return Table(self._graph, table_place(self._graph, newest, name, on_error))

    def _computed(
        self, kind: str, function: Callable[[Any], Any], value: Codec[Any], on_error: Policy
    ) -> Table[K, Any]:
        def make(_env: Environment, guard: Any) -> Step:
            return ChangesStep(function, guard)

        node = change_node(self._graph, (self._place.node,), kind, make, ChangeCodec(value), on_error)
        before = self._place.read
        place = TablePlace(
            node=node,
            value=value,
            read=lambda context: ComputedTable(before(context), remaking(function, on_error)),
            history_ms=self._place.history_ms,
        )
        return Table(self._graph, place)


class GroupedTable(Generic[K, V]):
    """The rows of a table by another key of type K: a change leaves its old group before it enters its new one."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node

    def aggregate(
        self,
        *,
        initial: Callable[[], A] | A,
        add: Callable[[A, V], A],
        remove: Callable[[A, V], A | None],
        name: str,
        value: Codec[A] | type[A] | None = None,
        on_error: Policy = FAIL,
    ) -> Table[K, A]:
        """An accumulator per group, kept under ``name``.

        ``add`` takes the accumulator and a row that has come into the group and returns the new accumulator;
        ``remove`` is given a row that has left it, or its former value, and undoes what ``add`` did; None deletes the
        group. ``initial`` is a function, or a value that cannot be changed. ``value`` is the accumulator's codec or
        type; without it what ``add`` is annotated with, else plain MessagePack.
        """
        checked(add, "add of the aggregate", name)
        checked(remove, "remove of the aggregate", name)
        first: Callable[[], Any] = initial if callable(initial) else lambda: initial
        codec = _codec(value, result_type(add))
        place = aggregated_place(self._graph, self._node, (first, add, remove), name, codec, on_error)
        return Table(self._graph, place)

    def reduce(
        self,
        add: Callable[[V, V], V],
        remove: Callable[[V, V], V | None],
        *,
        name: str,
        on_error: Policy = FAIL,
    ) -> Table[K, V]:
        """Values of a group combined: the first as it is, each further one by ``add``; ``remove`` undoes it."""
        checked(add, "add of the reduce", name)
        checked(remove, "remove of the reduce", name)

        def added(total: V | None, value: V) -> V:
            return value if total is None else add(total, value)

        codec = self._value
        functions = (_nothing, added, remove)
        return Table(self._graph, aggregated_place(self._graph, self._node, functions, name, codec, on_error))

    def count(self, *, name: str, on_error: Policy = FAIL) -> Table[K, int]:
        """Number of rows in each group; a group that has become empty is deleted."""
        functions = (int, _one_more, _one_less)
        place = aggregated_place(self._graph, self._node, functions, name, Integer, on_error)
        return Table(self._graph, place)

    @property
    def _value(self) -> Codec[Any]:
        assert isinstance(self._node.value, ChangeCodec), "the rows of a regrouped table are changes"
        return self._node.value.value


def _check_is_table(name: str, other: object) -> None:
    if isinstance(other, Table):
        return
    if isinstance(other, Stream):
        what = "a stream"
        action = "Join the stream with the table, stream.join(table, …); or make it a table, stream.to_table(name=…)."
    else:
        what, action = f"{other!r:.120}", "Give app.table(topic, name=…), or what was computed of one."
    raise GraphError(f"The join {name!r} of a table is with {what}, not with a table.", action=action)


def _one_more(count: int, _row: object) -> int:
    return count + 1


def _one_less(count: int, _row: object) -> int | None:
    return count - 1 or None


def _nothing() -> None:
    return None


def _codec(declared: Codec[Any] | type[Any] | None, inferred: Any) -> Codec[Any]:
    if declared is not None:
        return codec_for(declared, "msgpack")
    return codec_or_none(inferred, "msgpack") or Plain
