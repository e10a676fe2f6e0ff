"""The typed operator class: state declared as attributes, one method called per record."""

from __future__ import annotations

import typing
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.timer import TimerTime
from stateflow.errors import GraphError, ProcessingError, StateflowError
from stateflow.operators import timing
from stateflow.operators.aggregation import with_keys
from stateflow.operators.context import StageContext
from stateflow.operators.guard import Guard
from stateflow.operators.marks import UNKNOWN_MS, marks_of
from stateflow.operators.rows import NO_OFFSET
from stateflow.operators.step import Step
from stateflow.operators.timing import Turn, due_ms_of
from stateflow.record import RecordBatch, TopicPartition
from stateflow.state.declare import StateField, declared_fields
from stateflow.state.expiry import Expiry
from stateflow.state.kinds import Advancing
from stateflow.state.layout import prefixed_key
from stateflow.state.scope import Scope
from stateflow.state.timers import DueTimer, Timers, timers_entry
from stateflow.store.derived import index_family

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - output, beside K and V


class Context(Generic[O]):
    """The record that an operator is working on, and how it answers. Valid during the call only."""

    def __init__(
        self, stage: StageContext, scope: Scope, key_codec: Codec[Any], timers: Timers | None = None
    ) -> None:
        self._stage = stage
        self._scope = scope
        self._key_codec = key_codec
        self._timers = timers
        self._emitted: list[tuple[O, int]] = []
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
        """Called for each record, in order."""
        raise NotImplementedError

    def on_timer(self, name: str, ctx: Context[O]) -> None:
        """Called when a timer of this name is due, under its key; it is pending no longer.

        Its effects and its end are one commit. A key's timers in event time are called before the record that moves
        event time past them, those of different keys in the order in which they are due, and each sees state as
        of the time at which it is due. If it raises, the step's policy says whether the task stops or the timer is
        let go.
        """
        raise NotImplementedError


