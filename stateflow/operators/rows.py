"""Columns of a batch: picking rows, repeating them, replacing values. Batches are never changed in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

from stateflow.record import RecordBatch, TopicPartition

NO_OFFSET = -1
"""The offset of a row that no single input record stands behind: a window closed by time."""


def with_values(batch: RecordBatch, values: list[Any]) -> RecordBatch:
    """The same rows with other values."""
    return RecordBatch(
        batch.source, batch.offsets, batch.timestamps_ms, batch.keys, values, marks_ms=batch.marks_ms
    )


def where(batch: RecordBatch, mask: Sequence[Any]) -> RecordBatch:
    """The rows whose mask is true; the batch itself when all are."""
    if all(mask):
        return batch
    return RecordBatch(
        batch.source,
        list(compress(batch.offsets, mask)),
        list(compress(batch.timestamps_ms, mask)),
        list(compress(batch.keys, mask)),
        list(compress(batch.values, mask)),
        marks_ms=None if batch.marks_ms is None else list(compress(batch.marks_ms, mask)),
    )


def without(batch: RecordBatch, rows: Iterable[int]) -> RecordBatch:
    """All rows but these."""
    left_out = set(rows)
    return where(batch, [row not in left_out for row in range(len(batch))]) if left_out else batch


def repeated(batch: RecordBatch, values: Sequence[Sequence[Any]]) -> RecordBatch:
    """Each row as often as it has values, in order."""
    counts = [len(several) for several in values]
    return RecordBatch(
        batch.source,
        _repeat(batch.offsets, counts),
        _repeat(batch.timestamps_ms, counts),
        _repeat(batch.keys, counts),
        [value for several in values for value in several],
        marks_ms=None if batch.marks_ms is None else _repeat(batch.marks_ms, counts),
    )


def _repeat(column: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    return [item for item, count in zip(column, counts, strict=True) for _ in range(count)]


def derived(
    name: str, partition: int, timestamps_ms: list[int], keys: list[bytes], values: list[Any]
) -> RecordBatch:
    """Rows that time produced, not an input record."""
    source = TopicPartition(name, partition)
    return RecordBatch(source, [NO_OFFSET] * len(keys), timestamps_ms, keys, values)
