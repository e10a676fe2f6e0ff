"""One store on its way: which ranges of its changelog are read, which are not, and what those say of a key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from stateflow.checkpoint.planner import StorePlan
from stateflow.record import OffsetRange
from stateflow.scale.early.files import ReadRange
from stateflow.scale.early.ranges import RangeSizes, gaps, inside, newest_first
from stateflow.scale.early.view import RangesView


@dataclass(frozen=True, slots=True)
class Sighting:
    """The newest record of a key; a value of None is a deletion."""

    value: bytes | None
    offsets: OffsetRange


class StoreRanges:
    """What a plan wants read of one changelog partition, newest first."""

    def __init__(
        self,
        plan: StorePlan,
        sizes: RangeSizes,
        read: Iterable[ReadRange] = (),
        reading: Iterable[OffsetRange] = (),
    ) -> None:
        self.plan = plan
        self._sizes = sizes
        by_offsets = {part.offsets: part for part in read}
        self._read = {offsets: by_offsets[offsets] for offsets in inside(plan.offsets, by_offsets)}
        self._reading = set(inside(plan.offsets, reading))
        # Between ranges that an earlier attempt has read there may be gaps; the newest is what was written since.
        missing = gaps(plan.offsets, [*self._read, *self._reading])
        self._todo = deque(part for gap in missing for part in newest_first(gap, sizes))

    def under(self, plan: StorePlan) -> StoreRanges:
        """The same ranges under another plan with the same end; those that it does not want are left out."""
        return StoreRanges(plan, self._sizes, self._read.values(), self._reading)

    @property
    def is_covered(self) -> bool:
        """True when everything was read."""
        return not self._todo and not self._reading

    @property
    def slots_read(self) -> int:
        """Offset slots that were read."""
        return sum(offsets.slots for offsets in self._read)

    @property
    def slots_left(self) -> int:
        """Offset slots that are still to be read, those being read included."""
        return self.plan.offsets.slots - self.slots_read

    @property
    def has_more(self) -> bool:
        """True when there is a range to begin."""
        return bool(self._todo)

    @property
    def begun(self) -> int:
        """Ranges that were read or are being read."""
        return len(self._read) + len(self._reading)

    @property
    def oldest_first(self) -> list[ReadRange]:
        """What was read, in the order of the log."""
        return [self._read[offsets] for offsets in sorted(self._read)]

    def begin(self) -> OffsetRange:
        """The newest range that nobody reads yet."""
        offsets = self._todo.popleft()
        self._reading.add(offsets)
        return offsets

    def note(self, read: ReadRange) -> None:
        """A range was read; one that the plan no longer wants is left out."""
        if read.offsets in self._reading:
            self._reading.remove(read.offsets)
            self._read[read.offsets] = read

    def search(self, view: RangesView, key: bytes, searched: int | None) -> tuple[Sighting | None, int]:
        """Look for the newest record of a key, from the end of the log back to the first range that is missing.

        ``searched`` is what an earlier call returned: the offset from which on there is no record of the key.
        """
        reached = self.plan.offsets.offset_next if searched is None else searched
        for offsets in sorted(self._read, reverse=True):
            if offsets.offset_next > reached:
                continue
            if offsets.offset_next < reached:
                break
            for run in reversed(self._read[offsets].runs):
                has_it, value = view.says(run, key)
                if has_it:
                    return Sighting(value, offsets), reached
            reached = offsets.offset_first
        return None, reached
