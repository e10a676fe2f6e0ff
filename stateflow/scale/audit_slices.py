"""The audit of changelogs by as many jobs as there are cores: read in sub-ranges, summed up in slices of the keys.

What a sub-range says of a key travels as the key and the hash of its newest entry, no more. The slices are divided
finer than memory asks for, and the sub-ranges are cut elsewhere than the mover cut them: what one of them leaves out at
an end is not left out by the other. Where the core is in use, a part of every sub-range is read in Python all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stateflow.catalog.model import KeyLayout, RoutingEntry
from stateflow.checkpoint.whole import Base
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.audit import AuditResult, Tally
from stateflow.scale.engine import Engine
from stateflow.scale.newest_digests import tallies_by_partition
from stateflow.scale.newest_rows import AnyRows, send_newest
from stateflow.scale.placement import SINGLE_KEYS, Placement
from stateflow.scale.ranges import ChangelogRange, RangeRead, changelog_ranges, grouped, slots_of_slice
from stateflow.scale.settings import RangeSettings
from stateflow.scale.shuffle import Inbox, OnDone, Sending

_SINGLES_MIN = 500
_PLAIN_PART = 16
_PLAIN_SLOTS_MIN = 1_000
"""What is read in Python: one slot in so many, and at least so many of a sub-range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedChangelog:
    """One side of one store: its changelog in a generation."""

    store: str
    layout: KeyLayout
    partitions: tuple[tuple[TopicPartition, OffsetRange, Base | None], ...]

    @property
    def slots(self) -> int:
        """Offset slots to read."""
        return sum(offsets.slots for _, offsets, _ in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRange:
    """Sub-ranges to be read."""

    parts: tuple[ChangelogRange, ...]
    slices: int
    receiver_first: int
    """The number of the job that sums up the first slice."""
    memory_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSlice:
    """One slice to be summed up by the partition that the new table gives each key."""

    store: str
    layout: KeyLayout
    routing: RoutingEntry
    topic: str
    slices: int
    slots: int


@dataclass(frozen=True, slots=True)
class SliceAudited:
    """The tallies of one slice, of each old or new partition that it has keys of."""

    results: tuple[AuditResult, ...]
    half_slots: int
    records_read_total: int = 0
    records_written_total: int = 0


def audit_changelogs(
    engine: Engine,
    changelogs: Sequence[AuditedChangelog],
    routing: RoutingEntry,
    keys_max: int,
    ranges: RangeSettings,
    on_done: OnDone | None = None,
) -> list[AuditResult]:
    """Sum up every partition of the changelogs by new partition; raises as reading does."""
    senders, receivers = audit_jobs(changelogs, routing, keys_max, ranges, engine.lanes)
    _, found = engine.shuffle(send_digests, senders, sum_slice, receivers, on_done)
    sums: dict[tuple[str, TopicPartition], list[Tally]] = {
        (log.store, source): [Tally()] * routing.partitions
        for log in changelogs
        for source, _, _ in log.partitions
    }
    for result in (result for done in found for result in done.results):
        own = sums[result.store, result.source]
        own[:] = [one + other for one, other in zip(own, result.tallies, strict=True)]
    return [AuditResult(store, source, tuple(own)) for (store, source), own in sums.items()]


def audit_jobs(
    changelogs: Sequence[AuditedChangelog],
    routing: RoutingEntry,
    keys_max: int,
    ranges: RangeSettings,
    lanes: int,
) -> tuple[list[AuditRange], list[AuditSlice]]:
    """The sub-ranges and the slices."""
    senders: list[AuditRange] = []
    receivers: list[AuditSlice] = []
    slots_each = ranges.slots_each(sum(log.slots for log in changelogs), 0, lanes)
    slots_each = max(1, slots_each * 7 // 8)
    for log in changelogs:
        if log.slots == 0:
            continue
        slices = max(1, -(-log.slots // keys_max), min(lanes, log.slots // ranges.slots_min))
        parts = [
            part
            for source, offsets, base in log.partitions
            if not offsets.is_empty
            for part in changelog_ranges(source, offsets, base, slots_each)
        ]
        senders += [
            AuditRange(
                parts=some,
                slices=slices,
                receiver_first=len(receivers),
                memory_bytes_max=ranges.memory_bytes_max,
            )
            for some in grouped(parts, slots_each)
        ]
        topic = log.partitions[0][0].topic
        receivers += [
            AuditSlice(
                store=log.store,
                layout=log.layout,
                routing=routing,
                topic=topic,
                slices=slices,
                slots=slots_of_slice(log.slots, number, slices),
            )
            for number in range(slices)
        ]
    return senders, receivers


def send_digests(cluster: Cluster, job: AuditRange) -> Sending[RangeRead]:
    """Send the hash of each key's newest entry in each sub-range to the job of its slice."""
    records = 0
    for whole in job.parts:

        def digests(rows: AnyRows, partition: int = whole.source.partition) -> Iterator[tuple[int, bytes]]:
            for number, piece in rows.digests(job.slices, partition):
                yield job.receiver_first + number, piece

        for part, plain in _in_two_ways(whole):
            records += yield from send_newest(cluster, part, job.memory_bytes_max, digests, plain=plain)
    return RangeRead(sum(part.offsets.slots for part in job.parts), records)


def _in_two_ways(part: ChangelogRange) -> Iterator[tuple[ChangelogRange, bool]]:
    """A sub-range in two, of which the end is read in Python."""
    first, after = part.offsets
    cut = after - max(part.offsets.slots // _PLAIN_PART, _PLAIN_SLOTS_MIN)
    if cut <= first + 1:  # the first slot may stand for an image
        yield part, True
        return
    yield replace(part, offsets=OffsetRange(first, cut)), False
    yield replace(part, offsets=OffsetRange(cut, after), base=None), True


def sum_slice(cluster: Cluster, job: AuditSlice, inbox: Inbox) -> SliceAudited:  # noqa: ARG001 - as engines call it
    """Sum up one slice, each partition by itself: a key in two of them counts twice.

    Raises ``StateCorrupt`` for a key that no handle could have written.
    """
    singles = max(_SINGLES_MIN, SINGLE_KEYS // job.slices)
    results = [
        AuditResult(job.store, TopicPartition(job.topic, partition), tallies)
        for partition, tallies in tallies_by_partition(
            inbox, lambda: Placement(job.layout, job.routing, singles)
        )
    ]
    return SliceAudited(tuple(results), job.slots)
