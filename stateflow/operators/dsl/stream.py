"""The fluent face of the graph. A stream is a place in the graph, not data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from stateflow.callbacks import checked, checked_pick
from stateflow.changelog.eventual import Eventual
from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for, codec_or_none, item_type, result_type
from stateflow.errors import GraphError
from stateflow.operators.classes.functional import operator_of
from stateflow.operators.classes.operator import Operator, OperatorClass
from stateflow.operators.dsl.aggregations import Aggregations
from stateflow.operators.dsl.keyed_verbs import KeyedVerbs
from stateflow.operators.dsl.ordering_verbs import Order, OrderingVerbs, order_before
from stateflow.operators.dsl.pattern_verbs import PatternVerbs
from stateflow.operators.dsl.record_verbs import RecordVerbs
from stateflow.operators.stateful.stateful import Stateful, aggregate_node, operator_node
from stateflow.operators.steps.column_functions import Columns
from stateflow.operators.steps.columns import Column, as_column, col
from stateflow.operators.steps.error_policy import Fail, LatePolicy, Policy, Skip
from stateflow.operators.steps.stateless import (
    ArmStep,
    BranchStep,
    FilterStep,
    FlatMapStep,
    MapPairsStep,
    MapStep,
    PeekStep,
)
from stateflow.operators.steps.step import PassStep, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.topology.verbs import rekey_nodes, verb_node
from stateflow.operators.windows.windows import CountWindow, Emission, Window, check_window

if TYPE_CHECKING:
    from stateflow.operators.dsl.windowed_stream import CountedStream, WindowedStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
R = TypeVar("R")

FAIL = Fail()
SKIP = Skip()


class Stream(
    Aggregations[K, V], KeyedVerbs[K, V], OrderingVerbs[K, V], PatternVerbs[K, V], RecordVerbs[K, V]
):
    """Records with keys of type K and values of type V.

    Functions given to the verbs should be pure: a record may be processed again after a crash. ``on_error``
    says what happens to a record on which one raises; the default stops the task with an error that names
    the record. ``name`` is what errors, dead letters and `describe` call a step; those without state are
    numbered where none is given, and may be renamed at any time.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node

    @property
    def has_value_codec(self) -> bool:
        """True when it is known how the values travel."""
        return self._node.value is not None

    # --- stateless --------------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[[V], V2],
        *,
        value: Codec[V2] | type[V2] | None = None,
        name: str | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]:
        """Each value replaced by the function's result.

        ``value`` is the result's codec or type, needed only where a re-key step follows and the function is
        not annotated.
        """
        codec = _codec_of(value, result_type(checked(function, "map", name)))
        return self._verb("map", partial(MapStep, function), codec, on_error, name)

    def select(
        self, *, name: str | None = None, on_error: Policy = FAIL, **columns: Column | str
    ) -> Stream[K, dict[str, Any]]:
        """Each value replaced by a dict of these columns, each a field's name or an expression.

        ``.select(shop="shop", euros=sf.col("cents") / 100)``
        """
        if not columns:
            raise GraphError("A select has no columns.", action='Name one or more: select(shop="shop").')
        parts = {
            column: col(part) if isinstance(part, str) else as_column(part)
            for column, part in columns.items()
        }
        return self._verb(
            "select", partial(MapStep, Columns(parts)), codec_for(dict[str, Any], "msgpack"), on_error, name
        )

    def map_pairs(
        self,
        function: Callable[[K, V], V2],
        *,
        value: Codec[V2] | type[V2] | None = None,
        name: str | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]:
        """Each value replaced by the function's result for key and value; the key stays."""
        make = partial(MapPairsStep, checked(function, "map_pairs", name), self._node.key)
        return self._verb("map_pairs", make, _codec_of(value, result_type(function)), on_error, name)

    def flat_map(
        self,
        function: Callable[[V], Iterable[V2]],
        *,
        value: Codec[V2] | type[V2] | None = None,
        name: str | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]:
        """Each value replaced by all that the function gives for it, in order."""
        codec = _codec_of(value, item_type(result_type(checked(function, "flat_map", name, several=True))))
        return self._verb("flat_map", partial(FlatMapStep, function), codec, on_error, name)

    def filter(
        self, predicate: Callable[[V], object], *, name: str | None = None, on_error: Policy = FAIL
    ) -> Stream[K, V]:
        """The records for which the predicate is true."""
        make = partial(FilterStep, checked(predicate, "filter", name))
        return self._verb("filter", make, self._node.value, on_error, name)

    def peek(
        self, function: Callable[[V], object], *, name: str | None = None, on_error: Policy = FAIL
    ) -> Stream[K, V]:
        """Show each value to a function; the stream stays as it is."""
        make = partial(PeekStep, checked(function, "peek", name))
        return self._verb("peek", make, self._node.value, on_error, name, has_effect=True)

    def branch(
        self, *predicates: Callable[[V], object], name: str | None = None, on_error: Policy = FAIL
    ) -> tuple[Stream[K, V], ...]:
        """A stream per predicate, of the records for which it is the first true one, and one of the rest."""
        if not predicates:
            raise GraphError("A branch has no predicates.", action="Give one or more.")
        for predicate in predicates:
            checked(predicate, "branch", name)
        node = self._verb("branch", partial(BranchStep, predicates), self._node.value, on_error, name)._node
        arms = [
            verb_node(self._graph, (node,), "arm", partial(_arm, index), node.value, FAIL)
            for index in range(len(predicates) + 1)
        ]
        return tuple(Stream(self._graph, arm) for arm in arms)

    def merge(self, *others: Stream[K, V]) -> Stream[K, V]:
        """All records of several streams, which must run in one stage."""
        for other in others:
            if not isinstance(other, Stream):
                raise GraphError(
                    f"The stream {self._node.name!r} is merged with {other!r:.120}, which is no stream.",
                    action="Give streams: app.stream(topic), table.to_stream().",
                )
        nodes = (self._node, *(other._node for other in others))
        for node in nodes[1:]:
            if node.key != self._node.key or node.keyed != self._node.keyed:
                raise GraphError(
                    f"The merged streams {self._node.name!r} and {node.name!r} have different keys.",
                    action="Merge before key_by, or give both the same key codec.",
                )
        value = self._node.value if len({node.value for node in nodes}) == 1 else None
        return Stream(self._graph, verb_node(self._graph, nodes, "merge", _pass_on, value, FAIL))

    @overload
    def key_by(
        self,
        pick: Callable[[V], K2] | str,
        *,
        name: str,
        key: Codec[K2] | type[K2],
        value: Codec[V] | type[V] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K2, V]: ...
    @overload
    def key_by(
        self,
        pick: Callable[[V], K2],
        *,
        name: str,
        value: Codec[V] | type[V] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K2, V]: ...
    @overload
    def key_by(
        self, pick: str, *, name: str, value: Codec[V] | type[V] | None = None, on_error: Policy = FAIL
    ) -> Stream[Any, V]: ...
    def key_by(
        self,
        pick: Callable[[V], Any] | str,
        *,
        name: str,
        key: Codec[Any] | type[Any] | None = None,
        value: Codec[V] | type[V] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[Any, V]:
        """Give each record a new key and bring equal keys together: one stage ends, the next begins.

        Records go through the topic ``<app>-<name>-repartition``. ``pick`` is a function of the value or a
        field's name. ``key`` is the new key's codec or type; without it the function's annotation, else
        text. ``value`` is what the values travel as; without it what is known of them, else plain
        MessagePack.
        """
        chosen = checked_pick(pick, "key_by", name)
        return Stream(self._graph, rekey_nodes(self._graph, self._node, chosen, name, (key, value), on_error))

    # --- stateful ---------------------------------------------------------------------------------------

    @overload
    def window(
        self,
        window: Window,
        *,
        emit: Emission = "on_update",
        late: LatePolicy = SKIP,
        changelog: Eventual | None = None,
    ) -> WindowedStream[K, V]: ...
    @overload
    def window(self, window: CountWindow, *, emit: Emission = "on_update") -> CountedStream[K, V]: ...
    def window(
        self,
        window: Window | CountWindow,
        *,
        emit: Emission = "on_update",
        late: LatePolicy = SKIP,
        changelog: Eventual | None = None,
    ) -> WindowedStream[K, V] | CountedStream[K, V]:
        """Aggregate per key and window.

        ``on_update`` passes on each changed window once per batch; ``on_close`` each window once, when event time has
        passed its end and grace; ``sf.Every(…)`` what has changed at each tick and when it closes, ``sf.TimeLimit(…)``
        so long after the change; ``sf.OnClose(…)`` is bounded. ``late`` says what happens to records of closed
        windows, which are always counted (``late_records_total``).

        Each commit logs every window that it changed. ``sf.Eventual(intensity=…)`` logs a few of them, and a
        restore computes the others again from the input: for stages behind a ``key_by`` that keep nothing else.
        """
        check_window(window, emit, late, changelog)
        from stateflow.operators.dsl.windowed_stream import (
            in_windows,  # its streams aggregate to streams like this
        )

        return in_windows(self._graph, self._node, window, emit, late, changelog)

    @overload
    def process(
        self,
        operator: type[Operator[K, V, R]],
        *,
        name: str,
        order: Order = "arrival",
        tie_break: Callable[[V], Any] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]: ...
    @overload
    def process(
        self,
        operator: Callable[..., None],
        *,
        name: str,
        on_timer: Callable[..., None] | None = None,
        order: Order = "arrival",
        tie_break: Callable[[V], Any] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, Any]: ...
    def process(
        self,
        operator: type[Operator[K, V, R]] | Callable[..., None],
        *,
        name: str,
        on_timer: Callable[..., None] | None = None,
        order: Order = "arrival",
        tie_break: Callable[[V], Any] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, Any]:
        """Run a typed operator: ``on_record`` for each record, with its state and its emissions.

        Or a function of (value, ctx) and states, declared as ``total: Value[int] = state(default=0)``; then
        ``on_timer`` is a function of (name, ctx) and those of the states that it needs. With ``order="event-time"``
        a key's records come in that order, as by ``in_order(name="<name>-order", tie_break=…)``."""
        if not isinstance(operator, type):
            operator = operator_of(operator, on_timer, name)
        elif on_timer is not None:
            raise GraphError(
                f"The operator {name!r} is a class and was given on_timer.",
                action="Write on_timer(self, name, ctx) into the class.",
            )
        parent = order_before(self, name, order, tie_break, on_error).node
        node = operator_node(self._graph, parent, OperatorClass(name, operator), name, on_error)
        return Stream(self._graph, self._graph.add(node))

    def _aggregated(self, spec: Stateful) -> Stream[K, Any]:
        return Stream(self._graph, self._graph.add(aggregate_node(self._graph, self._node, spec)))

    def _value_codec(self) -> Codec[Any] | None:
        return self._node.value

    def _verb(
        self,
        kind: str,
        make: Any,
        value: Codec[Any] | None,
        on_error: Policy,
        name: str | None,
        *,
        has_effect: bool = False,
    ) -> Stream[K, Any]:
        parents = (self._node,)
        node = verb_node(self._graph, parents, kind, make, value, on_error, name=name, has_effect=has_effect)
        return Stream(self._graph, node)


def _codec_of(declared: Codec[Any] | type[Any] | None, inferred: Any) -> Codec[Any] | None:
    return codec_or_none(inferred, "msgpack") if declared is None else codec_for(declared, "msgpack")


def _arm(index: int, _guard: object) -> Step:
    return ArmStep(index)


def _pass_on(_guard: object) -> Step:
    return PassStep()
