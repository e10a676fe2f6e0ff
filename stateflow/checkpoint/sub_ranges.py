"""A changelog partition in offset sub-ranges, which several read at the same time: of each the newest record per key.

Whoever brings the sub-ranges together again takes them in from the oldest to the newest, so of each key the newest
record by offset wins, as if the whole partition had been read in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Generic, TypeVar

from stateflow.memory import ENTRY_BYTES
from stateflow.record import OffsetRange, RecordBatch

Row = TypeVar("Row")


def sub_ranges(offsets: OffsetRange, slots_each: int) -> list[OffsetRange]:
    """An offset range as equal parts of at most about ``slots_each`` slots, in order."""
    parts = max(1, -(-offsets.slots // slots_each))
    bounds = [offsets.offset_first + offsets.slots * part // parts for part in range(parts + 1)]
    return [OffsetRange(first, after) for first, after in pairwise(bounds)]


@dataclass(slots=True)
class Newest(Generic[Row]):
    """A part of a sub-range: what is kept of the newest record of each key, deletions included."""

    entries: dict[bytes | None, Row]
    records_total: int
    """Records that were read for it."""


def newest_in_parts(
    batches: Iterable[RecordBatch], bytes_max: int, rows: Callable[[RecordBatch], Iterable[Row]]
) -> Iterator[Newest[Row]]:
    """The newest record per key of consecutive batches: in one part if that takes no more than about ``bytes_max`` in
    memory, else in several, oldest first. The last one may be empty.

    ``rows`` gives what is kept of each record of a batch, in its order.
    """
    part: Newest[Row] = Newest({}, 0)
    read_bytes = 0
    for batch in batches:
        part.entries.update(zip(batch.keys, rows(batch), strict=True))
        part.records_total += len(batch)
        read_bytes += sum(map(len, filter(None, chain(batch.keys, batch.values))))
        if read_bytes + ENTRY_BYTES * len(part.entries) > bytes_max:
            yield part
            part, read_bytes = Newest({}, 0), 0
    yield part
