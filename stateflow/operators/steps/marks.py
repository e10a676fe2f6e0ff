"""Marks: of each record, the largest event time seen in its source partition up to and including it.

A mark is made where a record enters the application and travels with it, through re-key steps too, so it is a
function of the source partition's log alone. It is what lateness is judged by, what a time to live is judged as of, and
how far event time moves with the record: none of these depends on how reads were cut into batches, on which worker
read them, or on how partitions were interleaved on the way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from stateflow.changelog.format import MARK_HEADER
from stateflow.errors import StateCorrupt
from stateflow.record import Headers, RecordBatch

NO_OTHERS_MS = (1 << 63) - 1
"""The least mark of the other inputs where there are none: they hold nothing back."""

_MARK = struct.Struct(">q")


def running_marks(timestamps_ms: Sequence[int], mark_ms: int) -> list[int] | None:
    """The marks of consecutive records of a source partition whose mark was ``mark_ms`` before them.

    None when each is the record's own time: records in order have no column of marks.
    """
    if not timestamps_ms:
        return None
    if timestamps_ms[0] >= mark_ms and timestamps_ms == sorted(timestamps_ms):
        return None
    return list(accumulate(timestamps_ms, max, initial=mark_ms))[1:]


def span_ms(timestamps_ms: Sequence[int]) -> tuple[int, int]:
    """The earliest and the latest of some times, at least one. Times in order, as most are, take a third as long."""
    if timestamps_ms == sorted(timestamps_ms):
        return timestamps_ms[0], timestamps_ms[-1]
    return min(timestamps_ms), max(timestamps_ms)


def sent_marks(batch: RecordBatch) -> list[int] | None:
    """The marks that records of a repartition topic carry; None when each is the record's own time.

    Raises ``StateCorrupt`` for a header that no re-key step has written.
    """
    if not any(batch.headers):
        return None
    marks_ms = list(map(_mark_in, batch.headers, batch.timestamps_ms))
    return None if marks_ms == batch.timestamps_ms else marks_ms


def mark_headers(marks_ms: Sequence[int], timestamps_ms: Sequence[int]) -> list[Headers]:
    """The headers that tell each record's mark, none where it is the record's own time."""
    return [
        () if mark_ms == timestamp_ms else ((MARK_HEADER, _MARK.pack(mark_ms)),)
        for mark_ms, timestamp_ms in zip(marks_ms, timestamps_ms, strict=True)
    ]


def marks_of(batch: RecordBatch) -> list[int]:
    """The mark of each row."""
    return batch.timestamps_ms if batch.marks_ms is None else batch.marks_ms


def _mark_in(headers: Headers, timestamp_ms: int) -> int:
    for name, value in headers:
        if name == MARK_HEADER:
            if len(value) != _MARK.size:
                raise StateCorrupt(
                    f"the mark of a record on a repartition topic has {len(value)} bytes instead of {_MARK.size}.",
                    action="something else writes to this repartition topic; only the application itself may.",
                )
            return int(_MARK.unpack(value)[0])
    return timestamp_ms
