"""Streams joined with what a versioned table held at the time of each of their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Bytes
from stateflow.operators.classes.operator import Context, OperatorClass
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.joins.interval_join import LEFT
from stateflow.operators.order.event_time_buffer import Buffered, BufferingInOne, at_own_times, last_due_ms
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.guard import Guard
from stateflow.operators.tables.table_readers import TableReader
from stateflow.record import RecordBatch
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf
from stateflow.state.scope import Scope


@dataclass(frozen=True, slots=True)
class AsOfRules:
    """What is joined how, and how long a record waits for the table."""

    name: str
    grace_ms: int
    is_inner: bool
    function: Callable[[Any, Any], Any]

    @property
    def waits_ms(self) -> int:
        """How far event time must have come past a record that no change in time touches its answer any more."""
        return self.grace_ms + 1


class AsOfJoin(BufferingInOne):
    """Base of the operators of such joins: each record waits until the table is known as of its time."""

    rules: AsOfRules
    table: TableReader
    key: Scope

    def on_left(self, value: Any, ctx: Context[Any]) -> None:
        """Keep the record until its time has come."""
        self.keep(value, ctx)

    def release(self, rows: list[Buffered], ctx: Context[Any]) -> None:
        """Join the records whose time has come."""
        for at_ms, value, headers, _ in rows:
            for joined in self.guard.one_of_several(self._joined, value, at_ms):
                for result in joined:
                    ctx.emit(result, timestamp_ms=at_ms, headers=headers or None)

    def _joined(self, value: Any, at_ms: int) -> list[Any]:
        """The record's result, in a list; an empty one where it has no partner and is left out."""
        found = self.table.get(self.key.key, at_ms)
        if found is None and self.rules.is_inner:
            return []
        return [self.rules.function(value, None if found is None else found.value)]


def as_of_operator(rules: AsOfRules, value: Codec[Any]) -> type[AsOfJoin]:
    """The operator of a join, its state declared."""
    chosen = rules

    class Declared(AsOfJoin):
        rules = chosen
        waits_ms = chosen.waits_ms
        waiting: MapOf[bytes, Any] = state(codec=value.as_state, key_codec=Bytes)

    return Declared


class AsOfJoinStep(OperatorStep):
    """Such an operator at work; its rows are never late behind it."""

    takes_tombstones = False

    def __init__(
        self,
        declared: OperatorClass,
        rules: AsOfRules,
        table: TableReader,
        key_codec: Codec[Any],
        stage: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__(declared, key_codec, stage, guard)
        assert isinstance(self._operator, AsOfJoin), "it is made for this step"
        self._operator.table, self._operator.key = table, self._scope
        self._operator.guard = guard
        self._waiting = stage.store(f"{rules.name}-waiting")
        self._waits_ms = rules.waits_ms

    def process_from(self, handler: str, batch: RecordBatch) -> None:
        """Keep the rows of the stream; the table keeps its own."""
        if handler == LEFT:
            super().process_from(handler, batch)

    def pending_until_ms(self) -> int:
        """When the last record has waited long enough: a timer knows of the first of its key only."""
        return last_due_ms(self._waiting, self._waits_ms)

    def _pass_on(self, out: RecordBatch) -> None:
        self.forward(at_own_times(out))
