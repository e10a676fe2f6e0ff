"""An aggregate per key and window: late records, results on update or on close, retention.

Event time moves only between batches. A window takes records until event time reaches its end plus grace;
then it is closed. Emitting on update, its state is kept until end plus the longer of grace and ttl, to be
looked at; emitting on close, the result is sent and the state deleted in the same commit, so a window is
never sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.errors import ProcessingError
from stateflow.operators.aggregation import Accumulators, result_rows, with_keys
from stateflow.operators.context import StageContext
from stateflow.operators.guard import Guard
from stateflow.operators.policy import DeadLetter, LatePolicy
from stateflow.operators.rows import derived, where
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
        self._reached_ms = context.watermark_ms
        """Event time as this step was told of it: what timers before it send at that moment is not late here."""

    def process(self, batch: RecordBatch) -> None:
        """Fold each record into its window."""
        batch = self._in_time(with_keys(batch, self._guard))
        if not len(batch):
            return
        size_ms = self._rules.window.size_ms
        starts_ms = [when - when % size_ms for when in batch.timestamps_ms]
        suffixes = {start: window_suffix(start) for start in set(starts_ms)}
        store_keys = [key + suffixes[start] for key, start in zip(batch.keys, starts_ms, strict=True)]
        updated = self._accumulators.fold(store_keys, batch, self._context.watermark_ms)
        for row, store_key, is_new in zip(updated.rows, updated.store_keys, updated.is_new, strict=True):
            if is_new:
                self._index.add(starts_ms[row], store_key)
        if self._rules.emit == "on_update":
            keys = [store_key[:-_SEQUENCE_BYTES] for store_key in updated.store_keys]
            rows = result_rows(batch, updated.rows, keys, updated.results)
            rows.timestamps_ms = [starts_ms[row] for row in updated.rows]
            self.forward(rows)

    def advance(self, watermark_ms: int) -> None:
        """Close, and drop what is past retention."""
        self._reached_ms = watermark_ms
        due_ms = watermark_ms - self._rules.window.size_ms - self._rules.retention_ms
        if due_ms < 0:
            return
        store = self._accumulators.store
        for start_ms, store_keys in self._index.take_until(due_ms):
            if self._rules.emit == "on_close":
                self._send(start_ms, store_keys)
            store.put_many([(key, None) for key in store_keys])

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
        """The records whose window is still open, and that have a time at all."""
        window = self._rules.window
        closed_ms = self._reached_ms - window.size_ms - window.grace_ms
        times_ms = batch.timestamps_ms
        if not times_ms or min(times_ms) >= max(0, closed_ms + window.size_ms):
            return batch
        mask = []
        for when_ms, offset in zip(times_ms, batch.offsets, strict=True):
            in_time = when_ms >= 0 and when_ms - when_ms % window.size_ms > closed_ms
            mask.append(in_time)
            if not in_time:
                self._let_go(when_ms, offset)
        return where(batch, mask)

    def _let_go(self, when_ms: int, offset: int) -> None:
        if when_ms < 0:
            self._guard.refuse(ValueError("the record has no event time"), offset)
            return
        self._context.count("late_records_total")
        if isinstance(self._rules.late, DeadLetter):
            late = ProcessingError(
                f"The record of {when_ms} ms is late: event time stands at {self._reached_ms} ms.",
                action="Give the window more grace.",
            )
            self._guard.dead_letter(self._rules.late.topic, late, offset)
