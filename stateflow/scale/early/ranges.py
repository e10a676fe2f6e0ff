"""A changelog in sub-ranges, newest first: small ones at the end of the log, larger ones before them.

What a key holds is what the newest range that knows the key says. Keys that change often stand near the end of the log,
so its last few thousand offsets are worth a range of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stateflow.record import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSizes:
    """How large ranges are, in offset slots and in memory."""

    slots_first: int = 16_384
    """Of the newest. A range costs some tens of milliseconds to begin: reading so many records takes about as long."""
    slots_max: int = 262_144
    """Every key is written once per range that has it, so ranges grow; to so many slots, as whoever asks waits for one.
    """
    bytes_max: int
    """What is read of a range and not written yet may take so much memory: more becomes another file."""


def newest_first(offsets: OffsetRange, sizes: RangeSizes) -> list[OffsetRange]:
    """The range in parts, the newest first, each twice as long as the one before up to the largest."""
    parts, after, slots = [], offsets.offset_next, sizes.slots_first
    while after > offsets.offset_first:
        first = max(offsets.offset_first, after - slots)
        parts.append(OffsetRange(first, after))
        after, slots = first, min(sizes.slots_max, 2 * slots)
    return parts


def inside(offsets: OffsetRange, parts: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Those of the parts that lie within a range as a whole, oldest first, none overlapping the one before."""
    kept, reached = [], offsets.offset_first
    for part in sorted(parts):
        if part.offset_first >= reached and part.offset_next <= offsets.offset_next and not part.is_empty:
            kept.append(part)
            reached = part.offset_next
    return kept


def gaps(offsets: OffsetRange, done: Iterable[OffsetRange]) -> list[OffsetRange]:
    """What a range has beside the parts that are done, newest first."""
    found, first = [], offsets.offset_first
    for part in sorted(done):
        found.append(OffsetRange(first, part.offset_first))
        first = part.offset_next
    found.append(OffsetRange(first, offsets.offset_next))
    return [gap for gap in reversed(found) if not gap.is_empty]
