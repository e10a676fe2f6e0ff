"""The verb of a keyed stream that finds patterns in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from stateflow.callbacks import checked
from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for, codec_or_none, result_type
from stateflow.errors import GraphError
from stateflow.operators.order.in_order import OrderRules, in_order_node
from stateflow.operators.patterns.match import Match
from stateflow.operators.patterns.match_step import MatchRules, match_node
from stateflow.operators.patterns.patterns import AfterMatch, Pattern, SkipTo, checked_after
from stateflow.operators.steps.error_policy import Fail, Policy, Skip
from stateflow.operators.steps.stateless import MapStep
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.topology.verbs import verb_node

if TYPE_CHECKING:
    from stateflow.operators.dsl.stream import Stream

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

FAIL = Fail()
SKIP = Skip()


class PatternVerbs(Generic[K, V]):
    """The part of ``Stream`` that finds patterns."""

    _graph: Graph
    _node: Node

    def match(
        self,
        pattern: Pattern[V],
        function: Callable[[Match[V]], R],
        *,
        name: str,
        after: AfterMatch | SkipTo = "past-last",
        value: Codec[R] | type[R] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]:
        """The function's result for each match of a pattern in the records of a key, taken in the order of event time.

        Each record that fits the first step begins a match, which comes to one result at most: the preferred of the
        ways in which it reaches its end. It is passed on as soon as it is certain; its time is that of the record that
        made it so, or the end of ``within``, counted from its first record. ``after`` says what a match that was found
        leaves to others, those that have begun among them: ``"past-last"``, those that begin behind its last record;
        ``"next"``, all; ``sf.SkipTo(step)``, those that begin no earlier than the first, or last, record of that step.

        A stream that does not come from ``in_order`` is put in order by one without grace, ``<name>-order``. Matches
        that have begun are kept in the store ``<name>-begun``, their records in ``<name>-records``, for ``within`` of
        event time. The result's codec is ``value``, or what the function is annotated with. The stream must be keyed.
        """
        if not isinstance(pattern, Pattern):
            raise GraphError(
                f"{name!r} is to match {pattern!r}, which is no pattern as a whole.",
                action="Give sf.pattern(…).begin(…) … .within(…): within makes it whole.",
            )
        checked(function, "match", name)
        checked_after(pattern, after)
        node = self._node
        if node.kind != "in_order":
            node = in_order_node(self._graph, node, OrderRules(f"{name}-order", 0, None, SKIP), on_error)
        found = match_node(self._graph, node, MatchRules(name, pattern, after), on_error)
        codec = (
            codec_or_none(result_type(function), "msgpack") if value is None else codec_for(value, "msgpack")
        )
        made = verb_node(self._graph, (found,), "map", partial(MapStep, function), codec, on_error)
        return self._stream_of_matches(made)

    def _stream_of_matches(self, node: Node) -> Stream[K, Any]:
        from stateflow.operators.dsl.stream import Stream  # which is this, and more

        return Stream(self._graph, node)
