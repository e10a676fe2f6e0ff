"""Reading changelogs for the newest value of each key: straight from the client where it can be done."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from stateflow.log.base import Reader
from stateflow.native.newest import NewestValues
from stateflow.record import RecordBatch, TopicPartition


@dataclass(slots=True)
class NewestSink:
    """Where the records of one partition go, and what came; nothing from ``offset_next`` on is taken."""

    values: NewestValues
    offset_next: int
    records_total: int = 0
    bytes_total: int = 0
    """Of keys and values."""

    def add(self, batch: RecordBatch) -> None:
        """Take records in; a later value of a key replaces the one before."""
        batch = _before(batch, self.offset_next)
        self.count(len(batch), self.values.add(batch.keys, batch.values))

    def count(self, records: int, size_bytes: int) -> None:
        """So much was taken in."""
        self.records_total += records
        self.bytes_total += size_bytes


class NewestRecords(Protocol):
    """What is kept of the newest record of each key, its time included."""

    def add(self, batch: RecordBatch) -> int:
        """Records in their order; returns the bytes of their keys and values."""
        ...


@dataclass(slots=True)
class RecordsSink:
    """The same where more than values is kept."""

    records: NewestRecords
    offset_next: int
    records_total: int = 0

    def add(self, batch: RecordBatch) -> None:
        """Take records in; a later one of a key replaces the one before."""
        batch = _before(batch, self.offset_next)
        self.records.add(batch)
        self.records_total += len(batch)


Sink = NewestSink | RecordsSink


@runtime_checkable
class ReadsNewest(Protocol):
    """A reader that fills sinks by itself."""

    def read_newest(
        self, sinks: Mapping[TopicPartition, Sink], max_records: int, timeout_seconds: float
    ) -> list[TopicPartition]:
        """As ``read``, into the sinks; the partitions that brought records."""
        ...


def read_newest(
    reader: Reader, sinks: Mapping[TopicPartition, Sink], max_records: int, timeout_seconds: float
) -> list[TopicPartition]:
    """As ``reader.read``, into the sinks, one for each assigned partition; the partitions that brought records."""
    if isinstance(reader, ReadsNewest):
        return reader.read_newest(sinks, max_records, timeout_seconds)
    batches = reader.read(max_records, timeout_seconds)
    for batch in batches:
        sinks[batch.source].add(batch)
    return [batch.source for batch in batches]


def _before(batch: RecordBatch, offset_next: int) -> RecordBatch:
    if not batch.offsets or batch.offsets[-1] < offset_next:
        return batch
    return batch.first(bisect_left(batch.offsets, offset_next))