class OperatorStep(Step):
    """Runs an operator over batches, a record at a time."""

    def __init__(
        self,
        declared: OperatorClass,
        key_codec: Codec[Any],
        stage: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        fields, make = declared.fields, declared.owner
        self._scope = Scope()
        self._timers: Timers | None = None
        if declared.timers_store is not None:
            self._timers = Timers(stage.store(declared.timers_store), self._scope, stage.clock)
        self._context = Context[Any](stage, self._scope, key_codec, self._timers)
        self._of_time = TopicPartition(declared.name, stage.partition)
        self._written = [stage.store(entry.name) for entry in declared.entries(key_codec)]
        self._stage = stage
        self._guard = guard
        self._is_fatal = guard.is_fatal
        self._operator = make()
        self._reached_ms = stage.watermark_ms
        """Event time as this step was told of it."""
        self._stores = [
            stage.store(field.store) for field in fields if field.entry("", key_codec).layout == "plain"
        ]
        bound = [(field, *_bound(field, stage, self._scope)) for field in fields]
        for field, handle, _ in bound:
            setattr(self._operator, field.attribute, handle)
        self._expiries = [expiry for _, _, expiry in bound if expiry is not None]
        self._forgetful = [
            (expiry, field.kind.layout) for field, _, expiry in bound if isinstance(expiry, Expiry)
        ]

    def process(self, batch: RecordBatch) -> None:
        """Call the operator for each row and pass on what it emitted."""
        batch = with_keys(batch, self._guard)
        distinct = sorted(set(batch.keys))
        for expiry, layout in self._forgetful if distinct else ():
            near = distinct[self._stage.watermark_ms % len(distinct)]
            expiry.look_near(near if layout == "plain" else prefixed_key(near))
        for store in self._stores:
            store.get_many(distinct)  # one lookup on disk per distinct key; the calls below find it in memory
        out = RecordBatch(batch.source, [], [], [], [], marks_ms=[])
        scope, context, timers = self._scope, self._context, self._timers
        context.source = batch.source
        scope.reached_ms, scope.others_ms = self._reached_ms, self._stage.others_ms
        rows = zip(batch.offsets, batch.timestamps_ms, marks_of(batch), batch.keys, batch.values, strict=True)
        for context.offset, scope.timestamp_ms, scope.mark_ms, scope.key, value in rows:
            if timers is not None and timers.may_be_due_of(scope.key, scope.watermark_ms):
                self._fire_those_of_the_key(timers, out)
            if self._runs(value) and context._emitted:
                self._collect(out)
        self._pass_on(out)

    def advance(self, watermark_ms: int) -> bool:
        """Fire due timers, a bounded number, then delete what has expired for them too; True when more are due."""
        timers, self._reached_ms = self._timers, watermark_ms
        is_left = timers is not None and self._fire_due(timers, watermark_ms)
        expired_ms = watermark_ms if timers is None else timers.none_before_ms(watermark_ms)
        for expiry in self._expiries:
            expiry.advance(expired_ms)
        return is_left

    @property
    def is_timed(self) -> bool:
        """True for an operator with timers."""
        return self._timers is not None

    def pending_until_ms(self) -> int:
        """When the last timer in event time is due."""
        assert self._timers is not None, "asked of a timed step"
        return self._timers.last_due_ms()

    def _fire_due(self, timers: Timers, watermark_ms: int) -> bool:
        if not timers.may_be_due(watermark_ms, self._stage.clock.now_ms()):
            return False
        out = RecordBatch(self._of_time, [], [], [], [], marks_ms=[])
        turn = Turn(self._stage.clock, self._written)
        while (due := timers.next_due(watermark_ms)) is not None:
            self._fire(timers, due, watermark_ms, out)
            if turn.is_over():
                break
        self._pass_on(out)
        return timers.may_be_due(watermark_ms, self._stage.clock.now_ms())

    def _fire_those_of_the_key(self, timers: Timers, out: RecordBatch) -> None:
        """Event time moves with the record: what this makes due of its key comes first, in the order of time."""
        scope, context, watermark_ms = self._scope, self._context, self._scope.watermark_ms
        record = (context.source, context.offset, scope.timestamp_ms)
        times_ms = (scope.mark_ms, scope.reached_ms, scope.others_ms)
        left = timing.TIMERS_PER_RECORD
        while left > 0 and (found := timers.due_of(scope.key, watermark_ms)):
            for due in found:
                if timers.is_pending(due):
                    self._fire(timers, due, watermark_ms, out)
                left -= 1
                if timers.may_be_due_of(scope.key, watermark_ms):
                    break  # one was set that may come before the next
            else:
                break
        context.source, context.offset, scope.timestamp_ms = record
        scope.mark_ms, scope.reached_ms, scope.others_ms = times_ms

    def _fire(self, timers: Timers, due: DueTimer, watermark_ms: int, out: RecordBatch) -> None:
        scope, context, timer = self._scope, self._context, due.timer
        context.source, context.offset, scope.key = self._of_time, NO_OFFSET, due.key
        if (
            timer.time == "event"
        ):  # as of when it was due, or set, if that came later; not of how far time is now
            scope.timestamp_ms, scope.mark_ms = timer.due_ms, max(timer.due_ms, timer.set_ms)
        else:
            scope.timestamp_ms = scope.mark_ms = max(watermark_ms, timer.set_ms)
        scope.reached_ms, scope.others_ms = min(scope.mark_ms, watermark_ms), UNKNOWN_MS
        timers.done(due)
        if self._follows_policy(partial(self._on_timer, due.name)) and context._emitted:
            self._collect(out)

    def _on_timer(self, name: str) -> None:
        try:
            self._operator.on_timer(name, self._context)
        except StateflowError:
            raise
        except Exception as cause:
            raise ProcessingError(
                f"the timer {name!r} of the key {self._context.key!r}: {type(cause).__name__}: {cause}",
                action="Correct on_timer, or give the step on_error=Skip() or DeadLetter(topic).",
            ) from cause

    def _follows_policy(self, work: Callable[[], None]) -> bool:
        if self._is_fatal:
            return self._guard.run(work, NO_OFFSET)
        return self._guard.run(partial(self._undoing, work), NO_OFFSET)

    def _runs(self, value: Any) -> bool:
        """Call the operator for one record, in whole or not at all; False when it was let go.

        Where a failure stops the task nothing needs to be undone: its epoch is dropped as a whole.
        """
        if not self._is_fatal:
            work = partial(self._operator.on_record, value, self._context)
            return self._guard.run(partial(self._undoing, work), self._context.offset)
        try:
            self._operator.on_record(value, self._context)
        except Exception as error:  # noqa: BLE001 - becomes an error that names the record
            return self._guard.failed(error, self._context.offset)
        return True

    def _undoing(self, work: Callable[[], None]) -> None:
        self._context._emitted.clear()
        with self._stage.undoable():
            work()

    def _collect(self, out: RecordBatch) -> None:
        assert out.marks_ms is not None, "what an operator emits has marks of its own"
        for emitted, timestamp_ms in self._context._emitted:
            out.offsets.append(self._context.offset)
            out.timestamps_ms.append(timestamp_ms)
            out.keys.append(self._scope.key)
            out.values.append(emitted)
            out.marks_ms.append(self._scope.mark_ms)
        self._context._emitted.clear()

    def _pass_on(self, out: RecordBatch) -> None:
        if out.marks_ms == out.timestamps_ms:
            out.marks_ms = None
        self.forward(out)


def _bound(field: StateField, stage: StageContext, scope: Scope) -> tuple[Any, Advancing | None]:
    derived = stage.store(index_family(field.store)) if field.options.index else None
    return field.bind(stage.store(field.store), scope, stage.entry(field.store), derived)


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
        self.name = name
        self.owner = owner
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
