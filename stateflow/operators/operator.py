"""The typed operator class: state declared as attributes, one method called per record."""

from __future__ import annotations

import typing
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec
from stateflow.errors import GraphError
from stateflow.operators.aggregation import with_keys
from stateflow.operators.context import StageContext
from stateflow.operators.guard import Guard
from stateflow.operators.step import Step
from stateflow.record import RecordBatch, TopicPartition
from stateflow.state.declare import StateField, declared_fields
from stateflow.state.scope import Scope

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - output, beside K and V


class Context(Generic[O]):
    """The record that an operator is working on, and how it answers. Valid during the call only."""

    def __init__(self, stage: StageContext, scope: Scope, key_codec: Codec[Any]) -> None:
        self._stage = stage
        self._scope = scope
        self._key_codec = key_codec
        self._emitted: list[tuple[O, int]] = []
        self.source = TopicPartition("", -1)
        """Topic and partition that the record was read from."""
        self.offset = -1
        """Its offset there."""

    @property
    def key(self) -> Any:
        """The record's key."""
        return self._key_codec.decode(self._scope.key)

    @property
    def timestamp_ms(self) -> int:
        """Event time of the record."""
        return self._scope.timestamp_ms

    @property
    def watermark_ms(self) -> int:
        """Event time up to which input is complete; −1 before the first record."""
        return self._scope.watermark_ms

    def emit(self, value: O, *, timestamp_ms: int | None = None) -> None:
        """Pass a value on under the record's key; its event time is the record's unless given."""
        self._emitted.append((value, self._scope.timestamp_ms if timestamp_ms is None else timestamp_ms))

    def count(self, metric: str, amount: int = 1) -> None:
        """Add to a counter of the task."""
        self._stage.count(metric, amount)


class Operator(Generic[K, V, O]):
    """Base of stateful operators: keys of type K, values V in, values O out.

    Declare state as annotated attributes (``total: Value[int] = state(default=0)``); every handle works on
    the key of the current record. There is one instance per task: keep nothing else on it.
    """

    def on_record(self, value: V, ctx: Context[O]) -> None:
        """Called for each record, in order."""
        raise NotImplementedError


class OperatorStep(Step):
    """Runs an operator over batches, a record at a time."""

    def __init__(
        self,
        make: Callable[[], Operator[Any, Any, Any]],
        fields: tuple[StateField, ...],
        key_codec: Codec[Any],
        stage: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._scope = Scope()
        self._context = Context[Any](stage, self._scope, key_codec)
        self._stage = stage
        self._guard = guard
        self._is_fatal = guard.is_fatal
        self._operator = make()
        self._stores = [
            stage.store(field.store) for field in fields if field.entry("", key_codec).layout == "plain"
        ]
        bound = [(field, *field.bind(stage.store(field.store), self._scope)) for field in fields]
        for field, handle, _ in bound:
            setattr(self._operator, field.attribute, handle)
        self._expiries = [expiry for _, _, expiry in bound if expiry is not None]

    def process(self, batch: RecordBatch) -> None:
        """Call the operator for each row and pass on what it emitted."""
        batch = with_keys(batch, self._guard)
        distinct = sorted(set(batch.keys))
        for store in self._stores:
            store.get_many(distinct)  # one lookup on disk per distinct key; the calls below find it in memory
        self._scope.watermark_ms = self._stage.watermark_ms
        self._context.source = batch.source
        out = RecordBatch(batch.source, [], [], [], [])
        scope, context = self._scope, self._context
        rows = zip(batch.offsets, batch.timestamps_ms, batch.keys, batch.values, strict=True)
        for context.offset, scope.timestamp_ms, scope.key, value in rows:
            if self._runs(value) and context._emitted:
                self._collect(out)
        self.forward(out)

    def advance(self, watermark_ms: int) -> None:
        """Delete expired state."""
        for expiry in self._expiries:
            expiry.advance(watermark_ms)

    def _runs(self, value: Any) -> bool:
        """Call the operator for one record, in whole or not at all; False when it was let go.

        Where a failure stops the task nothing needs to be undone: its epoch is dropped as a whole.
        """
        if not self._is_fatal:
            return self._guard.run(partial(self._undoable, value), self._context.offset)
        try:
            self._operator.on_record(value, self._context)
        except Exception as error:  # noqa: BLE001 - becomes an error that names the record
            return self._guard.failed(error, self._context.offset)
        return True

    def _undoable(self, value: Any) -> None:
        self._context._emitted.clear()
        with self._stage.undoable():
            self._operator.on_record(value, self._context)

    def _collect(self, out: RecordBatch) -> None:
        for emitted, timestamp_ms in self._context._emitted:
            out.offsets.append(self._context.offset)
            out.timestamps_ms.append(timestamp_ms)
            out.keys.append(self._scope.key)
            out.values.append(emitted)
        self._context._emitted.clear()


class OperatorClass:
    """An operator class taken apart: its states and the types that it was declared with."""

    def __init__(self, name: str, owner: type[Operator[Any, Any, Any]]) -> None:
        if not (isinstance(owner, type) and issubclass(owner, Operator)):
            raise GraphError(
                f"The operator {name!r} is {owner!r}.", action="Pass a class derived from sf.Operator."
            )
        if owner.on_record is Operator.on_record:
            raise GraphError(
                f"{owner.__name__} has no on_record.", action="Write on_record(self, value, ctx)."
            )
        self.owner = owner
        self.fields = declared_fields(owner, name)
        self.key_type, self.value_type, self.output_type = _type_arguments(owner)


def _type_arguments(owner: type) -> tuple[Any, Any, Any]:
    """K, V and O of ``class Fraud(Operator[str, Payment, Alert])``; None for those it leaves open."""
    for base in owner.__mro__:
        for original in vars(base).get("__orig_bases__", ()):
            if typing.get_origin(original) is Operator:
                arguments = typing.get_args(original)
                return tuple(None if isinstance(part, TypeVar) else part for part in arguments)  # type: ignore[return-value]
    return None, None, None
