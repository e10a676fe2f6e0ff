"""Verbs of a stream that bring it together with others by key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from stateflow.callbacks import checked, checked_pick
from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for, codec_or_none, result_type
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.joins.as_of_join import AsOfRules
from stateflow.operators.joins.interval_join import IntervalRules, JoinKind
from stateflow.operators.joins.intervals import Within
from stateflow.operators.joins.join_nodes import as_of_node, interval_join_node, stream_table_node
from stateflow.operators.joins.lookup_join import lookup_join_node
from stateflow.operators.steps.error_policy import Fail, LatePolicy, Policy, Skip
from stateflow.operators.steps.fields import Pick
from stateflow.operators.tables.table_nodes import table_place
from stateflow.operators.topics.lookup_tables import LookupTable
from stateflow.operators.topology.graph import Graph, Node

if TYPE_CHECKING:
    from stateflow.operators.dsl.stream import Stream
    from stateflow.operators.dsl.table import Table

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
R = TypeVar("R")

FAIL = Fail()
SKIP = Skip()


class KeyedVerbs(Generic[K, V]):
    """The part of ``Stream`` that joins, and makes tables.

    A side of a join that is not partitioned by the application goes through the re-key step ``<name>-left`` or
    ``<name>-right``, under the key it has. The result's codec is ``value``, or what the function is annotated with.
    """

    _graph: Graph
    _node: Node

    @property
    def node(self) -> Node:
        """Its place in the graph."""
        return self._node

    def to_table(
        self, *, name: str, history: timedelta | None = None, on_error: Policy = FAIL
    ) -> Table[K, V]:
        """The newest value of each key, kept in a store of that name.

        Newest is what came last. A stream that is not keyed goes through the re-key step ``<name>-table``, under the
        key it has. Records without a value, where the stream still has them, delete.

        With ``history`` the table is *versioned*: newest is what has the latest event time, and streams are joined with
        what held at their records' times, as long before event time as that.
        """
        from stateflow.operators.dsl.table import Table  # it is made of streams itself

        history_ms = None if history is None else declared_ms(f"history of {name!r}", history)
        if history_ms is not None and history_ms < 1:
            raise GraphError(f"The history of {name!r} is below 1 ms.", action="Give a longer one.")
        return Table(self._graph, table_place(self._graph, self._node, name, on_error, history_ms))

    @overload
    def join(
        self,
        other: Table[K, V2],
        function: Callable[[V, V2], R],
        *,
        name: str,
        grace: timedelta | None = None,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: LookupTable[Any, V2],
        function: Callable[[V, V2], R],
        *,
        name: str,
        by: Callable[[V], Any] | str | None = None,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]: ...
    @overload
    def join(
        self,
        other: Stream[K, V2],
        function: Callable[[V, V2], R],
        *,
        name: str,
        within: Within | timedelta,
        late: LatePolicy = SKIP,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]: ...
    def join(
        self, other: Any, function: Callable[[Any, Any], Any], *, name: str, **options: Any
    ) -> Stream[K, Any]:
        """The function's result for each record and its partner; records without one are left out.

        The partner in a table is what it holds for the key when the record is processed; in a versioned one, what it
        held at the record's time. With ``grace`` the record waits until event time is further than that past it, so
        that all changes are there which are not later than the grace. Partners in another stream are its records of
        the same key ``within`` an interval, whichever comes first; the result's time is the later of both. Records
        later than the interval's grace follow ``late``.

        A global or static table is joined by the key that ``by`` picks of the value, a function or a field's name, or
        by the stream's own; the stream need not be keyed. A ``by`` of None finds nothing.
        """
        return self._joined("inner", other, function, name, **options)

    @overload
    def left_join(
        self,
        other: Table[K, V2],
        function: Callable[[V, V2 | None], R],
        *,
        name: str,
        grace: timedelta | None = None,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: LookupTable[Any, V2],
        function: Callable[[V, V2 | None], R],
        *,
        name: str,
        by: Callable[[V], Any] | str | None = None,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]: ...
    @overload
    def left_join(
        self,
        other: Stream[K, V2],
        function: Callable[[V, V2 | None], R],
        *,
        name: str,
        within: Within | timedelta,
        late: LatePolicy = SKIP,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]: ...
    def left_join(
        self, other: Any, function: Callable[[Any, Any], Any], *, name: str, **options: Any
    ) -> Stream[K, Any]:
        """As ``join``; a record without a partner is passed on once, with None in the partner's place.

        With a stream that is when its interval closes: once event time has passed it and the grace.
        """
        return self._joined("left", other, function, name, **options)

    def outer_join(
        self,
        other: Stream[K, V2],
        function: Callable[[V | None, V2 | None], R],
        *,
        name: str,
        within: Within | timedelta,
        late: LatePolicy = SKIP,
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]:
        """As ``left_join``, for records of either stream that have no partner in the other."""
        return self._joined(
            "outer", other, function, name, within=within, late=late, value=value, on_error=on_error
        )

    def _joined(
        self,
        kind: JoinKind,
        other: Table[Any, Any] | Stream[Any, Any] | LookupTable[Any, Any],
        function: Callable[[Any, Any], Any],
        name: str,
        *,
        by: Pick | None = None,
        within: Within | timedelta | None = None,
        grace: timedelta | None = None,
        late: LatePolicy = SKIP,
        value: Codec[Any] | type[Any] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, Any]:
        checked(function, "The join", name)
        codec = (
            codec_or_none(result_type(function), "msgpack") if value is None else codec_for(value, "msgpack")
        )
        if isinstance(other, LookupTable):
            return self._looked_up(other, function, name, by, codec, on_error, within or grace, kind)
        if by is not None:
            raise GraphError(
                f"The join {name!r} is not by the key of its stream.",
                action="Put key_by(…) before it, or use a global table.",
            )
        if not isinstance(other, KeyedVerbs):
            _check_is_table(name, other)
            _check_within(name, within, is_stream=False)
            is_inner, place = kind == "inner", other.place
            if grace is not None:
                waiting = AsOfRules(name, declared_ms(f"grace of {name!r}", grace), is_inner, function)
                return self._stream(as_of_node(self._graph, self._node, place, waiting, codec, on_error))
            return self._stream(
                stream_table_node(
                    self._graph, self._node, place, name, function, codec, on_error, is_inner=is_inner
                )
            )
        interval = _check_within(name, within, is_stream=True)
        rules = IntervalRules(name, interval, kind, function, late)
        return self._stream(interval_join_node(self._graph, (self._node, other.node), rules, codec, on_error))

    def _looked_up(
        self,
        table: LookupTable[Any, Any],
        function: Callable[[Any, Any], Any],
        name: str,
        by: Pick | None,
        value: Codec[Any] | None,
        on_error: Policy,
        time: object,
        kind: JoinKind,
    ) -> Stream[K, Any]:
        if time is not None:
            raise GraphError(
                f"The join {name!r} with a table that every worker has whole knows no times.",
                action="Leave within=… and grace=… out; a versioned table is app.table(…, history=…).",
            )
        is_inner = kind == "inner"
        by = None if by is None else checked_pick(by, "by of the join", name)
        node = lookup_join_node(
            self._graph, self._node, table, name, by, function, value, on_error, is_inner=is_inner
        )
        return self._stream(node)

    def _stream(self, node: Node) -> Stream[K, Any]:
        from stateflow.operators.dsl.stream import Stream  # which is this, and more

        return Stream(self._graph, node)


def _check_is_table(name: str, other: object) -> None:
    from stateflow.operators.dsl.table import Table  # it is made of streams itself

    if not isinstance(other, Table):
        raise GraphError(
            f"The join {name!r} is with {other!r:.120}, which is neither a table nor a stream.",
            action="Make one of a topic: app.table(topic, name=…), app.global_table(topic, name=…), app.stream(topic).",
        )


def _check_within(name: str, within: Within | timedelta | None, *, is_stream: bool) -> Within:
    """The interval of a join; raises ``GraphError`` where it lacks one, or has one with a table."""
    if (within is not None) != is_stream:
        raise GraphError(
            f"The join {name!r} with a stream has no interval."
            if is_stream
            else f"The join {name!r} with a table has an interval.",
            action="Give within=sf.Within(…) to joins of two streams, and to no others.",
        )
    return within if isinstance(within, Within) else Within(within or timedelta(0))
