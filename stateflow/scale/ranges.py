"""Old changelogs in sub-ranges, each read by a job of its own, and the slices into which their keys are divided.

A *slice* is the keys whose CRC-32 leaves one remainder when divided by the number of slices. What all sub-ranges say
of its keys comes together in one job, whatever partition they are in; so neither the reading nor the writing is bound
to the number of partitions, before or after.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from stateflow.changelog.format import is_reserved
from stateflow.checkpoint.planner import trimmed
from stateflow.checkpoint.sub_ranges import sub_ranges
from stateflow.checkpoint.whole import Base, read_whole_into
from stateflow.log.base import Cluster
from stateflow.log.newest import Sink
from stateflow.log.reading import read_range_into
from stateflow.record import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class ChangelogRange:
    """One sub-range of a changelog partition."""

    source: TopicPartition
    offsets: OffsetRange
    base: Base | None
    """The image that a trimmed changelog begins with, in its first sub-range: ``offsets`` has a slot for it."""

    def read_into(self, cluster: Cluster, sink: Sink) -> Iterator[None]:
        """Read its records, those of the image first; yields now and then. Raises as ``checkpoint.whole``."""
        if self.base is None:
            yield from read_range_into(cluster, self.source, self.offsets, sink)
            return
        with self.base.opened() as image:
            yield from read_whole_into(cluster, self.source, self.offsets, image, sink)


@dataclass(frozen=True, slots=True)
class RangeRead:
    """What was read of a sub-range."""

    half_slots: int
    records_read_total: int
    records_written_total: int = 0


def changelog_ranges(
    source: TopicPartition, offsets: OffsetRange, base: Base | None, slots_each: int
) -> list[ChangelogRange]:
    """A changelog partition in sub-ranges, in order and without gaps.

    Raises ``ChangelogTrimmed`` for a log that does not begin at 0 and has no image to begin with.
    """
    if base is None and offsets.offset_first > 0:
        raise trimmed(source.topic, source, offsets, "no image was named to begin with")
    parts = sub_ranges(offsets, slots_each)
    assert (parts[0].offset_first, parts[-1].offset_next) == offsets, "all of it is read"
    assert all(one.offset_next == other.offset_first for one, other in pairwise(parts)), "without gaps"
    return [ChangelogRange(source, part, base if number == 0 else None) for number, part in enumerate(parts)]


def grouped(parts: Iterable[ChangelogRange], slots_max: int) -> list[tuple[ChangelogRange, ...]]:
    """Sub-ranges, in their order, as the work of jobs with about ``slots_max`` slots at most: small ones together."""
    jobs: list[list[ChangelogRange]] = []
    slots = 0
    for part in parts:
        slots += part.offsets.slots
        if not jobs or slots > slots_max:
            jobs.append([])
            slots = part.offsets.slots
        jobs[-1].append(part)
    return [tuple(job) for job in jobs]


def slots_of_slice(slots: int, number: int, slices: int) -> int:
    """The share of a slice in the offset slots of its store; those of all slices together are all of them."""
    return slots * (number + 1) // slices - slots * number // slices


def slice_of(key: bytes, slices: int) -> int:
    """The slice that a key is in."""
    return zlib.crc32(key) % slices


def keys_by_slice(
    keys: Collection[bytes | None], slices: int, wanted: Collection[int]
) -> dict[int, list[bytes]]:
    """The keys of state among some keys, by those slices that are wanted."""
    crc32, found = zlib.crc32, defaultdict[int, list[bytes]](list)
    state = [key for key in keys if key is not None and not is_reserved(key)]
    if slices == 1:
        return {0: state} if state and 0 in wanted else {}
    for key in state:
        found[crc32(key) % slices].append(key)
    return {number: found[number] for number in sorted(found.keys() & set(wanted))}
