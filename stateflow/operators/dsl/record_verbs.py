"""Verbs of a stream that see more of a record than its value, and the one that writes it to a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from stateflow.callbacks import checked
from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for, codec_or_none, item_type, result_type
from stateflow.errors import GraphError
from stateflow.operators.dsl.calling_verbs import CallingVerbs
from stateflow.operators.steps.error_policy import Fail, Policy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.headers import HeadersLike
from stateflow.operators.steps.record_steps import (
    FilterPairsStep,
    FlatMapPairsStep,
    MapHeadersStep,
    MapRecordsStep,
    StreamRecord,
)
from stateflow.operators.steps.step import Step
from stateflow.operators.topics.topic_options import Takes, Topic
from stateflow.operators.topology.graph import Node
from stateflow.operators.topology.verbs import rekey_nodes, sink_node, verb_node
from stateflow.record import Headers

if TYPE_CHECKING:
    from stateflow.operators.dsl.stream import Stream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

FAIL = Fail()


class RecordVerbs(CallingVerbs[K, V]):
    """The part of ``Stream`` whose functions are given more than the value, and its way out to topics."""

    def filter_pairs(
        self, predicate: Callable[[K, V], object], *, name: str | None = None, on_error: Policy = FAIL
    ) -> Stream[K, V]:
        """The records for whose key and value the predicate is true."""
        make = partial(FilterPairsStep, checked(predicate, "filter_pairs", name), self._node.key)
        return self._with_step("filter_pairs", make, self._node.value, on_error, name)

    def flat_map_pairs(
        self,
        function: Callable[[K, V], Iterable[V2]],
        *,
        value: Codec[V2] | type[V2] | None = None,
        name: str | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]:
        """Each value replaced by all that the function gives for key and value, in order; the key stays."""
        make = partial(
            FlatMapPairsStep, checked(function, "flat_map_pairs", name, several=True), self._node.key
        )
        codec = _declared_or(value, item_type(result_type(function)))
        return self._with_step("flat_map_pairs", make, codec, on_error, name)

    def map_records(
        self,
        function: Callable[[StreamRecord[K, V]], V2],
        *,
        value: Codec[V2] | type[V2] | None = None,
        name: str | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V2]:
        """Each value replaced by the function's result for the whole record.

        That is its key, value, event time, headers, and topic, partition and offset that it was read from.
        """
        make = partial(MapRecordsStep, checked(function, "map_records", name), self._node.key)
        return self._with_step(
            "map_records", make, _declared_or(value, result_type(function)), on_error, name
        )

    def map_headers(
        self,
        function: Callable[[Headers, V], HeadersLike],
        *,
        name: str | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V]:
        """Each record's headers replaced by what the function gives for them and the value.

        That may be a mapping of names to bytes or text, or pairs, as a name may come twice.
        """
        make = partial(MapHeadersStep, checked(function, "map_headers", name, several=True))
        return self._with_step("map_headers", make, self._node.value, on_error, name)

    @overload
    def key_by_pairs(
        self,
        pick: Callable[[K, V], K2],
        *,
        name: str,
        key: Codec[K2] | type[K2],
        value: Codec[V] | type[V] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K2, V]: ...
    @overload
    def key_by_pairs(
        self,
        pick: Callable[[K, V], K2],
        *,
        name: str,
        value: Codec[V] | type[V] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K2, V]: ...
    def key_by_pairs(
        self,
        pick: Callable[[K, V], Any],
        *,
        name: str,
        key: Codec[Any] | type[Any] | None = None,
        value: Codec[V] | type[V] | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[Any, V]:
        """As ``key_by``, by a function of the key that a record has and its value."""
        chosen = checked(pick, "key_by_pairs", name)
        node = rekey_nodes(self._graph, self._node, chosen, name, (key, value), on_error, by_pairs=True)
        return self._next(node)

    @overload
    def to(self, topic: Takes[V], *, on_error: Policy = FAIL) -> None: ...
    @overload
    def to(
        self,
        topic: Callable[[V], Topic[Any, Any]],
        *,
        among: Sequence[Takes[V]],
        on_error: Policy = FAIL,
    ) -> None: ...
    def to(self, topic: Any, *, among: Sequence[Any] = (), on_error: Policy = FAIL) -> None:
        """Write to a topic, in order, partitioned by key as Kafka's own producers do, with the records' headers.

        ``topic`` is a topic, or a function of the value that gives one of those named by ``among``; any other that it
        gives follows ``on_error``. So does, unless that is to fail, a record that is larger than its topic takes.

        A window's result keeps its window in the key where the topic's key codec is a windowed one
        (``sf.WindowedKey``) or plain bytes. Where it is the inner key's, that is all of the key, and the
        record's timestamp, the window's start, tells the window. Any other is refused with ``GraphError``.
        """
        if isinstance(topic, Topic) == bool(among) or len({each.name for each in among}) < len(among):
            raise GraphError(
                f"The records of {self._node.name!r} are written to {topic!r}, among {list(among)!r}.",
                action="Give one topic; or a function that chooses it, and each topic once as among=(one, other).",
            )
        if among:
            sink_node(self._graph, self._node, among, on_error, checked(topic, "to"))
        else:
            sink_node(self._graph, self._node, (topic,), on_error)

    def _with_step(
        self,
        kind: str,
        make: Callable[[Guard], Step],
        value: Codec[Any] | None,
        on_error: Policy,
        name: str | None,
    ) -> Stream[K, Any]:
        return self._next(verb_node(self._graph, (self._node,), kind, make, value, on_error, name=name))

    def _next(self, node: Node) -> Stream[Any, Any]:
        from stateflow.operators.dsl.stream import Stream  # which is this, and more

        return Stream(self._graph, node)


def _declared_or(declared: Codec[Any] | type[Any] | None, inferred: Any) -> Codec[Any] | None:
    return codec_or_none(inferred, "msgpack") if declared is None else codec_for(declared, "msgpack")
