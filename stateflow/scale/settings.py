"""The limits of a repartition's jobs, and how many of them that makes."""

from __future__ import annotations

from dataclasses import dataclass, field

SLICES_MAX = 4_096
_SLICE_SLOTS_MIN = 20_000
"""More slices than this asks for are not worth their transactions, however many cores there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSettings:
    """How much one job reads, and what it may hold."""

    slots_min: int = 50_000
    """A smaller sub-range costs more to begin than it saves."""
    slots_max: int = 250_000
    bytes_max: int = 64 << 20
    """Keys and values of a sub-range at most, by the mean size of a sample."""
    per_lane: int = 2
    """A compacted log is thinner at its beginning, so equal numbers of slots are not equal work."""
    memory_bytes_max: int = 128 << 20
    """What a job that reads may hold in memory; if the newest records per key take more, they are sent in parts."""

    def slots_each(self, slots: int, size_bytes: int, lanes: int) -> int:
        """The size of the sub-ranges of so much, for so many lanes."""
        wanted = max(self.slots_min, -(-slots // (lanes * self.per_lane)))
        fitting = self.bytes_max * slots // size_bytes if size_bytes > self.bytes_max else wanted
        return max(1, min(wanted, self.slots_max, fitting))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings:
    """Limits of the moving jobs."""

    chunk_records_max: int = 200_000
    """Records per transaction: what a killed job has to do again."""
    chunk_bytes_max: int = 64 << 20
    audit_keys_max: int = 400_000
    """Keys that one audit job holds in memory; more are audited in several slices."""
    ranges: RangeSettings = field(default_factory=RangeSettings)

    def slices(self, slots: int, size_bytes: int, lanes: int) -> int:
        """How many transactions a store of so much is to be moved in."""
        by_size = max(-(-slots // self.chunk_records_max), -(-size_bytes // self.chunk_bytes_max))
        return max(1, min(SLICES_MAX, max(by_size, min(lanes, slots // _SLICE_SLOTS_MIN))))
