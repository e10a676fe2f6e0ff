"""Records of several inputs in one order of event time, before the operator that they are for.

Each input waits in a map of its own, so that its values are written by its own codec. What is released of a key is
sorted over all of them: by time, by the tie-break, by the order in which the inputs were given, and as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from stateflow.codec.optional import OptionalCodec
from stateflow.codec.scalar import Bytes
from stateflow.codec.structured import Plain
from stateflow.errors import GraphError
from stateflow.operators.classes.operator import Context, OperatorClass
from stateflow.operators.order.event_time_buffer import Buffered, BufferingOperator, Waiting, at_own_times
from stateflow.operators.order.in_order import InOrderStep, OrderRules, ordering_node, tied
from stateflow.operators.steps.error_policy import Policy, Skip
from stateflow.operators.steps.rows import picked, with_values
from stateflow.operators.steps.step import Environment, PortedStep, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.record import RecordBatch
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf

_ATTRIBUTE = "waiting_"
TieBreaks = Mapping[str, Callable[[Any], Any]]
"""By handler: which of the records of one time comes first."""


class InputRow(NamedTuple):
    """A value on its way to the handler of its input."""

    handler: str
    value: Any


class InputsInOrder(BufferingOperator):
    """Base of such operators; subclasses declare a map for each input, ``waiting_<handler>``."""

    handlers: tuple[str, ...]
    tie_breaks: TieBreaks
    handler: str
    """Whose records are at work."""

    def places(self) -> dict[str, Waiting]:
        """The maps, in the order of the inputs."""
        return {handler: getattr(self, _ATTRIBUTE + handler) for handler in self.handlers}

    def on_record(self, value: Any, ctx: Context[Any]) -> None:
        """Wait."""
        self.keep_in(getattr(self, _ATTRIBUTE + self.handler), value, ctx)

    def release(self, rows: list[Buffered], ctx: Context[Any]) -> None:
        """Those whose time has come, in order."""
        if self.tie_breaks:
            rows = list(tied(rows, self.tie_breaks, self.guard))
        for at_ms, value, headers, handler in rows:
            ctx.emit(InputRow(handler, value), timestamp_ms=at_ms, headers=headers or None)


class InputsInOrderStep(InOrderStep):
    """Such an operator at work: gives the operator behind it rows of one input after the other."""

    def process_from(self, handler: str, batch: RecordBatch) -> None:
        """Keep the rows of one input that are in time."""
        assert isinstance(self._operator, InputsInOrder), "it is made for this step"
        self._operator.handler = handler
        self.process(batch)

    def _pass_on(self, out: RecordBatch) -> None:
        rows: list[InputRow] = out.values
        behind = with_values(at_own_times(out), [row.value for row in rows])
        for handler, run in groupby(range(len(rows)), key=lambda row: rows[row].handler):
            part = picked(behind, list(run))
            for child in self.children:
                assert isinstance(child, PortedStep), "behind it stands the operator"
                child.process_from(handler, part)


def inputs_in_order(
    graph: Graph, ports: Mapping[str, Node], name: str, tie_breaks: TieBreaks, on_error: Policy
) -> Node:
    """All inputs of an operator in the order of event time, under the names of their handlers; added to the graph.

    Raises ``GraphError`` where some inputs have a tie-break and others have none.
    """
    if tie_breaks and (missing := [handler for handler in ports if handler not in tie_breaks]):
        raise GraphError(
            f"The inputs of {name!r} have a tie-break, but for {missing[0]!r}.",
            action="Give one to each input, whose results can be compared, or to none.",
        )
    rules = OrderRules(f"{name}-order", 0, None, Skip())
    declared = OperatorClass(rules.name, _declared(ports, rules, tie_breaks))
    parents = tuple(ports.values())

    def make(env: Environment) -> Step:
        guard = env.guard(rules.name, on_error)
        return InputsInOrderStep(declared, rules, parents[0].key, env.context, guard)

    node = ordering_node(graph, parents[0], declared, rules, on_error)
    return graph.add(replace(node, parents=parents, make=make, value=None))


def _declared(ports: Mapping[str, Node], rules: OrderRules, tie_breaks: TieBreaks) -> type[InputsInOrder]:
    maps: dict[str, Any] = {
        _ATTRIBUTE + handler: state(codec=OptionalCodec((node.value or Plain).as_state), key_codec=Bytes)
        for handler, node in ports.items()
    }
    fixed = {"handlers": tuple(ports), "tie_breaks": tie_breaks, "waits_ms": rules.waits_ms}
    annotations = dict.fromkeys(maps, MapOf[bytes, Any])
    return type("Declared", (InputsInOrder,), {**maps, **fixed, "__annotations__": annotations})
