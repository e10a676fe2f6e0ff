"""An aggregate per key and window: late records, results on update or on close, retention.

A window takes the records before which event time had not reached its end plus grace (``operators/lateness.py``), and
is closed when the task's event time has got there. Emitting on update, its state is kept until end plus the longer of
grace and ttl, to be looked at; emitting on close, the result is sent and the state deleted in the same commit, so a
window is never sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.errors import ProcessingError
from stateflow.operators.aggregation import Accumulators, result_rows, with_keys
from stateflow.operators.context import StageContext
from stateflow.operators.guard import Guard
from stateflow.operators.lateness import Lateness
from stateflow.operators.marks import marks_of
from stateflow.operators.policy import DeadLetter, LatePolicy
from stateflow.operators.rows import derived, without
from stateflow.operators.step import Step
from stateflow.operators.windows import Emit, Tumbling, WindowIndex
from stateflow.record import RecordBatch
from stateflow.state.layout import window_suffix

_SEQUENCE_BYTES = 4  # a store key is the result's key followed by a sequence number
_CLOSED_PER_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class WindowRules:
    """When a window takes records, speaks, and goes."""

    window: Tumbling
    emit: Emit
    late: LatePolicy
    retention_ms: int
    """State is deleted so long after a window's end."""


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
        self._index = WindowIndex(accumulators.store)
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
        for row, store_key, is_new in zip(updated.rows, updated.store_keys, updated.is_new, strict=True):
            if is_new:
                self._index.add(starts_ms[row], store_key)
        if self._rules.emit == "on_update":
            keys = [store_key[:-_SEQUENCE_BYTES] for store_key in updated.store_keys]
            rows = result_rows(batch, updated.rows, keys, updated.results)
            # Their mark is their own time: what is announced to the stages behind stays back by a whole window.
            rows.timestamps_ms, rows.marks_ms = [starts_ms[row] for row in updated.rows], None
            self.forward(rows)

    def advance(self, watermark_ms: int) -> None:
        """Close, and drop what is past retention."""
        self._lateness.reached_ms = watermark_ms
        due_ms = watermark_ms - self._rules.window.size_ms - self._rules.retention_ms
        if due_ms < 0:
            return
        store = self._accumulators.store
        for start_ms, store_keys in self._index.take_until(due_ms):
            if self._rules.emit == "on_close":
                self._send(start_ms, store_keys)
            store.put_many([(key, None) for key in store_keys])

    @property
    def is_timed(self) -> bool:
        """Windows wait for their end."""
        return True

    def pending_until_ms(self) -> int:
        """When the last window takes no more records."""
        last_ms = self._index.last_start_ms()
        return (
            UNKNOWN_MS
            if last_ms is None
            else last_ms + self._rules.window.size_ms + self._rules.window.grace_ms
        )

    def _send(self, start_ms: int, store_keys: list[bytes]) -> None:
        for first in range(0, len(store_keys), _CLOSED_PER_BATCH):
            chunk = store_keys[first : first + _CLOSED_PER_BATCH]
            found = self._accumulators.store.get_many(chunk)
            live = [(key, data) for key, data in zip(chunk, found, strict=True) if data is not None]
            results = [self._accumulators.result(data) for _, data in live]
            keys = [key[:-_SEQUENCE_BYTES] for key, _ in live]
            timestamps_ms = [start_ms] * len(live)
            self.forward(derived(self._name, self._context.partition, timestamps_ms, keys, results))

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
