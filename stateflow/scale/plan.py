"""What a change of the partition count would do, before anything is done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain

from stateflow.catalog.model import Catalog, RoutingEntry
from stateflow.checkpoint.whole import Base, find_base, with_base_slot
from stateflow.clock import Clock, SystemClock
from stateflow.log.base import Cluster
from stateflow.log.reading import read_ranges
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.audit import AuditJob, audit_partition
from stateflow.scale.audit_slices import AuditRange, send_digests
from stateflow.scale.generation import preparing
from stateflow.scale.last_commits import LastCommits
from stateflow.scale.newest_digests import tallies_by_partition
from stateflow.scale.placement import Placement
from stateflow.scale.prediction import Prediction, Run, Work, predict, relevant_runs
from stateflow.scale.ranges import ChangelogRange
from stateflow.scale.scope import MovedTopic, moved_topics
from stateflow.scale.settings import ScaleSettings

SAMPLE_SLOTS = 5_000
PROBE_SLOTS_MIN, PROBE_SLOTS_MAX = 5_000, 50_000
"""Fewer say nothing of a rate; so many take less than a second."""


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
    work: Work
    prediction: Prediction

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
    engine: str = "local",
    past: Sequence[Run] = (),
    count_keys: bool = False,
    clock: Clock | None = None,
) -> Plan:
    """Look at the topics of the active generation; changes nothing. ``past`` is what was made on this machine before.

    Raises ``GraphError`` when the application has nothing to repartition or has state bound to a source
    topic, and ``ChangelogTrimmed`` when a changelog was deleted before images and none of these can be used.
    """
    watch = clock or SystemClock()
    generation = catalog.active.generation
    unfinished = preparing(catalog)
    resumes = unfinished is not None and unfinished.routing == routing
    rows = []
    topics = moved_topics(catalog)
    probes: list[AuditJob] = []
    for topic in topics:
        sources = topic.partitions(catalog, generation)
        for source, offsets in source_ranges(cluster, catalog, topic, sources).items():
            base = base_of(cluster, catalog, topic, source, offsets, watch)
            job = _audit_job(topic, source, offsets, routing, base)
            keys = _count(cluster, job) if count_keys else None
            if base is None:
                probes.append(job)
            rows.append(PlannedPartition(topic.name, source, offsets, 0, keys))
    estimates = _estimates(cluster, {row.source: row.offsets for row in rows})
    rows = [replace(row, bytes_estimated=estimates[row.source]) for row in rows]
    work = _work(engine, lanes, rows, [topic.name for topic in topics if topic.layout is None])
    app = catalog.app.app
    probed = None if relevant_runs(engine, app, past) else probed_slots_per_second(cluster, probes)
    return Plan(
        app=app,
        generation_from=generation,
        generation_to=max(catalog.generations) + (0 if resumes else 1),
        routing_from=catalog.active.routing,
        routing_to=routing,
        resumes=resumes,
        partitions=tuple(rows),
        work=work,
        prediction=predict(work, app, past, probed),
    )


def _work(engine: str, lanes: int, rows: Sequence[PlannedPartition], queues: Sequence[str]) -> Work:
    """The jobs that moving and auditing is divided into."""
    settings, slots = ScaleSettings(), sum(row.offsets.slots for row in rows)
    slots_each = settings.ranges.slots_each(slots, sum(row.bytes_estimated for row in rows), lanes)
    filled = [row for row in rows if not row.offsets.is_empty]
    reads = sum(1 if row.name in queues else -(-row.offsets.slots // slots_each) for row in filled)
    slices = 0
    for store in {row.name for row in filled}.difference(queues):
        own = [row for row in filled if row.name == store]
        size_bytes = sum(row.bytes_estimated for row in own)
        slices += settings.slices(sum(row.offsets.slots for row in own), size_bytes, lanes)
    return Work(engine=engine, lanes=lanes, moves=reads + slices, audits=2 * (reads + slices), slots=slots)


def probed_slots_per_second(cluster: Cluster, jobs: Sequence[AuditJob]) -> float | None:
    """How fast the beginning of the longest partition is read and summed up here; None when all are short."""
    longest = max(jobs, key=lambda job: job.offsets.slots, default=None)
    if longest is None or longest.offsets.slots < PROBE_SLOTS_MIN:
        return None
    log = longest.offsets
    part = OffsetRange(log.offset_first, min(log.offset_next, log.offset_first + PROBE_SLOTS_MAX))
    started_at = time.monotonic()
    _sum_up(cluster, replace(longest, offsets=part))
    return part.slots / max(time.monotonic() - started_at, 1e-6)


def _sum_up(cluster: Cluster, job: AuditJob) -> None:
    """As the audit will do it."""
    if job.layout is None:
        audit_partition(cluster, job)
        return
    limits = ScaleSettings().ranges
    read = AuditRange(
        parts=(ChangelogRange(job.source, job.offsets, None),),
        slices=1,
        receiver_first=0,
        memory_bytes_max=limits.memory_bytes_max,
    )
    pieces = [piece for _, piece in send_digests(cluster, read)]
    for _ in tallies_by_partition(pieces, lambda: Placement(job.layout, job.routing)):
        pass


def source_ranges(
    cluster: Cluster,
    catalog: Catalog,
    topic: MovedTopic,
    sources: list[TopicPartition],
    last: LastCommits | None = None,
) -> dict[TopicPartition, OffsetRange]:
    """What is to be read of each partition: a changelog whole, a repartition topic from the committed input
    on.

    With the last commits of tasks that are fenced it is the last word, and transactions that still hold records are
    waited for.
    """
    ranges = cluster.ranges(sources) if last is None else stable_ranges(cluster, sources)
    if topic.layout is not None:
        return ranges
    if last is not None:
        positions = last.positions(topic.stage).values()
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


def _estimates(cluster: Cluster, logs: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, int]:
    """Bytes in each log, by the records at its beginning; all by one reader: one of its own mostly waits."""
    samples = {
        source: OffsetRange(log.offset_first, min(log.offset_next, log.offset_first + SAMPLE_SLOTS))
        for source, log in logs.items()
    }
    records, size_bytes = Counter[TopicPartition](), Counter[TopicPartition]()
    with closing(cluster.reader()) as reader:
        for batch in read_ranges(reader, samples):
            records[batch.source] += len(batch)
            size_bytes[batch.source] += sum(map(len, filter(None, chain(batch.keys, batch.values))))
    return {
        source: round(size_bytes[source] / records[source] * log.slots) if records[source] else 0
        for source, log in logs.items()
    }


def _audit_job(
    topic: MovedTopic,
    source: TopicPartition,
    offsets: OffsetRange,
    routing: RoutingEntry,
    base: Base | None,
) -> AuditJob:
    return AuditJob(
        store=topic.name,
        source=source,
        offsets=with_base_slot(offsets, base),
        layout=topic.layout,
        routing=routing,
        base=base,
    )


def _count(cluster: Cluster, job: AuditJob) -> int:
    return sum(tally.keys for tally in audit_partition(cluster, job).tallies)
