"""Columns of a batch: picking rows, repeating them, replacing values. Batches are never changed in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from stateflow.record import RecordBatch, TopicPartition

NO_OFFSET = -1
"""The offset of a row that no single input record stands behind: a window closed by time."""


def with_values(batch: RecordBatch, values: list[Any]) -> RecordBatch:
    """The same rows with other values."""
    return RecordBatch(
        batch.source,
        batch.offsets,
        batch.timestamps_ms,
        batch.keys,
        values,
        batch.headers,
        batch.marks_ms,
    )


def without_headers(batch: RecordBatch) -> RecordBatch:
    """The same rows, none with headers."""
    return replace(batch, headers=[]) if batch.headers else batch


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
        list(compress(batch.headers, mask)) if batch.headers else [],
        None if batch.marks_ms is None else list(compress(batch.marks_ms, mask)),
    )


def without(batch: RecordBatch, rows: Iterable[int]) -> RecordBatch:
    """All rows but these."""
    left_out = set(rows)
    return where(batch, [row not in left_out for row in range(len(batch))]) if left_out else batch


def picked(batch: RecordBatch, rows: Sequence[int]) -> RecordBatch:
    """These rows, in this order; the batch itself when that is all of them as they are."""
    if len(rows) == len(batch) and all(map(int.__eq__, rows, range(len(batch)))):
        return batch
    return RecordBatch(
        batch.source,
        [batch.offsets[row] for row in rows],
        [batch.timestamps_ms[row] for row in rows],
        [batch.keys[row] for row in rows],
        [batch.values[row] for row in rows],
        [batch.headers[row] for row in rows] if batch.headers else [],
        None if batch.marks_ms is None else [batch.marks_ms[row] for row in rows],
    )


def left_of(column: Sequence[Any], rows: Iterable[int]) -> list[Any]:
    """The items of a column without those of some rows."""
    left_out = set(rows)
    return [item for row, item in enumerate(column) if row not in left_out] if left_out else list(column)


def repeated(batch: RecordBatch, values: Sequence[Sequence[Any]]) -> RecordBatch:
    """Each row as often as it has values, in order."""
    counts = [len(several) for several in values]
    return RecordBatch(
        batch.source,
        _repeat(batch.offsets, counts),
        _repeat(batch.timestamps_ms, counts),
        _repeat(batch.keys, counts),
        [value for several in values for value in several],
        _repeat(batch.headers, counts) if batch.headers else [],
        None if batch.marks_ms is None else _repeat(batch.marks_ms, counts),
    )


def _repeat(column: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    return [item for item, count in zip(column, counts, strict=True) for _ in range(count)]


def derived(
    name: str, partition: int, timestamps_ms: list[int], keys: list[bytes], values: list[Any]
) -> RecordBatch:
    """Rows that time produced, not an input record."""
    source = TopicPartition(name, partition)
    return RecordBatch(source, [NO_OFFSET] * len(keys), timestamps_ms, keys, values)
