"""Records, batches of records, and where they are: topic partitions and offset ranges.

Offsets are only ever ``offset_first`` (included) and ``offset_next`` (excluded).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

Headers = tuple[tuple[str, bytes], ...]


def is_topic_name(name: str) -> bool:
    """True for what Kafka allows as the name of a topic.

    Every name from which topics, directories and objects are called is of this form: it leaves no folder.
    """
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


_RECORD_OVERHEAD_BYTES = 96
_HEADER_OVERHEAD_BYTES = 10


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Bytes that a record takes alone in a batch of Kafka's, uncompressed; rounded up by some for lengths and deltas.

    This is what ``max.message.bytes`` of a topic bounds.
    """
    size_bytes = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size_bytes += _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(content or b"")
    return size_bytes


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class OffsetRange(NamedTuple):
    """The offsets from ``offset_first`` up to, not including, ``offset_next``."""

    offset_first: int
    offset_next: int

    @property
    def slots(self) -> int:
        """Offset slots covered; compaction and markers make the number of records smaller."""
        return max(0, self.offset_next - self.offset_first)

    def until(self, offset_next: int) -> OffsetRange:
        """The part before ``offset_next``; empty when it begins behind that."""
        end = min(self.offset_next, offset_next)
        return OffsetRange(min(self.offset_first, end), end)

    @property
    def is_empty(self) -> bool:
        """True when there is nothing between the two ends."""
        return self.offset_next <= self.offset_first


def has_none(column: Sequence[bytes | None]) -> bool:
    """Whether a column of bytes has a None. Comparing each with None takes four times as long as all()."""
    return not all(column) and None in set(column)


class Record(NamedTuple):
    """One record, as bytes or decoded."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers = ()


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one topic partition, in columns of equal length.

    Keys and values are bytes (or None) when read, and any objects once decoded. ``offsets`` stay those of the
    source record each row came from, so a failure can always be traced to its input. ``headers`` is empty when
    no record of the batch has any.

    ``marks_ms`` says of each row how far event time had come in the source partition that it stems from, the row
    itself included (``stateflow/operators/steps/marks.py``); None stands for the rows' own timestamps.
    """

    source: TopicPartition
    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[Any]
    values: list[Any]
    headers: list[Headers] = field(default_factory=list)
    marks_ms: list[int] | None = None
    size_bytes: int | None = field(default=None, init=False, compare=False, repr=False)
    """Of keys and values, where whoever has read them has counted; no other batch that is made of this one has it."""

    def __len__(self) -> int:
        return len(self.offsets)

    def content_bytes(self) -> int:
        """Bytes of keys and values; counted now, unless whoever has read them has."""
        if self.size_bytes is not None:
            return self.size_bytes
        return sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))

    def first(self, rows: int) -> RecordBatch:
        """The first ``rows`` rows."""
        return self.rows(0, rows)

    def rows(self, first: int, after: int) -> RecordBatch:
        """The rows from ``first`` up to, not including, ``after``."""
        rows = slice(first, after)
        return RecordBatch(
            self.source,
            self.offsets[rows],
            self.timestamps_ms[rows],
            self.keys[rows],
            self.values[rows],
            self.headers[rows],
            None if self.marks_ms is None else self.marks_ms[rows],
        )

    def since(self, offset_first: int) -> RecordBatch:
        """The rows from an offset on."""
        return self.rows(bisect_left(self.offsets, offset_first), len(self))

    def records(self) -> Iterator[Record]:
        """The rows, one by one."""
        topic, partition = self.source
        headers: Sequence[Headers] = self.headers or [()] * len(self.offsets)
        for offset, timestamp_ms, key, value, header in zip(
            self.offsets, self.timestamps_ms, self.keys, self.values, headers, strict=True
        ):
            yield Record(topic, partition, offset, timestamp_ms, key, value, header)
