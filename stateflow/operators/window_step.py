"""An aggregate per key and window: late records, results on update or on close, retention.

A window takes the records before which event time had not reached its end plus grace (``operators/lateness.py``), and
is closed when the task's event time has got there. Emitting on update, its state is kept until end plus the longer of
grace and ttl, to be looked at; emitting on close, the result is sent and the state deleted in the same commit, so a
window is never sent twice.

However many windows are due at once, they close in turns, by start and then by key, with commits between. One that is
due and has not had its turn takes no record any more: what is late does not depend on turns.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.errors import ProcessingError
from stateflow.operators import timers as timing
from stateflow.operators.aggregation import Accumulators, result_rows, with_keys
from stateflow.operators.context import StageContext
from stateflow.operators.error_policy import DeadLetter, LatePolicy
from stateflow.operators.guard import Guard
from stateflow.operators.lateness import Lateness
from stateflow.operators.marks import marks_of
from stateflow.operators.rows import derived, without
from stateflow.operators.step import Step
from stateflow.operators.timers import Turn
from stateflow.operators.windows import Emit, Tumbling
from stateflow.record import RecordBatch
from stateflow.state.due_order import Due, WindowOrder
from stateflow.state.layout import window_suffix
from stateflow.store.derived import index_family

_SEQUENCE_BYTES = 4  # a store key is the result's key followed by a sequence number


@dataclass(frozen=True, slots=True)
class WindowRules:
    """When a window takes records, speaks, and goes."""

    window: Tumbling
    emit: Emit
    late: LatePolicy
    retention_ms: int
    """State is deleted so long after a window's end."""
    in_turns: bool = True
    """False to close all that is due before the next commit."""


class WindowAggregateStep(Step):
    """One accumulator per key and window. Results: key bytes ‖ window start as key, the start as time."""

    def __init__(
        self, name: str, rules: WindowRules, accumulators: Accumulators, context: StageContext, guard: Guard
    ) -> None:
        super().__init__()
        self._name = name
        self._rules = rules
        self._accumulators = accumulators
        self._context = context
        self._guard = guard
        order = context.store(index_family(name))
        self._order = WindowOrder(order)
        self._written = (accumulators.store, order)
        self._lateness = Lateness(rules.window, context.watermark_ms)

    def process(self, batch: RecordBatch) -> None:
        """Fold each record into its window."""
        batch = self._in_time(with_keys(batch, self._guard))
        if not len(batch):
            return
        size_ms = self._rules.window.size_ms
        starts_ms = [when - when % size_ms for when in batch.timestamps_ms]
        suffixes = {start: window_suffix(start) for start in set(starts_ms)}
        store_keys = [key + suffixes[start] for key, start in zip(batch.keys, starts_ms, strict=True)]
        updated = self._accumulators.fold(store_keys, batch)
        opened = zip(updated.rows, updated.store_keys, updated.is_new, strict=True)
        self._order.add((starts_ms[row], store_key) for row, store_key, is_new in opened if is_new)
        if self._rules.emit == "on_update":
            keys = [store_key[:-_SEQUENCE_BYTES] for store_key in updated.store_keys]
            rows = result_rows(batch, updated.rows, keys, updated.results)
            # Their mark is their own time: what is announced to the stages behind stays back by a whole window.
            rows.timestamps_ms, rows.marks_ms = [starts_ms[row] for row in updated.rows], None
            self.forward(rows)

    def advance(self, watermark_ms: int) -> bool:
        """Close, and drop what is past retention, a bounded number; True when more are due."""
        self._lateness.reached_ms = watermark_ms
        due_ms = watermark_ms - self._rules.window.size_ms - self._rules.retention_ms
        if due_ms < 0 or not self._order.may_be_due(due_ms):
            return False
        turn = Turn(self._context.clock, self._written, timing.WINDOWS_PER_TURN)
        while windows := self._order.take_until(due_ms, timing.WINDOWS_PER_CHUNK):
            self._close(windows)
            if turn.is_over(len(windows)) and self._rules.in_turns:
                break
        return self._order.may_be_due(due_ms)

    @property
    def is_timed(self) -> bool:
        """Windows wait for their end."""
        return True

    def pending_until_ms(self) -> int:
        """When the last window takes no more records."""
        last_ms = self._order.last_start_ms()
        return (
            UNKNOWN_MS
            if last_ms is None
            else last_ms + self._rules.window.size_ms + self._rules.window.grace_ms
        )

    def _close(self, windows: list[Due]) -> None:
        store_keys = [store_key for _, store_key in windows]
        if self._rules.emit == "on_close":
            found = self._accumulators.store.get_many(store_keys)
            live = [(*window, data) for window, data in zip(windows, found, strict=True) if data is not None]
            results = [self._accumulators.result(data) for _, _, data in live]
            keys = [store_key[:-_SEQUENCE_BYTES] for _, store_key, _ in live]
            timestamps_ms = [start_ms for start_ms, _, _ in live]
            self.forward(derived(self._name, self._context.partition, timestamps_ms, keys, results))
        self._accumulators.store.put_many([(store_key, None) for store_key in store_keys])

    def _in_time(self, batch: RecordBatch) -> RecordBatch:
        """The records that have a time and whose window still took them."""
        refused = self._lateness.late_rows(batch)
        if refused:
            marks_ms = marks_of(batch)
            for row in refused:
                self._let_go(batch, row, marks_ms[row])
        if batch.timestamps_ms and min(batch.timestamps_ms) < 0:
            timeless = [row for row, when_ms in enumerate(batch.timestamps_ms) if when_ms < 0]
            for row in timeless:
                self._guard.refuse(ValueError("the record has no event time"), batch.offsets[row])
            refused = [*refused, *timeless]
        return without(batch, refused)

    def _let_go(self, batch: RecordBatch, row: int, mark_ms: int) -> None:
        offset, when_ms = batch.offsets[row], batch.timestamps_ms[row]
        reached_ms = max(mark_ms, self._lateness.reached_ms)
        self._context.late(self._name, batch.source, offset, when_ms, reached_ms)
        if isinstance(self._rules.late, DeadLetter):
            late = ProcessingError(
                f"The record of {when_ms} ms is late: event time had reached {reached_ms} ms before it.",
                action="Give the window more grace.",
            )
            self._guard.dead_letter(self._rules.late.topic, late, offset)
