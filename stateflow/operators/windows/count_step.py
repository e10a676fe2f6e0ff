"""An aggregate per key and window of records: the first ten of a key, the next ten, and so on.

Every open window of a key is an entry, and there is one for the window that the key's next record would open, so that
what has been counted is never forgotten. Time has no part in it: no record is late, and a window is closed by the
record that fills it. Which records those are depends on their order in the log, for keys that several partitions
bring on the order in which these were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from stateflow.codec.base import Codec
from stateflow.codec.counted import SEEN_BYTES, CountedValueCodec, seen_in, with_seen
from stateflow.codec.optional import OptionalCodec
from stateflow.codec.windowed import window_suffix_of
from stateflow.operators.aggregates.adding import Outgrown
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.operators.aggregates.aggregation import result_rows, with_keys
from stateflow.operators.steps.failed_results import forward_told
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.step import Step
from stateflow.operators.windows.windows import CountWindow, Emit
from stateflow.record import RecordBatch
from stateflow.state.layout import split_window, window_key
from stateflow.store.base import Change, StateStore

_NO_LAST = (1 << 63) - 1


class _Told(NamedTuple):
    row: int
    key: bytes
    accumulator: Any


@dataclass(slots=True)
class _Counting:
    """The open windows of one key, by the number of their first record."""

    seen: int
    open: dict[int, Any]
    """A window in which nothing is yet has no accumulator."""


class CountedAccumulators:
    """How the windows of one key are read, changed and written."""

    def __init__(self, aggregate: Aggregate[Any, Any, Any], window: CountWindow, store: StateStore) -> None:
        self._aggregate = aggregate
        self._codec: Codec[Any] = OptionalCodec(aggregate.codec())
        self._window = window
        self._store = store

    def read(self, key: bytes) -> _Counting:
        """What is known of a key."""
        entries = self._store.scan(window_key(key, 0), window_key(key, _NO_LAST))
        own = [(split_window(store_key), data) for store_key, data in entries]
        found = {first: data for (of, first), data in own if of == key}
        seen = max(map(seen_in, found.values()), default=0)
        decoded = {first: self._codec.decode(data[SEEN_BYTES:]) for first, data in found.items()}
        return _Counting(seen, decoded or {0: None})

    def add(self, counting: _Counting, value: Any, *, copied: bool) -> dict[int, Any]:
        """Fold a record into the open windows; returns their accumulators. Fails before it changes anything.

        ``copied``: the accumulators stay whole should the aggregate fail. Else it may also raise ``Outgrown``.
        """
        size, advance, number = self._window.size, self._window.step, counting.seen
        changed: dict[int, Any] = {}
        for first, accumulator in counting.open.items():
            if first <= number:
                is_full = first + size == number + 1
                changed[first] = self._added(accumulator, value, copied=copied, is_full=is_full)
        still_open = {
            first: each for first, each in (counting.open | changed).items() if first + size > number + 1
        }
        after = (
            -(-(number + 1) // advance) * advance
        )  # where the window of the next record to open one begins
        still_open.setdefault(after, None)
        counting.seen, counting.open = number + 1, still_open
        return changed

    def write(self, key: bytes, before: Sequence[int], counting: _Counting) -> None:
        """Put the windows of a key in the place of those that were there."""
        changes: dict[bytes, bytes | None] = {window_key(key, first): None for first in before}
        for first, accumulator in counting.open.items():
            payload = b"\x00" if accumulator is None else self._codec.encode(accumulator)
            changes[window_key(key, first)] = with_seen(payload, counting.seen)
        ordered: list[Change] = sorted(changes.items(), key=lambda change: change[0])
        self._store.put_many(ordered)

    def result(self, accumulator: Any) -> Any:
        """What is shown of it."""
        return self._aggregate.result(accumulator)

    def _added(self, accumulator: Any, value: Any, *, copied: bool, is_full: bool) -> Any:
        if accumulator is None:
            accumulator = self._aggregate.initial()
        elif copied:
            accumulator = self._codec.decode(self._codec.encode(accumulator))
        added = self._aggregate.add_many(accumulator, [value])
        # A full window is not written any more: what could not be kept is refused here, as it is with the others.
        if copied or is_full:
            self._codec.encode(added)
        elif self._aggregate.outgrows is not None and self._aggregate.outgrows(added):
            raise Outgrown
        return added


class CountStep(Step):
    """Results: key bytes ‖ number of the window's first record as key; they stand where its newest record stood."""

    def __init__(
        self, accumulators: CountedAccumulators, window: CountWindow, emit: Emit, guard: Guard
    ) -> None:
        super().__init__()
        self._accumulators = accumulators
        self._window = window
        self._emit = emit
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Count a key's records in their order."""
        batch = with_keys(batch, self._guard)
        rows_of: dict[bytes, list[int]] = {}
        for row, key in enumerate(batch.keys):
            rows_of.setdefault(key, []).append(row)
        told: list[_Told] = []
        for key in sorted(rows_of):
            try:
                told += self._count(key, rows_of[key], batch, copied=False)
            except Exception:  # noqa: BLE001 - comes up again at the record that causes it
                told += self._count(key, rows_of[key], batch, copied=True)
        if self.children:
            self._tell(told, batch)

    def _tell(self, told: list[_Told], batch: RecordBatch) -> None:
        """Results are computed where they are told; one that fails is let go, and its record stays counted."""
        offsets = [batch.offsets[each.row] for each in told]
        accumulators = [each.accumulator for each in told]
        results, failed = self._guard.map(self._accumulators.result, accumulators, offsets)
        rows, keys = [each.row for each in told], [each.key for each in told]
        forward_told(self, result_rows(batch, rows, keys, accumulators), results, failed)

    def _count(self, key: bytes, rows: list[int], batch: RecordBatch, *, copied: bool) -> list[_Told]:
        counting = self._accumulators.read(key)
        before, told = list(counting.open), dict[int, _Told]()
        for row in rows:
            count = partial(self._count_one, key, row, batch.values[row], counting, told, copied=copied)
            if copied:
                self._guard.run(count, batch.offsets[row])
            else:
                count()
        self._accumulators.write(key, before, counting)
        return [told[first] for first in sorted(told)]

    def _count_one(
        self, key: bytes, row: int, value: Any, counting: _Counting, told: dict[int, _Told], *, copied: bool
    ) -> None:
        for first, accumulator in self._accumulators.add(counting, value, copied=copied).items():
            if self._emit == "on_update" or first + self._window.size == counting.seen:
                told[first] = _Told(row, key + window_suffix_of(first), accumulator)


def counted_codec(aggregate: Aggregate[Any, Any, Any], window: CountWindow) -> Codec[Any]:
    """What the store's values are, as the catalog has it."""
    return CountedValueCodec(OptionalCodec(aggregate.codec()), window.size, window.step)
