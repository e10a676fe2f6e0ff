"""The audit of a whole repartition: both sides of every store and re-key step, read from the log and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from stateflow.catalog.model import Catalog, GenerationEntry, RangeAudit, RoutingEntry
from stateflow.checkpoint.sub_ranges import sub_ranges
from stateflow.errors import AuditFailed
from stateflow.log.base import Cluster
from stateflow.log.stable_ranges import stable_ranges
from stateflow.runtime.task.wiring import routing_of
from stateflow.scale.application_merge import MergeJob, expected_tally
from stateflow.scale.audit import AuditJob, AuditResult, Tally, audit_partition, compare
from stateflow.scale.audit_slices import AuditedChangelog, audit_changelogs
from stateflow.scale.engine import Engine
from stateflow.scale.generation import load_catalog
from stateflow.scale.moving import Moves, OldPartition, TopicMove
from stateflow.scale.progress import Progress, ProgressWatch


def audit_repartition(
    cluster: Cluster,
    catalog: Catalog,
    entry: GenerationEntry,
    moves: Moves,
    merges: Sequence[MergeJob],
    engine: Engine,
    on_progress: Callable[[Progress], None] | None,
) -> tuple[RangeAudit, ...]:
    """Sum up both sides; raises ``AuditFailed`` when they differ anywhere.

    Where another application's state was merged in, what must be there is computed anew from the old topics of both.
    """
    routing = _as_workers_will_read_it(cluster, catalog.app.app, entry)
    merged = {merge.target.topic for merge in merges}
    before = [move for move in moves.topics if move.target_topic not in merged]
    after = [_after(cluster, catalog, entry, move) for move in moves.topics]
    with ProgressWatch(cluster, "auditing", on_progress) as watch:
        watch.expect(2 * sum(move.slots for move in [*before, *after] if move.layout is not None))
        summed = _summed(engine, [*before, *after], routing, moves, watch)
        new = {old.source for side in after for old in side.partitions}
        expected = [result for result in summed if result.source not in new]
        expected += engine.run(expected_tally, merges)
        found = [result for result in summed if result.source in new]
    rows = compare(expected, found)
    unequal = [row for row in rows if not row.equal]
    if unequal:
        raise _differs(catalog, entry, rows, unequal)
    return rows


def _after(cluster: Cluster, catalog: Catalog, entry: GenerationEntry, move: TopicMove) -> TopicMove:
    """The same of the new generation, up to where it ends now."""
    ends = stable_ranges(cluster, move.topic.partitions(catalog, entry.generation))
    partitions = tuple(OldPartition(source, offsets) for source, offsets in ends.items())
    return TopicMove(move.topic, move.target_topic, partitions, move.size_bytes, move.slices)


def _summed(
    engine: Engine,
    sides: Sequence[TopicMove],
    routing: RoutingEntry,
    moves: Moves,
    watch: ProgressWatch,
) -> list[AuditResult]:
    settings = moves.settings
    changelogs = [
        AuditedChangelog(
            store=side.topic.name,
            layout=side.layout,
            partitions=tuple((old.source, old.offsets, old.base) for old in side.partitions),
        )
        for side in sides
        if side.layout is not None
    ]
    queues = [side for side in sides if side.layout is None]
    summed = audit_changelogs(
        engine, changelogs, routing, settings.audit_keys_max, settings.ranges, watch.note
    )
    parts = engine.run(audit_partition, list(_queue_jobs(queues, routing, settings.ranges.slots_max)))
    nothing = (Tally(),) * routing.partitions
    empty = [
        AuditResult(side.topic.name, old.source, nothing)
        for side in queues
        for old in side.partitions
        if old.offsets.is_empty
    ]
    return summed + empty + _together(parts)


def _queue_jobs(queues: Sequence[TopicMove], routing: RoutingEntry, slots_each: int) -> Iterator[AuditJob]:
    """Records of a repartition topic all count, so its parts are independent of each other."""
    for side in queues:
        for old in side.partitions:
            for part in sub_ranges(old.offsets, slots_each) if not old.offsets.is_empty else ():
                yield AuditJob(
                    store=side.topic.name, source=old.source, offsets=part, layout=None, routing=routing
                )


def _together(parts: Sequence[AuditResult]) -> list[AuditResult]:
    found: dict[tuple[str, object], AuditResult] = {}
    for part in parts:
        known = found.get((part.store, part.source))
        if known is not None:
            sums = (one + other for one, other in zip(known.tallies, part.tallies, strict=True))
            part = AuditResult(part.store, part.source, tuple(sums))
        found[part.store, part.source] = part
    return list(found.values())


def _differs(
    catalog: Catalog, entry: GenerationEntry, rows: Sequence[RangeAudit], unequal: Sequence[RangeAudit]
) -> AuditFailed:
    worst = unequal[0]
    return AuditFailed(
        f"{len(unequal)} of {len(rows)} ranges differ between generation {catalog.active.generation} and"
        f" {entry.generation}; first {worst.store!r}, new partition {worst.partition}:"
        f" {worst.keys_before} keys"
        f" before, {worst.keys_after} after.",
        action=f"generation {catalog.active.generation} is still active and complete: run `stateflow"
        " scale abort`,"
        " then start again. If it differs again, keep the topics and report it.",
        unequal=[(row.store, row.partition) for row in unequal],
    )


def _as_workers_will_read_it(cluster: Cluster, app: str, entry: GenerationEntry) -> RoutingEntry:
    """The routing that workers will take from the catalog, whatever the mover was given."""
    kept = load_catalog(cluster, app)
    active = msgspec.structs.replace(kept.generations[entry.generation], state="active")
    routing = routing_of(msgspec.structs.replace(kept, generations={entry.generation: active})).entry()
    if routing.partitions != entry.partitions:
        raise AuditFailed(
            f"the catalog gives generation {entry.generation} {routing.partitions} partitions; keys were moved to"
            f" {entry.partitions}.",
            action="the catalog was changed meanwhile: run `stateflow scale abort`, then start again.",
            generation=entry.generation,
        )
    return routing
