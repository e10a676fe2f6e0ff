"""Records of a key in the order of event time: each waits until none can come any more that belongs before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import msgspec

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Bytes
from stateflow.codec.structured import Plain
from stateflow.operators.classes.operator import Context, OperatorClass
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.order.event_time_buffer import (
    Buffered,
    BufferingInOne,
    BufferingOperator,
    at_own_times,
    last_due_ms,
    time_of_row,
)
from stateflow.operators.stateful.stateful import operator_node
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import LatePolicy, Policy, check_late_policy, dead_letter_topics
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.windows.lateness import GraceCheck
from stateflow.record import RecordBatch
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf


@dataclass(frozen=True, slots=True)
class OrderRules:
    """How long a record waits for those before it, and which of two of one time comes first."""

    name: str
    grace_ms: int
    tie_break: Callable[[Any], Any] | None
    late: LatePolicy

    @property
    def waits_ms(self) -> int:
        """How far event time must have come past a record: past its own time, too, for more may come of that time."""
        return self.grace_ms + 1


class InOrder(BufferingInOne):
    """Base of such operators: passes on a key's records by time, then by the tie-break, then as they came."""

    rules: OrderRules

    def on_record(self, value: Any, ctx: Context[Any]) -> None:
        """Wait."""
        self.keep(value, ctx)

    def release(self, rows: list[Buffered], ctx: Context[Any]) -> None:
        """Those whose time has come, in order."""
        tie_break = self.rules.tie_break
        if tie_break is not None:
            rows = list(tied(rows, {"": tie_break}, self.guard))
        for at_ms, value, headers, _ in rows:
            ctx.emit(value, timestamp_ms=at_ms, headers=headers or None)


def tied(
    rows: list[Buffered], tie_breaks: Mapping[str, Callable[[Any], Any]], guard: Guard
) -> Iterator[Buffered]:
    """Rows by time and the tie-break of their input, without those that have none, or none that can be compared."""
    for _, same in groupby(rows, key=time_of_row):
        ranked = [
            (rank, row) for row in same for rank in guard.one_of_several(tie_breaks[row.port], row.value)
        ]
        try:
            yield from [row for _, row in sorted(ranked, key=_rank)]
        except Exception as error:  # noqa: BLE001 - the policy sees to it
            for _ in ranked:
                guard.one_of_several(_fail, error)


def _rank(ranked: tuple[Any, Buffered]) -> Any:
    return ranked[0]


def _fail(error: Exception) -> None:
    raise error


class InOrderStep(OperatorStep):
    """Such an operator at work: late records are left out before it, and its rows are never late behind it."""

    takes_tombstones = False

    def __init__(
        self, declared: OperatorClass, rules: OrderRules, key: Codec[Any], stage: StageContext, guard: Guard
    ) -> None:
        super().__init__(declared, key, stage, guard)
        assert isinstance(self._operator, BufferingOperator), "it is made for this step"
        self._operator.guard = guard
        self._lateness = GraceCheck(rules.name, rules.grace_ms, rules.late, stage, guard)
        self._waiting = [stage.store(field.store) for field in declared.fields]
        self._waits_ms = rules.waits_ms

    def process(self, batch: RecordBatch) -> None:
        """Keep the rows that are in time."""
        super().process(self._lateness.in_time(batch, self._reached_ms))

    def pending_until_ms(self) -> int:
        """When the last record has waited long enough."""
        return max(last_due_ms(waiting, self._waits_ms) for waiting in self._waiting)

    def _pass_on(self, out: RecordBatch) -> None:
        self.forward(at_own_times(out))


def in_order_node(graph: Graph, parent: Node, rules: OrderRules, on_error: Policy) -> Node:
    """A keyed stream in the order of event time; added to the graph."""
    check_late_policy(f"The order {rules.name!r}", rules.late)
    chosen, codec = rules, (parent.value or Plain).as_state

    class Declared(InOrder):
        rules = chosen
        waits_ms = chosen.waits_ms
        waiting: MapOf[bytes, Any] = state(codec=codec, key_codec=Bytes)

    declared = OperatorClass(rules.name, Declared)

    def make(env: Environment) -> Step:
        return InOrderStep(declared, rules, parent.key, env.context, env.guard(rules.name, on_error))

    return graph.add(replace(ordering_node(graph, parent, declared, rules, on_error), make=make))


def ordering_node(
    graph: Graph, parent: Node, declared: OperatorClass, rules: OrderRules, on_error: Policy
) -> Node:
    """The node of such an operator, whose rows lie as far behind event time as they wait; its step is the caller's."""
    node = operator_node(graph, parent, declared, rules.name, on_error)
    first, *others = node.stores
    stores = (msgspec.structs.replace(first, grace_ms=rules.waits_ms), *others)
    outputs = dead_letter_topics(on_error, rules.late)
    return replace(node, kind="in_order", value=parent.value, stores=stores, outputs=outputs)
