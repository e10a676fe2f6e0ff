"""What a change of the partition count would do, before anything is done."""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.catalog.model import Catalog, RoutingEntry
from stateflow.checkpoint.whole import Base, find_base, with_base_slot
from stateflow.clock import Clock, SystemClock
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.log.settling import settled_ranges
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.audit import AuditJob, audit_partition
from stateflow.scale.decided import decided_positions
from stateflow.scale.generation import preparing
from stateflow.scale.scope import MovedTopic, moved_topics

MOVE_SLOTS_PER_SECOND = 100_000
"""One lane reading, routing, writing and committing; see docs/spark.md for how it was measured."""
AUDIT_SLOTS_PER_SECOND = 250_000
"""One lane reading and hashing."""
FIXED_SECONDS = 4.0
"""Creating topics, fencing tasks, the first transactions."""
SAMPLE_SLOTS = 5_000


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """One partition of the active generation, and what lies in it."""

    name: str
    """The store, or ``<step>-repartition`` for unread records."""
    source: TopicPartition
    offsets: OffsetRange
    bytes_estimated: int
    """Slots times the mean size of a sample of records: an upper bound after compaction."""
    keys: int | None
    """Live keys, or unread records; None unless they were asked for, since counting reads everything."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A change from one routing to another."""

    app: str
    generation_from: int
    generation_to: int
    routing_from: RoutingEntry
    routing_to: RoutingEntry
    resumes: bool
    """True when an earlier attempt left this generation unfinished."""
    partitions: tuple[PlannedPartition, ...]
    seconds_predicted: float

    @property
    def slots_total(self) -> int:
        """Offset slots to read."""
        return sum(row.offsets.slots for row in self.partitions)

    @property
    def bytes_total(self) -> int:
        """Bytes to read, estimated."""
        return sum(row.bytes_estimated for row in self.partitions)


def make_plan(
    cluster: Cluster,
    catalog: Catalog,
    routing: RoutingEntry,
    *,
    lanes: int,
    count_keys: bool = False,
    clock: Clock | None = None,
) -> Plan:
    """Look at the topics of the active generation; changes nothing.

    Raises ``GraphError`` when the application has nothing to repartition or has state bound to a source
    topic, and ``ChangelogTrimmed`` when a changelog was deleted before images and none of these can be used.
    """
    watch = clock or SystemClock()
    generation = catalog.active.generation
    unfinished = preparing(catalog)
    resumes = unfinished is not None and unfinished.routing == routing
    rows = []
    for topic in moved_topics(catalog):
        sources = topic.partitions(catalog, generation)
        for source, offsets in source_ranges(cluster, catalog, topic, sources, stable=False).items():
            base = base_of(cluster, catalog, topic, source, offsets, watch)
            keys = _count(cluster, topic, source, offsets, routing, base) if count_keys else None
            rows.append(
                PlannedPartition(topic.name, source, offsets, _estimate(cluster, source, offsets), keys)
            )
    slots = sum(row.offsets.slots for row in rows)
    return Plan(
        app=catalog.app.app,
        generation_from=generation,
        generation_to=max(catalog.generations) + (0 if resumes else 1),
        routing_from=catalog.active.routing,
        routing_to=routing,
        resumes=resumes,
        partitions=tuple(rows),
        seconds_predicted=predict_seconds(slots, min(lanes, max(1, len(rows)))),
    )


def predict_seconds(slots: int, lanes: int) -> float:
    """Move once, then read both sides for the audit."""
    return FIXED_SECONDS + (slots / MOVE_SLOTS_PER_SECOND + 2 * slots / AUDIT_SLOTS_PER_SECOND) / lanes


def source_ranges(
    cluster: Cluster, catalog: Catalog, topic: MovedTopic, sources: list[TopicPartition], *, stable: bool
) -> dict[TopicPartition, OffsetRange]:
    """What is to be read of each partition: a changelog whole, a repartition topic from the committed input
    on.

    ``stable`` waits for transactions that still hold offsets or records: for when it must be the last word.
    """
    ranges = settled_ranges(cluster, sources) if stable else cluster.ranges(sources)
    if topic.layout is not None:
        return ranges
    if stable:
        positions = decided_positions(cluster, catalog, topic.stage).values()
        read_next = {
            at: offset_next for position in positions for at, offset_next in position.offsets.items()
        }
    else:
        committed = cluster.committed(catalog.app.app, sources, stable=False)
        read_next = {source: at.offset_next for source, at in committed.items()}
    return {
        source: OffsetRange(read_next[source], offsets.offset_next) if source in read_next else offsets
        for source, offsets in ranges.items()
    }


def base_of(
    cluster: Cluster,
    catalog: Catalog,
    topic: MovedTopic,
    source: TopicPartition,
    log: OffsetRange,
    clock: Clock,
) -> Base | None:
    """The image that a changelog partition begins with; None for a repartition topic, and for a log that is whole."""
    return None if topic.layout is None else find_base(cluster, catalog, topic.name, source, log, clock)


def _estimate(cluster: Cluster, source: TopicPartition, offsets: OffsetRange) -> int:
    records = size_bytes = 0
    sample = OffsetRange(offsets.offset_first, min(offsets.offset_next, offsets.offset_first + SAMPLE_SLOTS))
    for batch in read_range(cluster, source, sample):
        records += len(batch)
        size_bytes += sum(len(key or b"") for key in batch.keys) + sum(
            len(value or b"") for value in batch.values
        )
    return round(size_bytes / records * offsets.slots) if records else 0


def _count(
    cluster: Cluster,
    topic: MovedTopic,
    source: TopicPartition,
    offsets: OffsetRange,
    routing: RoutingEntry,
    base: Base | None,
) -> int:
    job = AuditJob(
        store=topic.name,
        source=source,
        offsets=with_base_slot(offsets, base),
        layout=topic.layout,
        routing=routing,
        base=base,
    )
    return sum(tally.keys for tally in audit_partition(cluster, job).tallies)
