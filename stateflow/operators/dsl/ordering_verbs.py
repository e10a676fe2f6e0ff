"""Verbs of a keyed stream that see to the order of its records, and to those that come twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from stateflow.callbacks import checked, checked_or_none, checked_pick
from stateflow.codec.infer import codec_or_none, result_type
from stateflow.codec.structured import MsgPack, Plain
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.classes.every import Every
from stateflow.operators.order.dedup import dedup_node
from stateflow.operators.order.in_order import OrderRules, in_order_node
from stateflow.operators.order.inputs_in_order import inputs_in_order
from stateflow.operators.stateful.limits import TimeLimit
from stateflow.operators.stateful.suppress_step import suppress_node
from stateflow.operators.stateful.top_step import TopRules, top_node
from stateflow.operators.steps.error_policy import Fail, LatePolicy, Policy, Skip
from stateflow.operators.steps.fields import Pick, picker
from stateflow.operators.topology.graph import Graph, Node

if TYPE_CHECKING:
    from stateflow.operators.dsl.stream import Stream

K = TypeVar("K")
V = TypeVar("V")

FAIL = Fail()
SKIP = Skip()


Order = Literal["arrival", "event-time"]
"""How an operator is given the records of a key: as they come, or sorted by event time."""


class OrderingVerbs(Generic[K, V]):
    """The part of ``Stream`` that sorts, ranks, and leaves out duplicates."""

    _graph: Graph
    _node: Node

    def in_order(
        self,
        *,
        name: str,
        grace: timedelta = timedelta(0),
        tie_break: Callable[[V], Any] | None = None,
        late: LatePolicy = SKIP,
        on_error: Policy = FAIL,
    ) -> Stream[K, V]:
        """The records of each key in the order of event time, whatever order they came in.

        A record waits, in the store ``<name>-waiting``, until event time is more than ``grace`` past it. Records of
        one time are passed on by the ``tie_break``, the smaller first, and then as they came. One that is further
        behind than the grace is *late*, counted and given to ``late``. Steps behind learn of event time later by the
        grace. The stream must be keyed.
        """
        checked_or_none(tie_break, "tie_break of in_order", name)
        grace_ms = declared_ms(f"grace of {name!r}", grace)
        if grace_ms < 0:
            raise GraphError(f"The grace of {name!r} is negative.", action="Give 0 or more.")
        rules = OrderRules(name, grace_ms, tie_break, late)
        return self._stream_of(in_order_node(self._graph, self._node, rules, on_error))

    def dedup(
        self, *, name: str, within: timedelta, by: Pick | None = None, on_error: Policy = FAIL
    ) -> Stream[K, V]:
        """The stream without duplicates: records of a key and an identity that was passed on less than ``within`` ago.

        ``by`` is the identity, a function of the value or a field's name; without it the whole value. How long ago
        is told by event time, so a record that comes again after ``within`` is passed on again. Identities are kept
        in the store ``<name>-seen``; duplicates are counted (``duplicate_records_total``). The stream must be keyed.
        """
        if declared_ms(f"within of {name!r}", within) < 1:
            raise GraphError(f"{name!r} remembers nothing.", action="Give within=… of at least 1 ms.")
        if by is None:
            identity: tuple[Callable[[Any], Any], Any] = (_itself, (self._node.value or Plain).for_keys())
        else:
            pick = picker(checked_pick(by, "by of dedup", name))
            identity = pick, (codec_or_none(result_type(pick), "msgpack") or MsgPack).for_keys()
        return self._stream_of(dedup_node(self._graph, self._node, name, identity, within, on_error))

    def suppress(self, until: Every | TimeLimit, *, name: str, on_error: Policy = FAIL) -> Stream[K, V]:
        """The newest record of each key at each tick of an interval, or so long after the first that was held back.

        For results that change faster than anybody needs them: ``stream.count(name=…).suppress(sf.Every(…), name=…)``.
        With ``sf.Every`` a row's time is its tick; by the clock, event time as far as it had come. With
        ``sf.TimeLimit``, which may be bounded, it is the record's own. What is held is kept in the store
        ``<name>-held``. A deletion is told in its turn. The stream must be keyed; windows have ``emit=…`` for this.
        """
        return self._stream_of(suppress_node(self._graph, self._node, name, until, on_error))

    def top(
        self, n: int, *, name: str, by: Pick, item: Pick, on_error: Policy = FAIL
    ) -> Stream[K, list[list[Any]]]:
        """The ``n`` items of each key with the largest scores, ``[item, score]``, whenever they change.

        ``item`` is what a record is about, text or an integer; ``by`` its score from now on, a number, which may rise
        and fall, or None for an item that has none any more. Integers and floats are compared exactly, equal ones by
        item, the smaller first. All items are kept, in the stores ``<name>-scores`` and ``<name>-ranks``; where scores
        only grow, the aggregate ``sf.top_k`` keeps the first ones alone. The stream must be keyed.
        """
        rules = TopRules(
            n, picker(checked_pick(by, "by of top", name)), picker(checked_pick(item, "item of top", name))
        )
        found: Any = self._stream_of(top_node(self._graph, self._node, rules, name, on_error))
        ranked: Stream[K, list[list[Any]]] = found
        return ranked

    def _stream_of(self, node: Node) -> Stream[K, V]:
        from stateflow.operators.dsl.stream import Stream  # which is this, and more

        return Stream(self._graph, node)


def _itself(value: Any) -> Any:
    return value


def order_before(
    stream: Stream[K, V], name: str, order: Order, tie_break: Callable[[V], Any] | None, on_error: Policy
) -> Stream[K, V]:
    """What an operator reads: the stream, or the stream in order. Raises ``GraphError`` for an unknown word."""
    if not _is_sorted(name, order, has_tie_break=tie_break is not None):
        return stream
    return stream.in_order(name=f"{name}-order", tie_break=tie_break, on_error=on_error)


def order_between(
    graph: Graph,
    name: str,
    order: Order,
    tie_breaks: Mapping[str, Callable[[Any], Any] | None],
    on_error: Policy,
) -> Callable[[Mapping[str, Node]], Node] | None:
    """What stands between the inputs of an operator and the operator; None where they come as they come.

    ``tie_breaks`` by handler. Raises ``GraphError`` for an unknown word, and for tie-breaks of some inputs alone.
    """
    given = {handler: tie_break for handler, tie_break in tie_breaks.items() if tie_break is not None}
    for tie_break in given.values():
        checked(tie_break, "tie_break of the operator", name)
    if not _is_sorted(name, order, has_tie_break=bool(given)):
        return None
    return lambda ports: inputs_in_order(graph, ports, name, given, on_error)


def _is_sorted(name: str, order: Order, *, has_tie_break: bool) -> bool:
    if order not in ("arrival", "event-time"):
        raise GraphError(
            f"The operator {name!r} is to read in the order {order!r}.",
            action='Write order="event-time", or leave it out.',
        )
    if order == "arrival" and has_tie_break:
        raise GraphError(
            f"The operator {name!r} has a tie-break, and reads records as they come.",
            action='Write order="event-time", or leave the tie-break out.',
        )
    return order == "event-time"
