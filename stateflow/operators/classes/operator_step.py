"""A typed operator at work: its records one by one, its timers when event time or the clock has come so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.codec.base import Codec
from stateflow.codec.structured import MsgPack
from stateflow.errors import ProcessingError, StateflowError
from stateflow.operators.aggregates.aggregation import with_keys
from stateflow.operators.classes.every import ROUND, Rounds
from stateflow.operators.classes.operator import Context, Emitted, OperatorClass
from stateflow.operators.steps import timers as timing
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.marks import marks_of
from stateflow.operators.steps.rows import NO_OFFSET
from stateflow.operators.steps.step import ANY_TIME_MS, PortedStep
from stateflow.operators.steps.timers import Turn
from stateflow.record import Headers, RecordBatch, TopicPartition
from stateflow.state.declare import StateField
from stateflow.state.decoded_value import assigning
from stateflow.state.expiry import Expiry
from stateflow.state.kinds import Advancing
from stateflow.state.layout import prefixed_key
from stateflow.state.scope import Scope
from stateflow.state.timers import DueTimer, Timers
from stateflow.store.decoded import DecodedStore
from stateflow.store.derived import index_family

Handler = Callable[[Any, Context[Any]], None]


class OperatorStep(PortedStep):
    """Runs an operator over batches, a record at a time."""

    takes_tombstones = True

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
        self._scope.leave()  # until the first record
        self._timers: Timers | None = None
        if declared.timers_store is not None:
            order = stage.store(index_family(declared.timers_store))
            self._timers = Timers(stage.store(declared.timers_store), order, self._scope, stage.clock)
        self._emitted: list[Emitted] = []
        """What the record or timer at work has emitted."""
        settable = self._timers if declared.sets_timers else None
        self._context = Context[Any](stage, self._scope, key_codec, self._emitted, settable)
        self._of_time = TopicPartition(declared.name, stage.partition)
        self._stage = stage
        self._guard = guard
        self._is_fatal = guard.is_fatal
        self._operator = make()
        self._reached_ms = stage.watermark_ms
        """Event time as this step was told of it."""
        self._overdue_before = 0
        """Of the timers that were set for a time that had passed, those that came before all had fired last."""
        bound = [(field, *_bound(field, stage, self._scope, guard, declared)) for field in fields]
        for field, handle, _ in bound:
            object.__setattr__(self._operator, field.attribute, handle)  # which operators themselves may not
        plain = [stage.store(field.store) for field in fields if field.entry("", key_codec).layout == "plain"]
        self._decoded = [store for store in plain if isinstance(store, DecodedStore)]
        self._encoded = [store for store in plain if not isinstance(store, DecodedStore)]
        """One lookup on disk per distinct key of a batch: the operator then finds it in memory."""
        self._written = [stage.store(entry.name) for entry in declared.entries(key_codec)]
        self._rounds = self._rounds_of(declared)
        self._handler = self._handler_of(declared.handlers[0])
        """What is called for each record of the batch at work."""
        self._expiries = [expiry for _, _, expiry in bound if expiry is not None]
        self._forgetful = [
            (expiry, field.kind.layout) for field, _, expiry in bound if isinstance(expiry, Expiry)
        ]

    def process_from(self, handler: str, batch: RecordBatch) -> None:
        """Call one of the operator's handlers for each row and pass on what it emitted."""
        self._handler = self._handler_of(handler)
        self.process(batch)

    def process(self, batch: RecordBatch) -> None:
        """Call the operator for each row and pass on what it emitted."""
        batch = with_keys(batch, self._guard)
        self._look_ahead(batch.keys)
        out = RecordBatch(batch.source, [], [], [], [], marks_ms=[])
        scope, context, timers = self._scope, self._context, self._timers
        context.source = batch.source
        scope.reached_ms, scope.others_ms = self._reached_ms, self._stage.others_ms
        rows: Iterable[Any] = zip(
            batch.offsets, batch.timestamps_ms, marks_of(batch), batch.keys, batch.values, strict=True
        )
        if batch.headers:
            rows = self._telling_headers(rows, batch.headers)
        handler, emitted, is_fatal, failed = self._handler, self._emitted, self._is_fatal, self._guard.failed
        for context.offset, scope.timestamp_ms, scope.mark_ms, scope.key, value in rows:
            if timers is not None and timers.may_be_due_of(scope.key, scope.watermark_ms):
                self._fire_those_of_the_key(timers, out)
            if is_fatal:  # nothing needs to be undone: the epoch of a failed task is dropped as a whole
                try:
                    handler(value, context)
                except Exception as error:  # noqa: BLE001 - becomes an error that names the record
                    failed(error, context.offset)
            elif not self._runs(value):
                continue
            if emitted:
                self._collect(out)
        scope.leave()
        context.headers = ()
        for store in self._decoded:
            store.write_back()
        self._end(out)

    def _look_ahead(self, keys: Sequence[bytes]) -> None:
        """Have the state of a batch's keys in memory, and some of what may have expired beside it gone."""
        distinct = list(dict.fromkeys(keys))
        for store in self._decoded:
            store.load(distinct)
        if not (self._encoded or self._forgetful):
            return
        distinct.sort()  # sorted keys are read fastest
        for expiry, layout in self._forgetful if distinct else ():
            near = distinct[self._stage.watermark_ms % len(distinct)]
            expiry.look_near(near if layout == "plain" else prefixed_key(near))
        for encoded in self._encoded:
            encoded.get_many(distinct)

    def _telling_headers(self, rows: Iterable[Any], headers: Sequence[Headers]) -> Iterator[Any]:
        for row, self._context.headers in zip(rows, headers, strict=True):
            yield row

    def advance(self, watermark_ms: int) -> bool:
        """Fire due timers, a bounded number, then delete what has expired for them too; True when more are due."""
        timers, self._reached_ms = self._timers, watermark_ms
        is_left = timers is not None and self._fire_due(timers, watermark_ms)
        if timers is not None and not is_left:
            self._overdue_before = timers.overdue_total
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

    def one_piece_until_ms(self) -> int:
        """Until more timers are due than fire in a turn, or some of them may have set themselves again for long.

        Timers that set themselves again for a time that has passed never end: after a while records pass them by.
        """
        timers, first_ms = self._timers, self.first_due_ms()
        if timers is None or first_ms == ANY_TIME_MS:
            return ANY_TIME_MS
        if timers.overdue_total - self._overdue_before >= timing.TIMERS_PER_RECORD:
            return ANY_TIME_MS
        if first_ms <= self._reached_ms:  # left by a turn, or set since for a time that has passed
            return first_ms - 1
        few_ms, long_ms = timers.few_until_ms(timing.TIMERS_PER_TURN), first_ms + timing.REPEATING_MS_MAX
        return long_ms if few_ms is None else min(few_ms, long_ms)

    def first_due_ms(self) -> int:
        """When the first timer in event time is due, or a time before that."""
        first_ms = None if self._timers is None else self._timers.first_ms
        return ANY_TIME_MS if first_ms is None else first_ms

    def _fire_due(self, timers: Timers, watermark_ms: int) -> bool:
        if not timers.may_be_due(watermark_ms, self._stage.clock.now_ms()):
            return False
        out = RecordBatch(self._of_time, [], [], [], [], marks_ms=[])
        turn = Turn(self._stage.clock, self._written, timing.TIMERS_PER_TURN)
        while (due := timers.next_due(watermark_ms)) is not None:
            self._fire(timers, due, watermark_ms, out)
            if turn.is_over():
                break
        self._scope.leave()
        self._end(out)
        return timers.may_be_due(watermark_ms, self._stage.clock.now_ms())

    def _fire_those_of_the_key(self, timers: Timers, out: RecordBatch) -> None:
        """Event time moves with the record: what this makes due of its key comes first, in the order of time."""
        scope, context, watermark_ms = self._scope, self._context, self._scope.watermark_ms
        record = (context.source, context.offset, context.headers, scope.timestamp_ms)
        times_ms = (scope.mark_ms, scope.reached_ms, scope.others_ms)
        left = timing.TIMERS_PER_RECORD
        while left > 0 and (due := timers.next_due_of(scope.key, watermark_ms)) is not None:
            self._fire(timers, due, watermark_ms, out)
            left -= 1
        context.source, context.offset, context.headers, scope.timestamp_ms = record
        scope.mark_ms, scope.reached_ms, scope.others_ms = times_ms

    def _fire(self, timers: Timers, due: DueTimer, watermark_ms: int, out: RecordBatch) -> None:
        scope, context, timer = self._scope, self._context, due.timer
        context.source, context.offset, context.headers = self._of_time, NO_OFFSET, ()
        context.payload = MsgPack.decode(timer.payload) if timer.payload else None
        scope.key = due.key
        if timer.time == "event":
            # As of when it was due, or set, if that came later, and not of how far event time is by now: what it sees
            # and sends would depend on the batch.
            scope.timestamp_ms, scope.mark_ms = timer.due_ms, max(timer.due_ms, timer.set_ms)
        else:
            scope.timestamp_ms = scope.mark_ms = max(watermark_ms, timer.set_ms)
        scope.reached_ms, scope.others_ms = min(scope.mark_ms, watermark_ms), UNKNOWN_MS
        timers.done(due)
        if self._follows_policy(partial(self._on_timer, due.name)) and self._emitted:
            self._collect(out)
        if self._rounds is not None and due.name == ROUND:
            self._rounds.note_round(due)
        context.payload = None

    def _on_timer(self, name: str) -> None:
        try:
            if self._rounds is not None and name == ROUND:
                self._operator.on_every(self._context)
            else:
                self._operator.on_timer(name, self._context)
        except StateflowError:
            raise
        except Exception as cause:
            raise ProcessingError(
                f"the timer {name!r} of the key {self._context.key!r}: {type(cause).__name__}: {cause}",
                action="Correct on_timer, or give the step on_error=Skip() or DeadLetter(topic).",
            ) from cause

    def _rounds_of(self, declared: OperatorClass) -> Rounds | None:
        if declared.every is None:
            return None
        assert self._timers is not None, "an operator with rounds has timers"
        kept = [(self._stage.store(each.store), each.kind.layout) for each in declared.fields]
        return Rounds(declared.every, self._timers, self._scope, self._stage.clock, kept)

    def _handler_of(self, name: str) -> Handler:
        handler: Handler = getattr(self._operator, name)
        rounds = self._rounds
        if rounds is None:
            return handler

        def handle(value: Any, context: Context[Any]) -> None:
            handler(value, context)
            rounds.note_record()

        return handle

    def _follows_policy(self, work: Callable[[], None]) -> bool:
        if self._is_fatal:
            return self._guard.run(work, NO_OFFSET)
        return self._guard.run(partial(self._undoing, work), NO_OFFSET)

    def _runs(self, value: Any) -> bool:
        """Call the operator for one record, in whole or not at all; False when it was let go."""
        work = partial(self._handler, value, self._context)
        return self._guard.run(partial(self._undoing, work), self._context.offset)

    def _undoing(self, work: Callable[[], None]) -> None:
        self._emitted.clear()
        with self._stage.undoable():
            work()

    def _collect(self, out: RecordBatch) -> None:
        assert out.marks_ms is not None, "what an operator emits has marks of its own"
        for emitted, timestamp_ms, headers in self._emitted:
            out.offsets.append(self._context.offset)
            out.timestamps_ms.append(timestamp_ms)
            out.keys.append(self._scope.key)
            out.values.append(emitted)
            out.headers.append(headers)
            out.marks_ms.append(self._scope.mark_ms)
        self._emitted.clear()

    def _end(self, out: RecordBatch) -> None:
        if not any(out.headers):
            out.headers = []
        self._pass_on(out)

    def _pass_on(self, out: RecordBatch) -> None:
        if out.marks_ms == out.timestamps_ms:
            out.marks_ms = None
        self.forward(out)


def _bound(
    field: StateField, stage: StageContext, scope: Scope, guard: Guard, declared: OperatorClass
) -> tuple[Any, Advancing | None]:
    """The handle of a state; its store keeps numbers decoded where no record's writes are ever undone by themselves.

    The core keeps them where all that is done is done to keys of batches: timers come one key at a time.
    """
    entry = stage.entry(field.store)
    derived = stage.store(index_family(field.store)) if field.options.index else None
    codec = field.number_codec(entry) if guard.is_fatal else None
    if codec is None:
        return field.bind(stage.store(field.store), scope, entry, derived)
    folding = assigning(codec) if declared.timers_store is None else None
    store = stage.decoded_store(field.store, codec, folding)
    return field.bind(store, scope, entry, derived)
