"""The audit of changelogs by as many jobs as there are cores: read in sub-ranges, summed up in slices of the keys.

What a sub-range says of a key travels as the key and the hash of its newest entry, no more. The slices are divided
finer than memory asks for, and the sub-ranges are cut elsewhere than the mover cut them: what one of them leaves out at
an end is not left out by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from stateflow.catalog.model import KeyLayout, RoutingEntry
from stateflow.checkpoint.sub_ranges import newest_in_parts
from stateflow.checkpoint.whole import Base
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.audit import HASH_MODULUS, AuditResult, Tally, entry_hash
from stateflow.scale.engine import Engine
from stateflow.scale.placement import SINGLE_KEYS, Placement
from stateflow.scale.ranges import (
    ChangelogRange,
    RangeRead,
    changelog_ranges,
    keys_by_slice,
    slots_of_slice,
)
from stateflow.scale.settings import RangeSettings
from stateflow.scale.shuffle import Inbox, OnDone, Sending

_ROWS = 10_000
_SINGLES_MIN = 1_000


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
    """One sub-range to be read."""

    part: ChangelogRange
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


class _Digests(msgspec.Struct, array_like=True):
    """A piece: what a sub-range says of the keys of one slice."""

    partition: int
    """Where the sub-range is."""
    keys: list[bytes]
    hashes: list[int | None]
    """Of each key's newest entry; None of a deleted one."""


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Digests)


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
        senders += [
            AuditRange(
                part=part,
                slices=slices,
                receiver_first=len(receivers),
                memory_bytes_max=ranges.memory_bytes_max,
            )
            for source, offsets, base in log.partitions
            if not offsets.is_empty
            for part in changelog_ranges(source, offsets, base, slots_each)
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
    """Send the hash of each key's newest entry in a sub-range to the job of its slice."""
    records = 0
    with job.part.opened(cluster) as batches:
        for newest in newest_in_parts(batches, job.memory_bytes_max, lambda batch: batch.values):
            records += newest.records_total
            entries = newest.entries
            for number, keys in keys_by_slice(entries, job.slices, range(job.slices)).items():
                hashes = [None if (value := entries[key]) is None else entry_hash(key, value) for key in keys]
                piece = _ENCODER.encode(_Digests(job.part.source.partition, keys, hashes))
                yield job.receiver_first + number, piece
    return RangeRead(job.part.offsets.slots, records)


def sum_slice(cluster: Cluster, job: AuditSlice, inbox: Inbox) -> SliceAudited:  # noqa: ARG001 - as engines call it
    """Sum up one slice, each partition by itself: a key in two of them counts twice.

    Raises ``StateCorrupt`` for a key that no handle could have written.
    """
    singles = max(_SINGLES_MIN, SINGLE_KEYS // job.slices)
    results = [
        AuditResult(job.store, TopicPartition(job.topic, partition), _tallies(job, newest, singles))
        for partition, newest in _by_partition(inbox)
    ]
    return SliceAudited(tuple(results), job.slots)


def _by_partition(inbox: Inbox) -> Iterator[tuple[int, dict[bytes, int | None]]]:
    """The newest hash of each key, partition by partition: pieces of one partition come together."""
    partition, newest = -1, dict[bytes, int | None]()
    for piece in inbox:
        digests = _DECODER.decode(piece)
        if digests.partition != partition:
            if newest:
                yield partition, newest
            partition, newest = digests.partition, {}
        newest.update(zip(digests.keys, digests.hashes, strict=True))
    if newest:
        yield partition, newest


def _tallies(job: AuditSlice, newest: dict[bytes, int | None], singles: int) -> tuple[Tally, ...]:
    placement = Placement(job.layout, job.routing, singles)
    counts, sums = [0] * placement.partitions, [0] * placement.partitions
    live = ((key, hashed) for key, hashed in newest.items() if hashed is not None)
    for rows in _slices(live):
        owners = placement.owners([key for key, _ in rows])
        for owner, (_, hashed) in zip(owners, rows, strict=True):
            counts[owner] += 1
            sums[owner] += hashed
    return tuple(Tally(count, total % HASH_MODULUS) for count, total in zip(counts, sums, strict=True))


def _slices(rows: Iterable[tuple[bytes, int]]) -> Iterator[list[tuple[bytes, int]]]:
    left = iter(rows)
    while some := list(islice(left, _ROWS)):
        yield some
