"""Where records enter a stage: decoding them, and telling their event times and marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import Any

from stateflow.codec.base import Codec
from stateflow.errors import DecodeError
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.headers import with_own_headers
from stateflow.operators.steps.marks import running_marks, sent_marks
from stateflow.operators.steps.reads import Reader, Reads, all_of, reads_of
from stateflow.operators.steps.rows import where, with_values, without
from stateflow.operators.steps.step import Step
from stateflow.operators.topics.future_records import AheadLimit
from stateflow.operators.topics.source_keys import SourceKeys
from stateflow.record import RecordBatch, has_none
from stateflow.times import NO_TIME_MS, time_ms

EventTime = Callable[[Any], "int | datetime"]
"""Event time of a value: ms since 1970 UTC, or a datetime with a time zone."""


class SourceStep(Step):
    """Raw records of a source topic in, decoded values with their event times and marks out.

    A record without a value, a tombstone, reaches the steps that take such; for the others it is left out and counted.
    One without a key, too, says nothing, and is left out altogether. A key that cannot be decoded follows the policy
    as a value does, whatever the steps behind do with it; event time counts the record.
    """

    def __init__(
        self,
        value: Codec[Any],
        event_time: EventTime | None,
        limit: AheadLimit,
        context: StageContext,
        guard: Guard,
        keys: SourceKeys,
    ) -> None:
        super().__init__()
        self._keys = keys
        self._value = Reader(value, lambda: all_of([self.own_reads(), *self.reads_behind(value)]))
        self._event_time = event_time
        self._limit = limit
        self._context = context
        self._guard = guard
        self._foreseen: tuple[list[Any], list[Any], list[int]] | None = None
        """The raw values that ``event_times_ms`` has just read without a failure, what they are, and their times."""

    def own_codecs(self) -> Iterable[Codec[Any]]:
        """Those of the keys and the values."""
        return self._keys.codec, self._value.codec

    def own_reads(self) -> Reads | None:
        """What event times are read from."""
        return Reads() if self._event_time is None else reads_of(self._event_time)

    def event_times_ms(self, batch: RecordBatch) -> Sequence[int]:
        """The event time that each raw record brings, −1 for one that is refused, cannot be read or has none."""
        if self._event_time is None:
            return self._limit.times_within(batch.timestamps_ms, None)
        return self._limit.times_within(self._foresee(batch, self._event_time), batch.timestamps_ms)

    def process(self, batch: RecordBatch) -> None:
        """Decode. The batch's timestamps are replaced in place by the event times.

        The host reads that column afterwards to tell event time; rows left out count for nothing there.
        """
        tombstones = _tombstones(batch)
        batch = with_own_headers(batch)  # its other columns are the host's
        if self._event_time is None:
            timed = self._marked(self._limit.within_clock(batch))
            rows = decoded(self._not_empty(timed, tombstones), self._value, self._guard)
        else:
            rows = self._limit.within_log(self._read(batch, self._event_time, tombstones))
            timed = rows = self._marked(self._as_event_time_stands(rows) if tombstones else rows)
        if timed.timestamps_ms is not batch.timestamps_ms:
            times_ms = dict(zip(timed.offsets, timed.timestamps_ms, strict=True))
            batch.timestamps_ms[:] = [times_ms.get(offset, NO_TIME_MS) for offset in batch.offsets]
        rows = self._keys.readable(rows)
        if tombstones:
            self._forward_with(rows, tombstones)
        else:
            self.forward(rows)

    def _not_empty(self, batch: RecordBatch, tombstones: Set[int]) -> RecordBatch:
        if not tombstones or None not in batch.keys:
            return batch
        pairs = zip(batch.keys, batch.values, strict=True)
        mask = [key is not None or value is not None for key, value in pairs]
        return _counted(where(batch, mask), len(batch), self._context)

    def _marked(self, rows: RecordBatch) -> RecordBatch:
        return replace(rows, marks_ms=running_marks(rows.timestamps_ms, self._context.part_mark_ms))

    def _foresee(self, batch: RecordBatch, event_time: EventTime) -> list[int]:
        try:
            values = self._value.decode_many(batch.values)
            times_ms = [time_ms(event_time(value)) for value in values]
        except Exception:  # noqa: BLE001 - comes up again in ``process``, for the policy
            return [self._foreseen_ms(data, event_time) for data in batch.values]
        self._foreseen = (batch.values, values, times_ms)
        return times_ms

    def _foreseen_ms(self, data: bytes | None, event_time: EventTime) -> int:
        try:
            return NO_TIME_MS if data is None else time_ms(event_time(self._value.decode(data)))
        except Exception:  # noqa: BLE001 - as above
            return NO_TIME_MS

    def _read(self, batch: RecordBatch, event_time: EventTime, tombstones: Set[int]) -> RecordBatch:
        """The rows decoded, with their event times; what ``event_times_ms`` has found is not computed again."""
        foreseen, self._foreseen = self._foreseen, None
        if foreseen is not None and foreseen[0] is batch.values and not tombstones:
            return replace(with_values(batch, foreseen[1]), timestamps_ms=foreseen[2])
        rows = decoded(self._not_empty(batch, tombstones), self._value, self._guard)
        return self._timed(rows, event_time, tombstones)

    def _timed(self, rows: RecordBatch, event_time: EventTime, tombstones: Set[int]) -> RecordBatch:
        """The rows with the event times that their values tell; a tombstone has none."""
        if tombstones:
            told = list(zip(rows.values, rows.offsets, strict=True))
            times_ms, failed = self._guard.map(
                lambda row: NO_TIME_MS if row[1] in tombstones else time_ms(event_time(row[0])),
                told,
                rows.offsets,
            )
        else:
            times_ms, failed = self._guard.map(
                lambda value: time_ms(event_time(value)), rows.values, rows.offsets
            )
        return replace(without(rows, failed), timestamps_ms=times_ms)

    def _as_event_time_stands(self, rows: RecordBatch) -> RecordBatch:
        """The rows, those without a time of their own at the largest of their partition before them."""
        times_ms = rows.timestamps_ms
        stands_ms = running_marks(times_ms, max(0, self._context.part_mark_ms)) or times_ms
        pairs = zip(times_ms, stands_ms, strict=True)
        return replace(rows, timestamps_ms=[stood if when < 0 else when for when, stood in pairs])

    def _forward_with(self, rows: RecordBatch, tombstones: Set[int]) -> None:
        others = where(rows, [offset not in tombstones for offset in rows.offsets])
        if not all(child.takes_tombstones for child in self.children):
            _counted(others, len(rows), self._context)
        for child in self.children:
            given = rows if child.takes_tombstones else others
            if len(given):
                child.process(given)


class ReadStep(Step):
    """Raw records of a repartition topic in, decoded values with the marks that they carry out."""

    def __init__(self, value: Codec[Any], context: StageContext, guard: Guard) -> None:
        super().__init__()
        self._value = Reader(value, lambda: all_of(self.reads_behind(value)))
        self._context = context
        self._guard = guard

    def own_codecs(self) -> Iterable[Codec[Any]]:
        """That of the values."""
        return (self._value.codec,)

    def own_reads(self) -> Reads | None:
        """Nothing: times and marks come with the records."""
        return Reads()

    def event_times_ms(self, batch: RecordBatch) -> Sequence[int]:
        """The marks that the records carry."""
        marks_ms = sent_marks(batch)
        return batch.timestamps_ms if marks_ms is None else marks_ms

    def process(self, batch: RecordBatch) -> None:
        """Decode."""
        rows = replace(with_own_headers(batch), marks_ms=sent_marks(batch))
        if has_none(batch.values):
            rows = _counted(
                where(rows, [value is not None for value in rows.values]), len(rows), self._context
            )
        self.forward(decoded(rows, self._value, self._guard))


def decoded(rows: RecordBatch, codec: Reader, guard: Guard) -> RecordBatch:
    """The rows with their values decoded; those that cannot be follow the policy."""
    try:
        return with_values(rows, codec.decode_many(rows.values))
    except DecodeError:  # once more, record by record, for the policy
        values, failed = guard.map(
            lambda data: None if data is None else codec.decode(data), rows.values, rows.offsets
        )
        return with_values(without(rows, failed), values)


def _tombstones(batch: RecordBatch) -> Set[int]:
    """The offsets of the records without a value."""
    if not has_none(batch.values):
        return frozenset()
    rows = zip(batch.offsets, batch.values, strict=True)
    return {offset for offset, value in rows if value is None}


def _counted(left: RecordBatch, rows: int, context: StageContext) -> RecordBatch:
    """What is left of so many rows; those without a value that are gone are counted."""
    if len(left) < rows:
        context.count("empty_records_total", rows - len(left))
    return left
