"""A changelog partition in offset sub-ranges, which several read at the same time: of each the newest record per key.

Whoever brings the sub-ranges together again takes them in from the oldest to the newest, so of each key the newest
record by offset wins, as if the whole partition had been read in order.
"""

from __future__ import annotations

from itertools import pairwise

from stateflow.record import OffsetRange


def sub_ranges(offsets: OffsetRange, slots_each: int) -> list[OffsetRange]:
    """An offset range as equal parts of at most about ``slots_each`` slots, in order."""
    parts = max(1, -(-offsets.slots // slots_each))
    bounds = [offsets.offset_first + offsets.slots * part // parts for part in range(parts + 1)]
    return [OffsetRange(first, after) for first, after in pairwise(bounds)]
