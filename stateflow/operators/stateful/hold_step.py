"""The newest row of each key, held back until it is due in event time: what comes meanwhile takes its place.

What is held is state, under the routing key and what the row's key has behind it (a window). The order in which it
falls due is derived (``state/due_order.py``), and it is told in bounded turns. A row whose time has come by its key's
next row is told before that one, whether it has had its turn or not, so neither turns nor batches show in what is told
of a key.

Where rows withdraw others, as those of sessions do, a deletion of what was never told is not told either. So it is
kept of each key that it was told, as long as it may be withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.codec.held import Held, HeldCodec
from stateflow.codec.scalar import Bytes
from stateflow.errors import BufferFull
from stateflow.operators.aggregates.aggregation import with_keys
from stateflow.operators.stateful.limits import Bounds
from stateflow.operators.steps import timers as timing
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.failed_results import FAILED
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.headers import packed, unpacked
from stateflow.operators.steps.marks import marks_of
from stateflow.operators.steps.rows import NO_OFFSET
from stateflow.operators.steps.step import Step
from stateflow.operators.steps.timers import Turn
from stateflow.operators.topics.tombstones import forward_sparing
from stateflow.record import Headers, RecordBatch, TopicPartition
from stateflow.state.due_order import Due, WindowOrder
from stateflow.state.layout import prefixed_key, split_prefixed
from stateflow.store.base import StateStore
from stateflow.store.derived import index_family

_LAST_MS = (1 << 63) - 2

DueOf = Callable[[bytes, int, int], int]
"""Of a row that was not held yet: what its key has behind the routing key, its time, event time → when it is due."""


@dataclass(frozen=True, slots=True)
class HoldRules:
    """What is held where, and until when."""

    store: str
    codec: HeldCodec
    due_ms: DueOf
    bounds: Bounds
    suffix_bytes: int = 0
    """What the keys of rows have behind the routing key."""
    has_deletions: bool = True
    """Whether a row without a value is a deletion, of which functions of the value are spared."""
    withdrawn_until_ms: Callable[[bytes], int] | None = None
    """Where rows withdraw others: until when one may withdraw what was told of a key."""


@dataclass(slots=True)
class _Row:
    key: bytes
    timestamp_ms: int
    mark_ms: int
    event_ms: int
    """Event time as it is with it."""
    before_ms: int
    """What was due by then was told before it."""
    value: Any
    headers: Headers


def held_entry(rules: HoldRules, key_codec: Mapping[str, Any], late_ms: int) -> StoreEntry:
    """The store as the catalog has it; what is told may be so much later than its time."""
    return StoreEntry(
        name=rules.store,
        stage="",
        kind="map",
        layout="prefixed",
        key_codec=dict(key_codec),
        value_codec={**rules.codec.describe(), "map_key": Bytes.describe()},
        grace_ms=late_ms or None,
    )


class HoldStep(Step):
    """Passes on what is due; what is told stands at no input record, and has the time and mark that it came with."""

    takes_tombstones = True

    def __init__(self, rules: HoldRules, context: StageContext, guard: Guard) -> None:
        super().__init__()
        self._rules = rules
        self._context = context
        self._guard = guard
        self._store: StateStore = context.store(rules.store)
        order = context.store(index_family(rules.store))
        self._order = WindowOrder(order)
        self._written = (self._store, order)
        self._reached_ms = context.watermark_ms
        self._told = self._no_rows()
        self._records = self._bytes = 0
        if rules.bounds.are_there:  # what is bounded takes no long scan
            for store_key, data in self._store.scan():
                self._count(store_key, data, 1)

    def process(self, batch: RecordBatch) -> None:
        """Hold each row, as of event time as it is with that row."""
        batch = with_keys(batch, self._guard)
        others_ms = self._context.others_ms
        events_ms = [max(self._reached_ms, min(mark_ms, others_ms)) for mark_ms in marks_of(batch)]
        for row, offset in self._rows(batch, events_ms, events_ms):
            if self._guard.run(partial(self._hold, row), offset):
                self.make_room(row.event_ms)
        self.pass_on()

    def hold_together(self, batch: RecordBatch, events_ms: Sequence[int], before_ms: int) -> None:
        """Hold rows that stand for several records each: until which of them a held row was the newest is not known.

        What was due by ``before_ms``, event time as it is with the first of these records, was told before any of them.
        Nothing else is told until all are held: ``make_room`` and ``pass_on`` follow. Where a result failed, or cannot
        be held, the one that is held before it is not the newest, and goes.
        """
        for row, offset in self._rows(batch, events_ms, [before_ms] * len(batch)):
            if not self._guard.run(partial(self._hold, row), offset) and row.timestamp_ms >= 0:
                self._hold(replace(row, value=FAILED))

    def make_room(self, event_ms: int) -> None:
        """Tell the earliest as long as too much is held, or refuse to hold so much, at some event time."""
        bounds, kept = self._rules.bounds, list[Due]()
        while not bounds.allow(self._records, self._bytes):
            (earliest,) = self._order.take_until(_LAST_MS, 1)
            data = self._store.get(earliest[1])
            assert data is not None, "the order has nothing that the store has not"
            if not self._rules.codec.holds(data):
                kept.append(earliest)
            elif bounds.when_full == "fail" and earliest[0] > event_ms:
                raise self._full()
            else:
                self._release([earliest])
        self._order.add(kept)

    def advance(self, watermark_ms: int) -> bool:
        """Tell what is due, a bounded number; True when more is."""
        self._reached_ms = watermark_ms
        if watermark_ms < 0 or not self._order.may_be_due(watermark_ms):
            return False
        turn = Turn(self._context.clock, self._written, timing.WINDOWS_PER_TURN)
        while due := self._order.take_until(watermark_ms, timing.WINDOWS_PER_CHUNK):
            self._release(due)
            if turn.is_over(len(due)):
                break
        self.pass_on()
        return self._order.may_be_due(watermark_ms)

    @property
    def is_timed(self) -> bool:
        """Rows wait for event time."""
        return True

    def pending_until_ms(self) -> int:
        """When the last of them is due."""
        last_ms = self._order.last_start_ms()
        return UNKNOWN_MS if last_ms is None else last_ms

    # --- rows -------------------------------------------------------------------------------------------

    def _rows(
        self, batch: RecordBatch, events_ms: Sequence[int], before_ms: Sequence[int]
    ) -> Iterator[tuple[_Row, int]]:
        """Rows and their offsets."""
        headers: Sequence[Headers] = batch.headers or [()] * len(batch)
        self._store.get_many(
            sorted({self._store_key(key) for key in batch.keys})
        )  # one lookup on disk for all
        columns = (
            batch.keys,
            batch.timestamps_ms,
            marks_of(batch),
            events_ms,
            before_ms,
            batch.values,
            headers,
        )
        for offset, *row in zip(batch.offsets, *columns, strict=True):
            yield _Row(*row), offset

    def _hold(self, row: _Row) -> None:
        """Fails before it does anything."""
        if row.timestamp_ms < 0:
            raise ValueError("the record has no event time, and it is to be held until a time")
        store_key = self._store_key(row.key)
        data = self._store.get(store_key)
        before = None if data is None else self._rules.codec.decode(data)
        is_due = before is not None and before.holds and before.due_ms <= row.before_ms
        held = self._following(row, split_prefixed(store_key)[1], before, is_due=is_due)
        after = None if held is None else self._rules.codec.encode(held)
        is_ordered = False
        if before is None and held is None:
            return
        if before is not None and data is not None:
            if is_due:
                self._tell(store_key, before)
            is_ordered = held is not None and held.due_ms == before.due_ms
            if not is_ordered:
                self._order.remove([(before.due_ms, store_key)])
            self._count(store_key, data, -1)
        if held is not None and not is_ordered:
            self._order.add([(held.due_ms, store_key)])
        self._write(store_key, after)

    def _following(self, row: _Row, suffix: bytes, before: Held | None, *, is_due: bool) -> Held | None:
        """What is held after a row; None where it deletes what was never told."""
        rules, was_told, due_ms = self._rules, False, None
        if before is not None:
            was_told = before.value is not None if is_due else before.was_told
            due_ms = before.due_ms if before.holds and not is_due else None
        if rules.withdrawn_until_ms is None:
            was_told = False  # nobody asks
        elif row.value is None and not was_told:
            return None
        if row.value is FAILED:
            return self._told_until(suffix, row) if was_told else None
        if due_ms is None:
            due_ms = rules.due_ms(suffix, row.timestamp_ms, row.event_ms)
        headers = packed(row.headers)
        return Held(due_ms, row.timestamp_ms, row.mark_ms, row.value, headers, was_told=was_told)

    def _write(self, store_key: bytes, data: bytes | None) -> None:
        if data is None:
            self._store.delete(store_key)
        else:
            self._store.put(store_key, data)
            self._count(store_key, data, 1)

    def _release(self, due: Sequence[Due]) -> None:
        """Tell what was taken out of the order, and remember of it what may be withdrawn."""
        store_keys = [store_key for _, store_key in due]
        for store_key, data in zip(store_keys, self._store.get_many(store_keys), strict=True):
            assert data is not None, "the order has nothing that the store has not"
            held = self._rules.codec.decode(data)
            self._count(store_key, data, -1)
            if held.holds:
                self._tell(store_key, held)
            told = self._told_before(store_key, held)
            if told is not None:
                self._order.add([(told.due_ms, store_key)])
            self._write(store_key, None if told is None else self._rules.codec.encode(told))

    def _told_before(self, store_key: bytes, held: Held) -> Held | None:
        """That a key was told, where that may have to be withdrawn yet."""
        if self._rules.withdrawn_until_ms is None or not held.holds or held.value is None:
            return None
        return self._told_until(split_prefixed(store_key)[1], held)

    def _told_until(self, suffix: bytes, row: Held | _Row) -> Held | None:
        """That a key was told, where it may have to be withdrawn yet."""
        until = self._rules.withdrawn_until_ms
        until_ms = UNKNOWN_MS if until is None else until(suffix)
        if until_ms <= self._reached_ms:
            return None
        return Held(until_ms, row.timestamp_ms, row.mark_ms, holds=False, was_told=True)

    def _full(self) -> BufferFull:
        return BufferFull(
            f"{self._rules.store!r} is to hold more in one task than it may: {self._records:,} rows,"
            f" {self._bytes:,} bytes.",
            action="Raise max_records or max_bytes, use more partitions, or let the earliest go: when_full='emit'.",
            store=self._rules.store,
            records=self._records,
            bytes=self._bytes,
        )

    def _count(self, store_key: bytes, data: bytes, sign: int) -> None:
        if self._rules.bounds.are_there and self._rules.codec.holds(data):
            self._records += sign
            self._bytes += sign * (len(store_key) + len(data))

    # --- results ----------------------------------------------------------------------------------------

    def _tell(self, store_key: bytes, held: Held) -> None:
        told = self._told
        told.offsets.append(NO_OFFSET)
        told.timestamps_ms.append(held.timestamp_ms)
        told.keys.append(b"".join(split_prefixed(store_key)))
        told.values.append(held.value)
        told.headers.append(unpacked(held.headers))
        assert told.marks_ms is not None, "what is told has marks of its own"
        told.marks_ms.append(held.mark_ms)

    def pass_on(self) -> None:
        """Hand on what was told."""
        told, self._told = self._told, self._no_rows()
        if not len(told):
            return
        if told.marks_ms == told.timestamps_ms:
            told.marks_ms = None
        if not any(told.headers):
            told.headers = []
        if self._rules.has_deletions:
            forward_sparing(self, told)
        else:
            self.forward(told)

    def _no_rows(self) -> RecordBatch:
        source = TopicPartition(self._rules.store, self._context.partition)
        return RecordBatch(source, [], [], [], [], marks_ms=[])

    def _store_key(self, key: bytes) -> bytes:
        border = len(key) - self._rules.suffix_bytes
        return prefixed_key(key[:border], key[border:])
