"""An aggregate per key over sliding windows.

Kept is one accumulator per key and instant, not per window: a window's result is merged from the instants in it, or
carried on from the window before by subtraction. An instant's entry has before the accumulator the end of the next
of its two windows that is to close: of the one that ends with it, then of the one that begins just after it. With that
the entry goes. What is late goes by record and mark alone (``windows.Sliding``), so windows that close are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.codec.windowed import window_suffix_of
from stateflow.operators.aggregates.adding import Outgrown
from stateflow.operators.aggregates.stamped_accumulators import StampedAccumulators
from stateflow.operators.steps import timers as timing
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import LatePolicy
from stateflow.operators.steps.failed_results import forward_told
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import NO_OFFSET, derived, left_of
from stateflow.operators.steps.step import Step
from stateflow.operators.steps.timers import Turn
from stateflow.operators.windows.instants import Instants
from stateflow.operators.windows.window_entry import Entry
from stateflow.operators.windows.windows import Emit, Sliding
from stateflow.record import RecordBatch
from stateflow.state.due_order import Due, WindowOrder
from stateflow.state.layout import split_window, window_key
from stateflow.store.base import Change, StateStore
from stateflow.store.derived import index_family


@dataclass(frozen=True, slots=True)
class SlidingRules:
    """When windows take records, speak, and go."""

    window: Sliding
    emit: Emit
    late: LatePolicy
    retention_ms: int
    """State is deleted when event time is further than this past the end of the last window that needs it."""


@dataclass(slots=True)
class _Cell:
    """What is folded of one instant."""

    closes_ms: int
    accumulator: Any
    row: int = -1
    """Row of its newest record that came with this batch; −1 for none."""
    is_new: bool = False


_Told = tuple[int, bytes, Any]
"""Row, or end of the window; key of the result; accumulator or result."""


class SlidingStep(Step):
    """One accumulator per key and instant. Results: key bytes ‖ window start as key, the start as time."""

    def __init__(
        self,
        name: str,
        rules: SlidingRules,
        accumulators: StampedAccumulators,
        context: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._name = name
        self._rules = rules
        self._difference_ms = rules.window.difference_ms
        self._accumulators = accumulators
        self._context = context
        self._guard = guard
        self._store: StateStore = context.store(name)
        order = context.store(index_family(name))
        self._order = WindowOrder(order)
        self._written = (self._store, order)
        self._entry = Entry(name, rules.window, rules.late, context, guard)

    def process(self, batch: RecordBatch) -> None:
        """Fold each record into its instant; on update say what the windows around it come to."""
        batch = self._entry.in_time(batch)
        rows_of: dict[bytes, list[int]] = {}
        for row, key in enumerate(batch.keys):
            rows_of.setdefault(key, []).append(row)
        told: list[_Told] = []
        for key in sorted(rows_of):
            try:
                whole = self._updated(key, self._folded(key, rows_of[key], batch))
            except Exception:  # noqa: BLE001 - comes up again at the record that causes it
                whole = self._updated(key, self._folded_in_parts(key, rows_of[key], batch))
            told += whole
        if self.children:
            self._tell(told, batch)

    needs_turns = False

    def advance(self, watermark_ms: int) -> bool:
        """Close, and drop what is past retention, a bounded number; True when more are due."""
        self._entry.reached_ms = watermark_ms
        due_ms = watermark_ms - self._rules.retention_ms - 1
        if due_ms < 0 or not self._order.may_be_due(due_ms):
            return False
        turn = Turn(self._context.clock, self._written, timing.WINDOWS_PER_TURN)
        while due := self._order.take_until(due_ms, timing.WINDOWS_PER_CHUNK):
            self._close(due)
            if turn.is_over(len(due)):
                break
        return self._order.may_be_due(due_ms)

    @property
    def is_timed(self) -> bool:
        """Windows wait for their end."""
        return True

    def pending_until_ms(self) -> int:
        """When the last window takes no more records."""
        last_ms = max((split_window(store_key)[1] for store_key, _ in self._store.scan()), default=UNKNOWN_MS)
        waits_ms = self._difference_ms + self._rules.window.grace_ms + 2
        return UNKNOWN_MS if last_ms == UNKNOWN_MS else last_ms + waits_ms

    # --- records ----------------------------------------------------------------------------------------

    def _folded(self, key: bytes, rows: list[int], batch: RecordBatch) -> dict[int, _Cell]:
        cells = self._cells_around(key, rows, batch)
        for row in rows:
            self._add(cells, batch.timestamps_ms[row], batch.values[row], row)
            self._refuse_outgrown(cells[batch.timestamps_ms[row]])
        return cells

    def _folded_in_parts(self, key: bytes, rows: list[int], batch: RecordBatch) -> dict[int, _Cell]:
        """The slow way after a failure: each record is in whole or not at all."""
        cells = self._cells_around(key, rows, batch)
        self._add_in_parts(key, cells, rows, batch)
        return cells

    def _add_in_parts(self, key: bytes, cells: dict[int, _Cell], rows: list[int], batch: RecordBatch) -> None:
        """Add what can be, by halves: to look at the windows around each record alone would take long."""
        add = partial(self._add_or_raise, key, cells, rows, batch)
        if len(rows) == 1:
            self._guard.run(add, batch.offsets[rows[0]])
            return
        try:
            add()
        except Exception:  # noqa: BLE001 - comes up again at the record that causes it
            middle = len(rows) // 2
            self._add_in_parts(key, cells, rows[:middle], batch)
            self._add_in_parts(key, cells, rows[middle:], batch)

    def _add_or_raise(self, key: bytes, cells: dict[int, _Cell], rows: list[int], batch: RecordBatch) -> None:
        """Add all of some records, if on update the windows that they are in can be told of; or change nothing."""
        tried: dict[int, _Cell] = {}
        for row in rows:
            when_ms = batch.timestamps_ms[row]
            if when_ms in cells and when_ms not in tried:
                cell = cells[when_ms]
                tried[when_ms] = replace(
                    cell, accumulator=self._accumulators.copied(cell.accumulator), row=-1
                )
            self._add(tried, when_ms, batch.values[row], row)
            if len(rows) > 1:
                self._refuse_outgrown(tried[when_ms])
        for cell in tried.values():
            self._accumulators.encoded(0, cell.accumulator)
        if self._rules.emit == "on_update":
            self._around(key, cells | tried, tried)
        cells |= tried

    def _refuse_outgrown(self, cell: _Cell) -> None:
        """Between two records nobody encodes it."""
        if self._accumulators.outgrows(cell.accumulator):
            raise Outgrown

    def _add(self, cells: dict[int, _Cell], when_ms: int, value: Any, row: int) -> None:
        cell = cells.get(when_ms)
        accumulator = self._accumulators.added(None if cell is None else cell.accumulator, value)
        if cell is None:
            first_ms = when_ms if self._rules.emit == "on_close" else when_ms + 1 + self._difference_ms
            cells[when_ms] = _Cell(first_ms, accumulator, row, is_new=True)
        else:
            cell.accumulator, cell.row = accumulator, row

    def _cells_around(self, key: bytes, rows: list[int], batch: RecordBatch) -> dict[int, _Cell]:
        """All of the key whose windows records of this batch may be in, or that are in these windows."""
        times_ms = [batch.timestamps_ms[row] for row in rows]
        if self._rules.emit == "on_update":
            first_ms = max(0, min(times_ms) - self._difference_ms - 1)
            return self._cells(key, first_ms, max(times_ms) + self._difference_ms + 1)
        distinct = sorted(set(times_ms))
        stored = self._store.get_many([window_key(key, when_ms) for when_ms in distinct])
        found = zip(distinct, stored, strict=True)
        return {
            when_ms: _Cell(*self._accumulators.decoded(data)) for when_ms, data in found if data is not None
        }

    def _cells(self, key: bytes, first_ms: int, last_ms: int) -> dict[int, _Cell]:
        cells = {}
        for store_key, data in self._store.scan(window_key(key, first_ms), window_key(key, last_ms + 1)):
            own, when_ms = split_window(store_key)
            if own == key:
                cells[when_ms] = _Cell(*self._accumulators.decoded(data))
        return cells

    def _updated(self, key: bytes, cells: dict[int, _Cell]) -> list[_Told]:
        """Write what has changed of one key; what there is to tell of it. Fails before it does anything."""
        changed = {when_ms: cell for when_ms, cell in sorted(cells.items()) if cell.row >= 0}
        told = self._around(key, cells, changed) if self._rules.emit == "on_update" else []
        self._store.put_many(
            [
                (window_key(key, when_ms), self._accumulators.encoded(cell.closes_ms, cell.accumulator))
                for when_ms, cell in changed.items()
            ]
        )
        new = [(cell.closes_ms, window_key(key, when)) for when, cell in changed.items() if cell.is_new]
        self._order.add(new)
        return told

    def _around(self, key: bytes, cells: dict[int, _Cell], changed: dict[int, _Cell]) -> list[_Told]:
        """The windows that records of this batch are in, and those that new instants have brought about."""
        instants = self._instants(cells)
        touched = sorted(changed.items())
        touched_ms, rows = [when_ms for when_ms, _ in touched], [cell.row for _, cell in touched]
        found: dict[int, int] = {}
        for when_ms in instants.times_ms:
            for start_ms in (when_ms - self._difference_ms, when_ms + 1):
                at = instants.contains(start_ms, touched_ms)
                if at >= 0:
                    found[start_ms] = rows[at]
        for when_ms, cell in touched:
            # A window that ends with another record is that record's, and no new one.
            is_of_another = when_ms + 1 + self._difference_ms in cells
            if cell.is_new and not is_of_another and not instants.is_empty(when_ms + 1):
                found.setdefault(when_ms + 1, cell.row)
        starts_ms = sorted(found)
        return [
            (found[start_ms], key + window_suffix_of(start_ms), whole)
            for start_ms, whole in zip(starts_ms, instants.over(starts_ms), strict=True)
        ]

    def _shown(self, told: Sequence[_Told]) -> list[_Told]:
        """Closed windows with results; one that fails follows the policy and is not told."""
        wholes, offsets = [whole for *_, whole in told], [NO_OFFSET] * len(told)
        results, failed = self._guard.map(self._accumulators.result, wholes, offsets)
        return [
            (at, key, result) for (at, key, _), result in zip(left_of(told, failed), results, strict=True)
        ]

    def _instants(self, cells: dict[int, _Cell]) -> Instants:
        folded = {when_ms: cell.accumulator for when_ms, cell in cells.items()}
        return Instants(self._difference_ms, self._accumulators, folded)

    def _tell(self, told: Sequence[_Told], batch: RecordBatch) -> None:
        offsets, keys = [batch.offsets[row] for row, _, _ in told], [key for _, key, _ in told]
        wholes, times_ms = [whole for *_, whole in told], [max(0, _start_of(key)) for key in keys]
        results, failed = self._guard.map(self._accumulators.result, wholes, offsets)
        rows = RecordBatch(batch.source, offsets, times_ms, list(keys), wholes)
        forward_told(self, rows, results, failed)

    # --- closing ----------------------------------------------------------------------------------------

    def _close(self, due: list[Due]) -> None:
        """Close windows by end and then by key; an instant's second window is known of when its first one is closed."""
        if self._rules.emit == "on_close":
            begin_ms = next((end for end, store_key in due if split_window(store_key)[1] == end), None)
            if begin_ms is not None:  # the first instant of which the second window is not among these yet
                self._order.add([each for each in due if each[0] > begin_ms + self._difference_ms])
                due = [each for each in due if each[0] <= begin_ms + self._difference_ms]
            if self.children:
                self._tell_closed(due)
        self._write_closed(due)

    def _write_closed(self, due: list[Due]) -> None:
        ending = [store_key for end_ms, store_key in due if split_window(store_key)[1] == end_ms]
        changes: dict[bytes, bytes | None] = {store_key: None for _, store_key in due}
        for store_key, data in zip(ending, self._store.get_many(ending), strict=True):
            if data is not None:
                next_ms = split_window(store_key)[1] + 1 + self._difference_ms
                changes[store_key] = self._accumulators.encoded(next_ms, self._accumulators.decoded(data)[1])
                self._order.add([(next_ms, store_key)])
        ordered: list[Change] = sorted(changes.items(), key=_store_key)
        self._store.put_many(ordered)

    def _tell_closed(self, due: list[Due]) -> None:
        ends_of: dict[bytes, list[tuple[int, bool]]] = {}
        for end_ms, store_key in due:
            key, when_ms = split_window(store_key)
            ends_of.setdefault(key, []).append((end_ms, when_ms == end_ms))
        told: list[_Told] = []
        for key, ends in ends_of.items():
            told += self._closed(key, ends)
        told.sort(key=_end_and_key)
        starts_ms = [max(0, end_ms - self._difference_ms) for end_ms, _, _ in told]
        keys, results = [key for _, key, _ in told], [result for _, _, result in told]
        self.forward(derived(self._name, self._context.partition, starts_ms, keys, results))

    def _closed(self, key: bytes, ends: list[tuple[int, bool]]) -> list[_Told]:
        """Results of one key's windows, given by their ends, in order, and whether they end with an instant."""
        first_ms, last_ms = ends[0][0] - self._difference_ms, ends[-1][0]
        instants = self._instants(self._cells(key, max(0, first_ms), last_ms))
        at = set(instants.times_ms)
        starts_ms = [
            end_ms - self._difference_ms
            for end_ms, ends_with_it in ends
            # One that begins after an instant may be empty, or also end with another one, which tells it.
            if ends_with_it or (end_ms not in at and not instants.is_empty(end_ms - self._difference_ms))
        ]
        told = [
            (start_ms + self._difference_ms, key + window_suffix_of(start_ms), whole)
            for start_ms, whole in self._wholes(instants, starts_ms)
        ]
        return self._shown(told)

    def _wholes(self, instants: Instants, starts_ms: list[int]) -> list[tuple[int, Any]]:
        """What windows come to, by their starts; one whose parts cannot be merged follows the policy on its own."""
        try:
            return list(zip(starts_ms, instants.over(starts_ms), strict=True))
        except Exception:  # noqa: BLE001 - comes up again at the window that causes it
            found, failed = self._guard.map(instants.of, starts_ms, [NO_OFFSET] * len(starts_ms))
            return list(zip(left_of(starts_ms, failed), found, strict=True))


def _start_of(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big", signed=True)


def _store_key(change: Change) -> bytes:
    return change[0]


def _end_and_key(told: _Told) -> tuple[int, bytes]:
    return told[0], told[1]
