"""Streams in windows: aggregating makes streams of them again."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from stateflow.changelog.eventual import Eventual
from stateflow.codec.base import Codec
from stateflow.codec.windowed import Counted, Windowed
from stateflow.operators.dsl.aggregations import Aggregations
from stateflow.operators.dsl.stream import Stream
from stateflow.operators.stateful.stateful import Stateful
from stateflow.operators.steps.error_policy import LatePolicy
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.windows.late_step import late_node
from stateflow.operators.windows.window_nodes import count_window_node, window_aggregate_node
from stateflow.operators.windows.windows import CountWindow, Emission, TimeWindow

K = TypeVar("K")
V = TypeVar("V")


class WindowedStream(Aggregations[Windowed[K], V], Generic[K, V]):
    """A keyed stream in windows of event time; what is late for them can be asked for, too."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        window: TimeWindow,
        emit: Emission,
        late: LatePolicy,
        changelog: Eventual | None,
    ) -> None:
        self._graph = graph
        self._node = node
        self._rules = (window, emit, late, changelog)

    def late(self) -> Stream[K, V]:
        """Exactly the records that are late for their window, which the aggregates leave out and count.

        Of windows that overlap: late for all of those that they would be in. They keep their keys, values and times. A
        record without a key or an event time is not among them.
        """
        return Stream(self._graph, late_node(self._graph, self._node, self._rules[0]))

    def _aggregated(self, spec: Stateful) -> Stream[Windowed[K], Any]:
        node = window_aggregate_node(self._graph, self._node, spec, *self._rules)
        return Stream(self._graph, self._graph.add(node))

    def _value_codec(self) -> Codec[Any] | None:
        return self._node.value


class CountedStream(Aggregations[Counted[K], V], Generic[K, V]):
    """A keyed stream in windows of so many records each."""

    def __init__(self, graph: Graph, node: Node, window: CountWindow, emit: Emission) -> None:
        self._graph = graph
        self._node = node
        self._window = window
        self._emit: Emission = emit

    def _aggregated(self, spec: Stateful) -> Stream[Counted[K], Any]:
        node = count_window_node(self._graph, self._node, spec, self._window, self._emit)
        return Stream(self._graph, self._graph.add(node))

    def _value_codec(self) -> Codec[Any] | None:
        return self._node.value


def in_windows(
    graph: Graph,
    node: Node,
    window: TimeWindow | CountWindow,
    emit: Emission,
    late: LatePolicy,
    changelog: Eventual | None,
) -> WindowedStream[Any, Any] | CountedStream[Any, Any]:
    """The stream of a node in windows that were checked."""
    if isinstance(window, CountWindow):
        return CountedStream(graph, node, window, emit)
    return WindowedStream(graph, node, window, emit, late, changelog)
