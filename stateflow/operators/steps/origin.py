"""Where a stage's rows come from: the raw records at work, and the place in a source topic that each began at.

A record of a repartition topic tells where it began in a header of its own, where a later stage may send it to a
dead-letter topic: partition int32 ‖ offset int64 ‖ length of the topic uint16 ‖ topic ‖ key, if any, behind one byte 1.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from stateflow.changelog.event_time import header_value
from stateflow.changelog.format import ORIGIN_HEADER
from stateflow.errors import StateCorrupt
from stateflow.operators.steps.rows import NO_OFFSET
from stateflow.record import Headers, Record, RecordBatch

_PLACE = struct.Struct(">iqH")
_HAS_KEY = b"\x01"


class Place(NamedTuple):
    """A record of a source topic, by its place and its key."""

    topic: str
    partition: int
    offset: int
    key: bytes | None

    def encode(self) -> bytes:
        """The bytes of the header."""
        topic = self.topic.encode()
        key = b"" if self.key is None else _HAS_KEY + self.key
        return _PLACE.pack(self.partition, self.offset, len(topic)) + topic + key

    @classmethod
    def decode(cls, data: bytes) -> Place:
        """The place that a header tells. Raises ``StateCorrupt`` for one that no re-key step has written."""
        head = _PLACE.size
        partition, offset, length = _PLACE.unpack(data[:head]) if len(data) >= head else (0, 0, 0)
        topic, key = data[head : head + length], data[head + length :]
        if not length or len(topic) < length or (key and not key.startswith(_HAS_KEY)):
            raise StateCorrupt(
                f"the origin of a record on a repartition topic cannot be read from {len(data)} bytes.",
                action="something else writes to this repartition topic; only the application itself may.",
            )
        return cls(topic.decode("utf-8", "replace"), partition, offset, key[1:] if key else None)


class Origin:
    """The raw batch that a stage is working on, so that a failure can hand out the record as it was read."""

    def __init__(self) -> None:
        self._batch: RecordBatch | None = None
        self._timestamps_ms: list[int] = []
        self._is_source = False

    def enter(self, batch: RecordBatch, *, is_source: bool) -> None:
        """Begin a batch; ``is_source`` says that it is of a source topic."""
        self._batch = batch
        self._timestamps_ms = list(batch.timestamps_ms)
        self._is_source = is_source

    def sent_ms(self, batch: RecordBatch) -> list[int]:
        """The timestamps on Kafka of the rows of the raw batch, or of some of them."""
        if len(batch) == len(self._timestamps_ms):
            return self._timestamps_ms
        assert self._batch is not None, "rows are worked on between enter and leave"
        sent_ms = dict(zip(self._batch.offsets, self._timestamps_ms, strict=True))
        return [sent_ms[offset] for offset in batch.offsets]

    def leave(self) -> None:
        """The batch is done."""
        self._batch = None

    def record(self, offset: int) -> Record | None:
        """The record as it was read; None for a row that no input record stands behind."""
        batch = self._batch
        if batch is None or offset == NO_OFFSET:
            return None
        row = bisect_left(batch.offsets, offset)
        assert batch.offsets[row] == offset, "rows keep the offsets of their batch"
        headers = batch.headers[row] if batch.headers else ()
        topic, partition = batch.source
        return Record(
            topic, partition, offset, self._timestamps_ms[row], batch.keys[row], batch.values[row], headers
        )

    def place(self, record: Record) -> Place | None:
        """Where a record that is at work began; None for one of a repartition topic that does not tell it."""
        if self._is_source:
            return Place(record.topic, record.partition, record.offset, record.key)
        told = header_value(record.headers, ORIGIN_HEADER)
        return None if told is None else Place.decode(told)

    def headers(self, offsets: Sequence[int]) -> list[Headers]:
        """The headers that tell where rows of these offsets began; none where that is not known."""
        batch = self._batch
        if batch is None:  # what time sends stands for no record
            return [()] * len(offsets)
        told = _told_by_source(batch) if self._is_source else list(map(_handed_on, batch.headers))
        if offsets == batch.offsets and told:
            return told
        of_offset = dict(zip(batch.offsets, told, strict=True)) if told else {}
        return [of_offset.get(offset, ()) for offset in offsets]


def _told_by_source(batch: RecordBatch) -> list[Headers]:
    (name, partition), pack = batch.source, _PLACE.pack
    topic = name.encode()
    size, ends = len(topic), [topic if key is None else topic + _HAS_KEY + key for key in batch.keys]
    return [
        ((ORIGIN_HEADER, pack(partition, offset, size) + end),)
        for offset, end in zip(batch.offsets, ends, strict=True)
    ]


def _handed_on(headers: Headers) -> Headers:
    return tuple(header for header in headers if header[0] == ORIGIN_HEADER)
