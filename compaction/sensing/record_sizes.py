"""What a record takes on disk: as appended, among its batch, and as a survivor of compaction, alone with a header.

Producers compress whole batches, so a record that survived its neighbours may take many times what it took when
it was appended. The dirty ratio compares bytes of both kinds; a policy that relies on it must know both.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from stateflow.compaction.model.workload import BATCH_OVERHEAD_BYTES

RECORD_OVERHEAD_BYTES = 10
"""Varints and attributes of one record in format v2."""
_INTERVALS_MIN = 3
_UNCOMPRESSED_SHARE = 0.9
_PASS_DROP = 0.8
"""A log that shrank below this share of its size from one look to the next was cleaned in between."""


@dataclass(frozen=True, slots=True)
class RecordBytes:
    """Bytes on disk per record, appended and surviving; ``live_high`` is what the latter may be at most."""

    appended: float
    live: float
    live_high: float


def estimate(
    sizes: Sequence[int], ends: Sequence[int], *, average: float, uncompressed: float, live_records: float
) -> RecordBytes:
    """From looks at a log's bytes and end offsets, and from what reading it told.

    ``average`` is bytes on disk per record over the whole log, ``uncompressed`` the mean of key and value as read.
    """
    slopes = [
        (size - size_before) / (end - end_before)
        for (size_before, end_before), (size, end) in itertools.pairwise(zip(sizes, ends, strict=True))
        if end > end_before and size > size_before
    ]
    appended = statistics.median(slopes) if len(slopes) >= _INTERVALS_MIN else average
    plain = uncompressed + RECORD_OVERHEAD_BYTES
    alone = max(plain + BATCH_OVERHEAD_BYTES, appended)
    if appended >= _UNCOMPRESSED_SHARE * plain:
        return RecordBytes(appended, min(appended + BATCH_OVERHEAD_BYTES / 2, alone), alone)
    cleaned = any(size < _PASS_DROP * before for before, size in itertools.pairwise(sizes))
    if cleaned and live_records > 0:
        live = min(max(min(sizes) / live_records, appended), alone)
        return RecordBytes(appended, live, min(1.3 * live, alone))
    # Never seen cleaned: survivors of compressed batches mostly end up alone, or with a few others.
    return RecordBytes(appended, 0.75 * alone + 0.25 * appended, alone)
