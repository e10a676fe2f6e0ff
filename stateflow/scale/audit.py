"""Proof that a repartition kept everything: key counts and order-independent hashes, from the topics alone.

Both sides of the comparison are read back from the log, never taken from what the moving job believes it
wrote; and which partition owns a key is worked out as running tasks do it (``placement.py``), not as the mover did.
The hash of a set of entries is the sum of the entries' 64-bit BLAKE2b digests modulo 2^64 (the
multiset hash "AdHash" of Bellare and Micciancio, 1997), so neither order nor the way keys are spread over
tasks matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from stateflow.catalog.model import KeyLayout, RangeAudit, RoutingEntry
from stateflow.checkpoint.whole import Base
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.placement import Placement
from stateflow.scale.reading import STATE_BYTES_MAX, live_state

HASH_MODULUS = 1 << 64
_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditJob:
    """One partition of one store's changelog, or of a repartition topic (``layout`` None), to be summed
    up.
    """

    store: str
    source: TopicPartition
    offsets: OffsetRange
    layout: KeyLayout | None
    routing: RoutingEntry
    """The new table: entries are summed by the partition that it gives them."""
    keys_max: int = 2_000_000
    bytes_max: int = STATE_BYTES_MAX
    """What of a changelog's entries may be in memory at a time."""
    base: Base | None = None
    """The image that a trimmed changelog begins with; ``offsets`` has a slot for it."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of entries and the sum of their hashes."""

    keys: int = 0
    hash: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(self.keys + other.keys, (self.hash + other.hash) % HASH_MODULUS)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Tallies of one audited partition by the new partition that its entries belong to."""

    store: str
    source: TopicPartition
    tallies: tuple[Tally, ...]

    @property
    def strays(self) -> int:
        """Entries that the table sends to another partition than the one they were read from."""
        return sum(tally.keys for index, tally in enumerate(self.tallies) if index != self.source.partition)


def entry_hash(key: bytes, value: bytes | None) -> int:
    """64 bits of one entry; the key's length is part of it, so no two entries read alike."""
    head = len(key).to_bytes(4, "big") + (b"\x01" if value is not None else b"\x00")
    return int.from_bytes(blake2b(head + key + (value or b""), digest_size=8).digest(), "big")


def audit_partition(cluster: Cluster, job: AuditJob) -> AuditResult:
    """Sum up one partition by new partition; reads ``job.offsets`` and nothing else."""
    placement = Placement(job.layout, job.routing)
    partitions = placement.partitions
    tallies = [Tally()] * partitions
    for keys, values in _entries(cluster, job):
        owners = placement.owners(keys)
        counts, sums = [0] * partitions, [0] * partitions
        for key, value, owner in zip(keys, values, owners, strict=True):
            counts[owner] += 1
            sums[owner] += entry_hash(key, value)
        tallies = [
            tally + Tally(count, total % HASH_MODULUS)
            for tally, count, total in zip(tallies, counts, sums, strict=True)
        ]
    return AuditResult(job.store, job.source, tuple(tallies))


def _entries(cluster: Cluster, job: AuditJob) -> Iterable[tuple[list[bytes], list[bytes | None]]]:
    if job.layout is None:  # a queue of records, each of which counts
        for batch in read_range(cluster, job.source, job.offsets):
            rows = [
                (key, value) for key, value in zip(batch.keys, batch.values, strict=True) if key is not None
            ]
            yield [key for key, _ in rows], [value for _, value in rows]
        return
    states = live_state(
        cluster, job.source, job.offsets, keys_max=job.keys_max, bytes_max=job.bytes_max, base=job.base
    )
    for state in states:
        entries = iter(state.items())
        while rows := list(islice(entries, _ROWS)):
            yield [key for key, _ in rows], [value for _, value in rows]


def compare(before: Sequence[AuditResult], after: Sequence[AuditResult]) -> tuple[RangeAudit, ...]:
    """Both sides by store and new partition.

    ``after`` counts only what lies where the table puts it, so a stray makes its row unequal.
    """
    rows = []
    for store in sorted({result.store for result in before}):
        ours = [result for result in before if result.store == store]
        theirs = {result.source.partition: result for result in after if result.store == store}
        for partition in range(len(ours[0].tallies)):
            expected = sum((result.tallies[partition] for result in ours), Tally())
            found = _found(theirs.get(partition), partition)
            rows.append(
                RangeAudit(
                    store=store,
                    partition=partition,
                    keys_before=expected.keys,
                    keys_after=found.keys,
                    hash_before=expected.hash,
                    hash_after=found.hash,
                )
            )
    return tuple(rows)


def _found(result: AuditResult | None, partition: int) -> Tally:
    if result is None:
        return Tally()
    # Strays are added where they were found: the row then differs, whatever they hold.
    return sum((t for t in result.tallies if t.keys), Tally()) if result.strays else result.tallies[partition]
