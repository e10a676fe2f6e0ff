"""Verbs of an application that begin with several streams, or with a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from stateflow.errors import GraphError
from stateflow.operators.classes.operator import Operator
from stateflow.operators.dsl.ordering_verbs import Order, order_between
from stateflow.operators.dsl.port import Port
from stateflow.operators.dsl.stream import Stream
from stateflow.operators.dsl.table import Table
from stateflow.operators.stateful.ports import several_inputs_node
from stateflow.operators.steps.error_policy import Fail, LatePolicy, Policy, Skip
from stateflow.operators.topics.lookup_tables import GLOBAL_BYTES_MAX, GlobalTable, StaticTable
from stateflow.operators.topics.static_tables import static_table
from stateflow.operators.topics.topic_options import Topic, check_topic
from stateflow.operators.topology.graph import Graph
from stateflow.operators.topology.verbs import source_node

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class SupportsRecords(Protocol):
    """A data frame, as far as it is looked at here."""

    @property
    def columns(self) -> Any:
        """Their names."""
        ...

    def to_dict(self, orient: Any) -> Any:
        """The rows, for ``"records"``."""
        ...


FAIL = Fail()
SKIP = Skip()


class AppVerbs:
    """The part of ``App`` that makes tables, and operators of several inputs."""

    _graph: Graph

    def table(
        self,
        topic: Topic[K, V],
        *,
        name: str,
        co_partitioned: bool = False,
        history: timedelta | None = None,
        on_error: Policy = FAIL,
        late: LatePolicy = SKIP,
    ) -> Table[K, V]:
        """The newest value of each key of a topic, kept in a store of that name; a record without a value deletes.

        Records go through the re-key step ``<name>-table``, so that the table follows the application's own partitions
        and can be joined with what is keyed there. ``co_partitioned`` says that producers choose the partition by the
        key as Kafka's default partitioner does: it is then kept by theirs, without that step, joined only with
        what is kept so, too, and cannot be repartitioned. ``history`` as for ``to_table``, ``on_error`` and ``late`` as
        for ``stream``.
        """
        node = source_node(self._graph, (topic,), "routing" if co_partitioned else "no", on_error, late)
        return Stream[K, V](self._graph, node).to_table(name=name, history=history, on_error=on_error)

    def global_table(
        self, topic: Topic[K, V], *, name: str, bytes_max: int = GLOBAL_BYTES_MAX
    ) -> GlobalTable[K, V]:
        """The newest value of each key of a topic, which each worker reads whole before its first record.

        For joins by any key, without a re-key step: ``stream.join(table, function, name=…, by=…)``. It is followed as
        the topic goes on, in no fixed order with the stream. Kept in memory, ``bytes_max`` of it at most in each worker
        (keys, values and 200 bytes for each), beside what ``memory_bytes`` says; ``GlobalTableTooLarge`` stops a worker
        before that is passed. Several tables of one topic share what a worker holds; raises ``GraphError`` where their
        bounds differ.
        """
        check_topic(topic, "read as a global table")
        table = GlobalTable(topic, self._graph.claim("lookup table", name), bytes_max)
        self._graph.claim_global_table(table.place)
        return table

    @overload
    def static_table(self, data: Mapping[K, V], *, name: str) -> StaticTable[K, V]: ...
    @overload
    def static_table(
        self, data: str | Path | SupportsRecords, *, name: str, key: str
    ) -> StaticTable[Any, Any]: ...
    def static_table(self, data: Any, *, name: str, key: str | None = None) -> StaticTable[Any, Any]:
        """A table that comes with the code, for joins by any key as with ``global_table``.

        ``data`` is a mapping; or rows, each found by its column ``key`` and given as a dict: a ``.csv`` (all text),
        ``.json`` (a list of objects) or ``.parquet`` file, or a pandas frame. It is read now and must not be changed
        after. Its fingerprint is kept in the catalog, and a start with other data warns. Raises ``GraphError`` for
        what cannot be read, two rows of one key, and values that MessagePack cannot express.
        """
        return static_table(data, self._graph.claim("lookup table", name), key)

    def process(
        self,
        operator: type[Operator[K, Any, R]],
        *inputs: Port[K, R],
        name: str,
        order: Order = "arrival",
        on_error: Policy = FAIL,
    ) -> Stream[K, R]:
        """Run an operator over several streams: ``app.process(Match, sf.port(orders, Match.on_order), …, name=…)``.

        Each stream is given to a method of its own; all share the state of the key, and event time is the least of the
        inputs'. A stream that is not partitioned by the application goes through the re-key step ``<name>-<method>``,
        under the key it has. Raises ``GraphError`` for keys that are written differently.

        With ``order="event-time"`` a key's records come in that order, whatever input they are of: each waits in a
        store of its input (``<name>-order-waiting_<method>``) until event time is past it everywhere. Of one time,
        those with the smaller ``tie_break`` of their port come first, then those of the input that is named first here,
        then as they came. One that is behind event time of its source partition is late, counted and left out.
        """
        nodes = {port.handler: port.stream.node for port in inputs}
        if len(nodes) < len(inputs):
            raise GraphError(
                f"Two inputs of {name!r} have the same handler.",
                action="Merge the streams, or give each a method of its own.",
            )
        tie_breaks = {port.handler: port.tie_break for port in inputs}
        between = order_between(self._graph, name, order, tie_breaks, on_error)
        return Stream(self._graph, several_inputs_node(self._graph, operator, nodes, name, on_error, between))
