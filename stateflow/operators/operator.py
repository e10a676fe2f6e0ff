"""The typed operator class: state declared as attributes, one method called per record."""

from __future__ import annotations

import typing
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.timer import TimerTime
from stateflow.errors import GraphError
from stateflow.operators.context import StageContext
from stateflow.operators.timers import due_ms_of
from stateflow.record import TopicPartition
from stateflow.state.declare import declared_fields
from stateflow.state.scope import Scope
from stateflow.state.timers import Timers, timers_entry

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - output, beside K and V


class Context(Generic[O]):
    """The record that an operator is working on, and how it answers. Valid during the call only."""

    def __init__(
        self,
        stage: StageContext,
        scope: Scope,
        key_codec: Codec[Any],
        emitted: list[tuple[O, int]],
        timers: Timers | None,
    ) -> None:
        self._stage = stage
        self._scope = scope
        self._key_codec = key_codec
        self._timers = timers
        self._emitted = emitted
        self.source = TopicPartition("", -1)
        """Topic and partition that the record was read from; for a timer the operator's name and the partition."""
        self.offset = -1
        """Its offset there; −1 for a timer."""

    @property
    def key(self) -> Any:
        """The record's key."""
        return self._key_codec.decode(self._scope.key)

    @property
    def timestamp_ms(self) -> int:
        """Event time of the record. Of a timer: when it was due or, by the clock, event time as far as known."""
        return self._scope.timestamp_ms

    @property
    def watermark_ms(self) -> int:
        """Event time up to which input is complete, the current record counted; −1 before it is known."""
        return self._scope.watermark_ms

    def emit(self, value: O, *, timestamp_ms: int | None = None) -> None:
        """Pass a value on under the record's key; its event time is the record's unless given."""
        self._emitted.append((value, self._scope.timestamp_ms if timestamp_ms is None else timestamp_ms))

    def timer(
        self,
        name: str,
        *,
        after: timedelta | None = None,
        at: int | datetime | None = None,
        time: TimerTime = "event",
    ) -> None:
        """Have ``on_timer(name, …)`` called for this key when its time has come; set again, it is replaced.

        ``after`` counts from the record's event time, or from now by the clock with ``time="processing"``;
        ``at`` is ms since 1970 UTC or a datetime with a time zone. A time that has passed is due at once.
        """
        now_ms = self._stage.clock.now_ms()
        self._kept_timers().set(name, due_ms_of(after, at, time, self._scope.timestamp_ms, now_ms), time)

    def timer_due_ms(self, name: str) -> int | None:
        """When a timer of this key is due, ms since 1970 UTC; None where none of that name is pending."""
        return self._kept_timers().due_ms(name)

    def cancel_timer(self, name: str) -> None:
        """Drop a timer of this key; one that is not pending is not an error."""
        self._kept_timers().cancel(name)

    def count(self, metric: str, amount: int = 1) -> None:
        """Add to a counter of the task."""
        self._stage.count(metric, amount)

    def _kept_timers(self) -> Timers:
        if self._timers is None:
            raise GraphError(
                "A timer is set by an operator that has no on_timer.",
                action="Write on_timer(self, name, ctx) into the operator class.",
            )
        return self._timers


class Operator(Generic[K, V, O]):
    """Base of stateful operators: keys of type K, values V in, values O out.

    Declare state as annotated attributes (``total: Value[int] = state(default=0)``); every handle works on
    the key of the current record. There is one instance per task: keep nothing else on it.
    """

    def on_record(self, value: V, ctx: Context[O]) -> None:
        """Called for each record, in order.

        The value is None for a *tombstone*, a record of a source topic without a value: producers of tables say so
        that the key was deleted.
        """
        raise NotImplementedError

    def on_timer(self, name: str, ctx: Context[O]) -> None:
        """Called when a timer of this name is due, under its key; it is pending no longer.

        Its effects and its end are one commit. A key's timers in event time are called before the record that moves
        event time past them, those of different keys in the order in which they are due, and each sees state as
        of the time at which it is due. If it raises, the step's policy says whether the task stops or the timer is
        let go.
        """
        raise NotImplementedError


class OperatorClass:
    """An operator class taken apart: its states and the types that it was declared with."""

    def __init__(
        self, name: str, owner: type[Operator[Any, Any, Any]], handlers: tuple[str, ...] = ("on_record",)
    ) -> None:
        if not (isinstance(owner, type) and issubclass(owner, Operator)):
            raise GraphError(
                f"The operator {name!r} is {owner!r}.", action="Pass a class derived from sf.Operator."
            )
        for handler in handlers:
            if getattr(owner, handler, None) in (None, Operator.on_record):
                raise GraphError(
                    f"{owner.__name__} has no {handler}.", action=f"Write {handler}(self, value, ctx)."
                )
        self.name = name
        self.owner = owner
        self.handlers = handlers
        """The methods that are called for records, one for each input."""
        self.fields = declared_fields(owner, name)
        self.timers_store = None if owner.on_timer is Operator.on_timer else f"{name}-timers"
        """Name of the store of its timers; None for an operator without ``on_timer``."""
        self.key_type, self.value_type, self.output_type = _type_arguments(owner)

    def entries(self, key_codec: Codec[Any]) -> tuple[StoreEntry, ...]:
        """All its stores as the catalog describes them, that of its timers last."""
        stores = tuple(field.entry("", key_codec) for field in self.fields)
        if self.timers_store is None:
            return stores
        return (*stores, timers_entry(self.timers_store, key_codec))


def _type_arguments(owner: type) -> tuple[Any, Any, Any]:
    """K, V and O of ``class Fraud(Operator[str, Payment, Alert])``; None for those it leaves open."""
    for base in owner.__mro__:
        for original in vars(base).get("__orig_bases__", ()):
            if typing.get_origin(original) is Operator:
                arguments = typing.get_args(original)
                return tuple(None if isinstance(part, TypeVar) else part for part in arguments)  # type: ignore[return-value]
    return None, None, None
