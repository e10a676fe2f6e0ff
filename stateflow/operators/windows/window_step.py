"""An aggregate per key and window of those that a record's time alone tells: tumbling, hopping, of a calendar.

A window takes the records before which event time had not reached its end plus grace (``lateness.py``), and
is closed when the task's event time has got there. Emitting on update, its state is kept until end plus the longer of
grace and ttl, to be looked at; emitting on close, the result is sent and the state deleted in the same commit, so a
window is never sent twice.

However many windows are due at once, they close in turns, by start and then by key, with commits between. One that is
due and has not had its turn takes no record any more: what is late does not depend on turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.codec.base import Codec
from stateflow.operators.aggregates.aggregation import Accumulators, Updated, result_rows
from stateflow.operators.steps import timers as timing
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import LatePolicy
from stateflow.operators.steps.failed_results import forward_told
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.marks import marks_of, span_ms
from stateflow.operators.steps.reads import Reads
from stateflow.operators.steps.rows import derived, repeated
from stateflow.operators.steps.step import Step
from stateflow.operators.steps.timers import Turn
from stateflow.operators.windows.window_entry import Entry
from stateflow.operators.windows.windows import Emit, FixedWindow
from stateflow.record import RecordBatch
from stateflow.state.due_order import Due, WindowOrder
from stateflow.state.layout import window_suffix
from stateflow.store.derived import index_family

NEVER_MS = 1 << 63
_SEQUENCE_BYTES = 4  # a store key is the result's key followed by a sequence number


@dataclass(frozen=True, slots=True)
class WindowRules:
    """When a window takes records, speaks, and goes."""

    window: FixedWindow
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
        self._window = rules.window
        self._accumulators = accumulators
        self._context = context
        self._guard = guard
        order = context.store(index_family(name))
        self._order = WindowOrder(order)
        self._written = (accumulators.store, order)
        self._entry = Entry(name, rules.window, rules.late, context, guard)
        self._lists_late = accumulators.list_windows_in(self._order)
        self._unlisted_from_ms = NEVER_MS
        """No window that is not listed yet begins before this."""
        self._windows_of: list[int] = []
        """Of each record being processed, where they may be in several: how many windows take it."""

    def process(self, batch: RecordBatch) -> None:
        """Fold each record into its windows."""
        batch = self._entry.in_time(batch)
        if not len(batch) or self._folds_into_one(batch):
            return
        batch, starts_ms = self._placed(batch)
        if not len(batch):
            return
        suffixes = {start: window_suffix(start) for start in set(starts_ms)}
        store_keys = [key + suffixes[start] for key, start in zip(batch.keys, starts_ms, strict=True)]
        if self._folds_late and self._accumulators.folds(store_keys, batch):
            self._unlisted_from_ms = min(self._unlisted_from_ms, min(starts_ms))
            return
        updated = self._folded(store_keys, batch)
        opened = zip(updated.rows, updated.store_keys, updated.is_new, strict=True)
        self._order.add((starts_ms[row], store_key) for row, store_key, is_new in opened if is_new)
        if self._rules.emit == "on_update" and self.children:
            self._tell(updated, starts_ms, batch)

    def own_codecs(self) -> Iterable[Codec[Any]]:
        """That of the accumulators."""
        return (self._accumulators.codec,)

    def own_reads(self) -> Reads | None:
        """What the aggregate reads: the steps behind it have its results."""
        return self._accumulators.reads

    @property
    def _folds_late(self) -> bool:
        """True where nobody hears of a result before its window closes, and windows may be listed later."""
        return self._lists_late and (self._rules.emit == "on_close" or not self.children)

    def _folds_into_one(self, batch: RecordBatch) -> bool:
        """Fold the batch in the core if all of it lies in one window, as most of what comes in order does."""
        if not (self._window.is_single and self._folds_late):
            return False
        first_ms, last_ms = span_ms(batch.timestamps_ms)
        start_ms = self._window.start_ms(first_ms)
        if start_ms != self._window.start_ms(last_ms) or not self._accumulators.folds(
            batch.keys, batch, window_suffix(start_ms)
        ):
            return False
        self._unlisted_from_ms = min(self._unlisted_from_ms, start_ms)
        return True

    needs_turns = False

    def advance(self, watermark_ms: int) -> bool:
        """Close, and drop what is past retention, a bounded number; True when more are due.

        A replay closes all of it: what it does not say was said before.
        """
        self._entry.reached_ms = watermark_ms
        due_ms = self._window.ended_ms(watermark_ms - self._rules.retention_ms)
        if due_ms >= self._unlisted_from_ms:
            self._list()
        if due_ms < 0 or not self._order.may_be_due(due_ms):
            return False
        turn = Turn(self._context.clock, self._written, timing.WINDOWS_PER_TURN)
        while windows := self._order.take_until(due_ms, timing.WINDOWS_PER_CHUNK):
            self._close(windows)
            if turn.is_over(len(windows)) and not self._accumulators.is_replaying:
                break
        return self._order.may_be_due(due_ms)

    @property
    def is_timed(self) -> bool:
        """Windows wait for their end."""
        return True

    def pending_until_ms(self) -> int:
        """When the last window takes no more records."""
        self._list()
        last_ms = self._order.last_start_ms()
        return UNKNOWN_MS if last_ms is None else self._window.end_ms(last_ms) + self._window.grace_ms

    def _list(self) -> None:
        """Have all windows listed that are open: those that were folded in the core are at the commit, else."""
        self._accumulators.list_opened()
        self._unlisted_from_ms = NEVER_MS

    def _placed(self, batch: RecordBatch) -> tuple[RecordBatch, list[int]]:
        """Each record once for each of its windows that takes it, and where these start."""
        if self._window.is_single:
            return batch, self._window.starts_of(batch.timestamps_ms)
        reached_ms, end_ms, grace_ms = self._entry.reached_ms, self._window.end_ms, self._window.grace_ms
        open_ms: list[list[int]] = []
        for when_ms, mark_ms in zip(batch.timestamps_ms, marks_of(batch), strict=True):
            closed_ms = max(mark_ms, reached_ms) - grace_ms
            open_ms.append([start for start in self._window.starts_ms(when_ms) if end_ms(start) > closed_ms])
        values = [[value] * len(starts) for value, starts in zip(batch.values, open_ms, strict=True)]
        self._windows_of = list(map(len, open_ms))
        return repeated(batch, values), [start for starts in open_ms for start in starts]

    def _tell(self, updated: Updated, starts_ms: Sequence[int], batch: RecordBatch) -> None:
        """The newest result of each window that a batch changed."""
        results, failed = self._accumulators.shown(updated, batch)
        keys = [store_key[:-_SEQUENCE_BYTES] for store_key in updated.store_keys]
        told = result_rows(batch, updated.rows, keys, updated.accumulators)
        # Their mark is their own time: what is announced to the stages behind stays back by a whole window.
        told.timestamps_ms, told.marks_ms = [starts_ms[row] for row in updated.rows], None
        forward_told(self, told, results, failed)

    def _folded(self, store_keys: Sequence[bytes], batch: RecordBatch) -> Updated:
        """Where a record is in several windows and one of them fails on it, it is in none of them."""
        if self._window.is_single:
            return self._accumulators.fold(store_keys, batch)
        try:
            return self._accumulators.fold_or_raise(store_keys, batch)
        except Exception:  # noqa: BLE001 - comes up again at the record that causes it
            return self._folded_record_by_record(store_keys, batch)

    def _folded_record_by_record(self, store_keys: Sequence[bytes], batch: RecordBatch) -> Updated:
        parts: list[tuple[int, Updated]] = []
        first = 0
        for count in self._windows_of:
            after = first + count
            part, keys = batch.rows(first, after), store_keys[first:after]
            self._guard.run(
                partial(_fold_into, parts, first, self._accumulators, keys, part), batch.offsets[first]
            )
            first = after
        return _newest(parts)

    def _close(self, windows: list[Due]) -> None:
        store_keys = [store_key for _, store_key in windows]
        if self._rules.emit == "on_close" and self.children:
            starts_ms = {store_key: start_ms for start_ms, store_key in windows}
            live = self._accumulators.results(store_keys)
            keys = [store_key[:-_SEQUENCE_BYTES] for store_key, _ in live]
            timestamps_ms = [starts_ms[store_key] for store_key, _ in live]
            results = [result for _, result in live]
            self.forward(derived(self._name, self._context.partition, timestamps_ms, keys, results))
        self._accumulators.delete(store_keys)


def _fold_into(
    parts: list[tuple[int, Updated]],
    first: int,
    accumulators: Accumulators,
    store_keys: Sequence[bytes],
    batch: RecordBatch,
) -> None:
    parts.append((first, accumulators.fold_or_raise(store_keys, batch)))


def _newest(parts: Sequence[tuple[int, Updated]]) -> Updated:
    """What several folds changed, one after the other, as one. Each is given with the row that its first one was."""
    newest: dict[bytes, tuple[int, Any, bool]] = {}
    for first, part in parts:
        columns = zip(part.store_keys, part.rows, part.accumulators, part.is_new, strict=True)
        for key, row, accumulator, is_new in columns:
            was_new = key in newest and newest[key][2]
            newest[key] = (first + row, accumulator, is_new or was_new)
    ordered = sorted(newest)
    return Updated(
        rows=[newest[key][0] for key in ordered],
        store_keys=ordered,
        data=[],
        accumulators=[newest[key][1] for key in ordered],
        is_new=[newest[key][2] for key in ordered],
    )
