"""Where records enter and leave a stage: decoding, re-keying, writing to a topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.scalar import BytesCodec
from stateflow.codec.windowed import WindowedCodec, split_windowed
from stateflow.errors import DecodeError, EncodeError
from stateflow.operators.ahead import AheadLimit
from stateflow.operators.context import StageContext
from stateflow.operators.guard import Guard
from stateflow.operators.marks import running_marks, sent_marks
from stateflow.operators.rows import where, with_values, without
from stateflow.operators.step import Step
from stateflow.record import RecordBatch

EventTime = Callable[[Any], "int | datetime"]
"""Event time of a value: ms since 1970 UTC, or a datetime with a time zone."""

_LEFT_OUT_MS = -1


class SourceStep(Step):
    """Raw records of a source topic in, decoded values with their event times and marks out.

    Records without a value are left out and counted.
    """

    def __init__(
        self,
        value: Codec[Any],
        event_time: EventTime | None,
        limit: AheadLimit,
        context: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._value = value
        self._event_time = event_time
        self._limit = limit
        self._context = context
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Decode. The batch's timestamps are replaced in place by the event times.

        The host reads that column afterwards to tell event time; rows left out count for nothing there.
        """
        if self._event_time is None:
            timed = self._marked(self._limit.within_clock(batch))
            rows = decoded(present(timed, self._context), self._value, self._guard)
        else:
            rows = decoded(present(batch, self._context), self._value, self._guard)
            timed = rows = self._marked(self._limit.within_log(self._timed(rows, self._event_time)))
        if timed.timestamps_ms is not batch.timestamps_ms:
            times_ms = dict(zip(timed.offsets, timed.timestamps_ms, strict=True))
            batch.timestamps_ms[:] = [times_ms.get(offset, _LEFT_OUT_MS) for offset in batch.offsets]
        self.forward(rows)

    def _marked(self, rows: RecordBatch) -> RecordBatch:
        return replace(rows, marks_ms=running_marks(rows.timestamps_ms, self._context.part_mark_ms))

    def _timed(self, rows: RecordBatch, event_time: EventTime) -> RecordBatch:
        times_ms, failed = self._guard.map(lambda value: _as_ms(event_time(value)), rows.values, rows.offsets)
        return replace(without(rows, failed), timestamps_ms=times_ms)


class ReadStep(Step):
    """Raw records of a repartition topic in, decoded values with the marks that they carry out."""

    def __init__(self, value: Codec[Any], context: StageContext, guard: Guard) -> None:
        super().__init__()
        self._value = value
        self._context = context
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Decode."""
        rows = present(replace(batch, marks_ms=sent_marks(batch)), self._context)
        self.forward(decoded(rows, self._value, self._guard))


def decoded(rows: RecordBatch, codec: Codec[Any], guard: Guard) -> RecordBatch:
    """The rows with their values decoded; those that cannot be follow the policy."""
    try:
        return with_values(rows, codec.decode_many(rows.values))
    except DecodeError:  # once more, record by record, for the policy
        values, failed = guard.map(codec.decode, rows.values, rows.offsets)
        return with_values(without(rows, failed), values)


def present(batch: RecordBatch, context: StageContext) -> RecordBatch:
    """The rows that have a value; the others are counted."""
    missing = batch.values.count(None)
    if not missing:
        return batch
    context.count("empty_records_total", missing)
    return where(batch, [value is not None for value in batch.values])


def _as_ms(when: int | datetime) -> int:
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ValueError(f"event time {when!r} has no time zone")
        when = round(when.timestamp() * 1000)
    if when < 0:
        raise ValueError(f"event time {when} ms is before 1970")
    return when


class RekeyStep(Step):
    """Gives each record a new key and sends it through the step's repartition topic to the next stage."""

    def __init__(
        self,
        name: str,
        key_of: Callable[[Any], Any],
        codecs: tuple[Codec[Any], Codec[Any]],
        context: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._name = name
        self._key_of = key_of
        self._key, self._value = codecs
        self._context = context
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Encode and hand over."""
        columns = self._encoded_columns(batch.values)
        if columns is not None:
            self._context.rekey_many(self._name, *columns, batch.timestamps_ms, batch.marks_ms)
            return
        pairs, failed = self._guard.map(self._encoded, batch.values, batch.offsets)
        if pairs:
            keys, values = zip(*pairs, strict=True)
            kept = without(batch, failed)
            self._context.rekey_many(self._name, keys, values, kept.timestamps_ms, kept.marks_ms)

    def _encoded_columns(self, values: list[Any]) -> tuple[list[bytes], list[bytes | None]] | None:
        """Keys and values of a batch in which every record can be encoded; None to go record by record."""
        try:
            keys = self._key.encode_many(list(map(self._key_of, values)))
            encoded = self._value.encode_many(values)
        except Exception:  # noqa: BLE001 - comes up again at the record that causes it
            return None
        present = [key for key in keys if key is not None]
        return None if len(present) < len(values) or None in encoded else (present, encoded)

    def _encoded(self, value: Any) -> tuple[bytes, bytes]:
        key = self._key_of(value)
        if key is None:
            raise ValueError("the new key is None: such a record has no partition; filter it out before")
        if value is None:
            raise ValueError("the value is None: filter it out before")
        return self._key.encode(key), self._value.encode(value)


class SinkStep(Step):
    """Writes to an output topic. A value of None is written as a tombstone."""

    def __init__(
        self,
        topic: str,
        key: Callable[[bytes | None], bytes | None],
        value: Codec[Any],
        context: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._key = key
        self._value = value
        self._context = context
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Encode and send, in order."""
        try:
            keys = list(map(self._key, batch.keys))
            values = self._value.encode_many(batch.values)
        except (DecodeError, EncodeError):  # once more, record by record, for the policy
            self._process_one_by_one(batch)
        else:
            self._context.send_many(self._topic, keys, values, batch.timestamps_ms)

    def _process_one_by_one(self, batch: RecordBatch) -> None:
        pairs = list(zip(batch.keys, batch.values, strict=True))
        encoded, failed = self._guard.map(self._encoded, pairs, batch.offsets)
        if encoded:
            keys, values = zip(*encoded, strict=True)
            self._context.send_many(self._topic, keys, values, without(batch, failed).timestamps_ms)

    def _encoded(self, pair: tuple[bytes | None, Any]) -> tuple[bytes | None, bytes | None]:
        key, value = pair
        return self._key(key), None if value is None else self._value.encode(value)


def key_converter(inside: Codec[Any], outside: Codec[Any]) -> Callable[[bytes | None], bytes | None]:
    """How a stream's key bytes become a topic's.

    As they are when both are written alike or the topic's are plain bytes; a windowed key becomes its inner
    key where the topic declares that one (the record's timestamp, the window's start, then tells the
    window); else decoded and encoded anew.
    """
    if isinstance(outside, BytesCodec) or outside == inside:
        return lambda key: key
    if isinstance(inside, WindowedCodec) and not isinstance(outside, WindowedCodec):
        convert = key_converter(inside.key, outside)
        return lambda key: None if key is None else convert(split_windowed(key)[0])
    return lambda key: None if key is None else outside.encode(inside.decode(key))
