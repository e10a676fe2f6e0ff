"""A repartition from beginning to end, while no worker runs: N → M, every key accounted for.

1. Publish generation g+1 as *preparing* (from now on no worker starts), create its topics.
2. Fence the tasks of g, so nothing of g can change any more, and fix the range to read of every partition.
3. Move: one resumable job per old partition (``repartition.move_partition``).
4. Commit where the tasks of g+1 begin to read, with the event time that all tasks of g had reached.
5. Audit: key counts and hashes by store and new partition, both sides read from the log.
6. Make sure that g still ends where it did, then make g+1 active and g retired in one transaction.

A crash between any two steps is repaired by starting again; until step 6 everything can be aborted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog, GenerationEntry, RangeAudit, RoutingEntry
from stateflow.changelog.event_time import merged_minimum
from stateflow.changelog.format import is_reserved
from stateflow.checkpoint.whole import Base, with_base_slot
from stateflow.clock import Clock
from stateflow.errors import AuditFailed, OldGenerationWritten
from stateflow.log.base import Cluster, Committed
from stateflow.log.reading import read_range
from stateflow.log.settling import settled_ranges
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.snapshots.cuts import abort_cut
from stateflow.runtime.task.wiring import routing_of
from stateflow.scale.absorb import (
    Absorption,
    MergeJob,
    check_theirs_untouched,
    expected_tally,
    merge_partition,
)
from stateflow.scale.audit import AuditJob, audit_partition, compare
from stateflow.scale.decided import (
    decided_positions,
    refuse_pending_replays,
    refuse_torn_commits,
    refuse_trimmed_logs,
)
from stateflow.scale.engine import Engine
from stateflow.scale.first_commits import FirstCommit, first_commits, write_commit_records
from stateflow.scale.generation import (
    activate,
    begin,
    check_change,
    fence_tasks,
    load_catalog,
    refuse_while_running,
)
from stateflow.scale.plan import base_of, make_plan, source_ranges
from stateflow.scale.prediction import Prediction, Run, Work, phase_seconds
from stateflow.scale.progress import Progress, ProgressWatch
from stateflow.scale.repartition import MoveJob, fixed_range, move_partition, progress_group
from stateflow.scale.scope import MovedTopic, moved_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings:
    """Limits of the moving jobs."""

    chunk_records_max: int = 200_000
    """Records per transaction: what a killed job has to do again."""
    chunk_bytes_max: int = 64 << 20
    audit_keys_max: int = 2_000_000
    """Keys that one audit job holds in memory; more are audited in several passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a finished repartition did. Totals count this attempt's work, not that of attempts before it."""

    app: str
    generation_from: int
    generation_to: int
    partitions_from: int
    partitions_to: int
    engine: str
    records_read_total: int
    records_written_total: int
    keys_total: int
    """Live keys of all stores in the new generation."""
    unread_total: int
    """Records in the new repartition topics that no task has processed yet."""
    audit: tuple[RangeAudit, ...]
    work: Work
    prediction: Prediction
    seconds_starting: float
    """Of the engine, before this began: Spark's session."""
    seconds_moving: float
    seconds_auditing: float
    seconds_total: float
    """With the engine's start."""

    def run(self, clock: Clock) -> Run:
        """The same as experience for the next prediction."""
        preparing = self.seconds_total - self.seconds_starting - self.seconds_moving - self.seconds_auditing
        seconds = {
            "starting": self.seconds_starting,
            "preparing": preparing,
            "moving": self.seconds_moving,
            "auditing": self.seconds_auditing,
        }
        return Run(app=self.app, at_ms=clock.now_ms(), work=self.work, seconds=phase_seconds(seconds))

    @property
    def records_per_second(self) -> float:
        """Changelog and repartition records read per second while moving."""
        return self.records_read_total / self.seconds_moving if self.seconds_moving > 0 else 0.0


def start(
    cluster: Cluster,
    app: str,
    routing: RoutingEntry,
    engine: Engine,
    clock: Clock,
    *,
    settings: ScaleSettings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    absorption: Absorption | None = None,
    past: Sequence[Run] = (),
    seconds_starting: float = 0.0,
) -> Outcome:
    """Repartition all of an application's re-keyed state and unread records; resumes an unfinished attempt.

    With ``absorption`` the routing stays, and after step 3 another application's state is merged in. Raises
    ``StillRunning``, ``GenerationUnfinished``, ``GraphError``, ``ConfigError`` before anything is moved, and
    ``MergeUndefined``, ``AuditFailed`` or ``OldGenerationWritten`` after; the old generation is active until this
    returns. ``past`` is what was made on this machine before, ``seconds_starting`` what the engine took to be there.
    """
    settings = settings or ScaleSettings()
    started_at = time.monotonic()
    catalog = load_catalog(cluster, app)
    absorbs = None if absorption is None else absorption.other
    check_change(catalog, routing, absorbs)
    refuse_while_running(cluster, app)
    refuse_torn_commits(cluster, catalog)
    refuse_pending_replays(cluster, catalog)
    theirs = None if absorption is None else absorption.check(cluster, catalog)
    if theirs is not None:
        refuse_trimmed_logs(cluster, catalog)
        refuse_trimmed_logs(cluster, theirs)
    plan = make_plan(
        cluster, catalog, routing, lanes=engine.lanes, engine=engine.name, past=past, clock=clock
    )
    catalog, entry = begin(cluster, catalog, routing, clock, absorbs)
    refuse_while_running(
        cluster, app
    )  # again: a worker may have joined before it could see the new generation
    fence_tasks(cluster, catalog)
    abort_cut(ControlTopic(cluster, app), None, "the number of partitions was changed")
    refuse_torn_commits(cluster, catalog)  # again: now the answer is final
    refuse_pending_replays(cluster, catalog)

    jobs = _fix_jobs(cluster, catalog, entry, settings, clock)
    moving_at = time.monotonic()
    with ProgressWatch(cluster, jobs, on_progress):
        moved = engine.run(move_partition, jobs)
    merges: list[MergeJob] = []
    if absorption is not None and theirs is not None:
        absorption.fence(cluster, theirs)
        merges = absorption.jobs(
            cluster, catalog, theirs, entry.generation, {job.source: job.offsets for job in jobs}
        )
        moved += engine.run(merge_partition, merges)
        absorption.commit_sources(cluster, app, theirs)
    auditing_at = time.monotonic()
    _commit_inputs(cluster, catalog, entry)
    audit = _audit(cluster, catalog, entry, jobs, merges, engine, settings)
    audited_at = time.monotonic()
    _check_untouched(cluster, app, jobs)
    check_theirs_untouched(cluster, merges)
    activate(cluster, catalog, entry, audit, clock)

    queues = {topic.name for topic in moved_topics(catalog) if topic.layout is None}
    return Outcome(
        app=app,
        generation_from=catalog.active.generation,
        generation_to=entry.generation,
        partitions_from=catalog.active.partitions,
        partitions_to=entry.partitions,
        engine=engine.name,
        records_read_total=sum(result.records_read_total for result in moved),
        records_written_total=sum(result.records_written_total for result in moved),
        keys_total=sum(row.keys_after for row in audit if row.store not in queues),
        unread_total=sum(row.keys_after for row in audit if row.store in queues),
        audit=audit,
        work=plan.work,
        prediction=plan.prediction,
        seconds_starting=seconds_starting,
        seconds_moving=auditing_at - moving_at,
        seconds_auditing=audited_at - auditing_at,
        seconds_total=seconds_starting + time.monotonic() - started_at,
    )


def _fix_jobs(
    cluster: Cluster, catalog: Catalog, entry: GenerationEntry, settings: ScaleSettings, clock: Clock
) -> list[MoveJob]:
    """One job per old partition. Ranges fixed by an earlier attempt stand; new ones are committed before
    use.
    """
    app, group = catalog.app.app, progress_group(catalog.app.app, entry.generation)
    jobs: list[MoveJob] = []
    fresh: dict[TopicPartition, Committed] = {}
    for topic in moved_topics(catalog):
        sources = topic.partitions(catalog, catalog.active.generation)
        recorded = cluster.committed(group, sources, stable=False)
        current = source_ranges(cluster, catalog, topic, sources, stable=True)
        for source in sources:
            base = base_of(cluster, catalog, topic, source, current[source], clock)
            offsets = with_base_slot(current[source], base)
            if source in recorded:
                offsets = fixed_range(recorded[source])
            job = MoveJob(
                app=app,
                generation=entry.generation,
                source=source,
                offsets=offsets,
                target_topic=topic.topic(entry.generation),
                layout=topic.layout,
                routing=entry.routing,
                base=base,
                chunk_records_max=settings.chunk_records_max,
                chunk_bytes_max=settings.chunk_bytes_max,
            )
            jobs.append(job)
            if source not in recorded:
                fresh[source] = job.progress(offsets.offset_first)
    if fresh:
        cluster.commit(group, fresh)
    return jobs


def _commit_inputs(cluster: Cluster, catalog: Catalog, entry: GenerationEntry) -> None:
    """Where the tasks of the new generation begin, and the event time that all tasks before them had
    reached.
    """
    app = catalog.app.app
    commits: list[FirstCommit] = []
    for stage in catalog.stages:
        if catalog.is_rekeyed(stage):
            positions = decided_positions(cluster, catalog, stage).values()
            lowest = merged_minimum([position.event_time for position in positions])
            event_times = dict.fromkeys(range(entry.partitions), lowest)
            commits += first_commits(cluster, catalog, stage, entry, event_times)
    write_commit_records(cluster, app, entry.generation, commits)
    cluster.commit(app, {at: to for commit in commits for at, to in commit.group_offsets().items()})


def _audit(
    cluster: Cluster,
    catalog: Catalog,
    entry: GenerationEntry,
    moves: list[MoveJob],
    merges: list[MergeJob],
    engine: Engine,
    settings: ScaleSettings,
) -> tuple[RangeAudit, ...]:
    """Sum up both sides; raises ``AuditFailed`` when they differ anywhere."""
    merged = {merge.target.topic for merge in merges}
    entry = _as_workers_will_read_it(cluster, catalog.app.app, entry)
    before = [
        _audit_job(topic, entry, move.source, move.offsets, settings, move.base)
        for topic in moved_topics(catalog)
        for move in moves
        if move.target_topic == topic.topic(entry.generation) and move.target_topic not in merged
    ]
    after = [
        _audit_job(topic, entry, source, offsets, settings)
        for topic in moved_topics(catalog)
        for source, offsets in settled_ranges(cluster, topic.partitions(catalog, entry.generation)).items()
    ]
    results = engine.run(audit_partition, before + after)
    expected = engine.run(expected_tally, merges)
    rows = compare(results[: len(before)] + expected, results[len(before) :])
    unequal = [row for row in rows if not row.equal]
    if unequal:
        worst = unequal[0]
        raise AuditFailed(
            f"{len(unequal)} of {len(rows)} ranges differ between generation {catalog.active.generation} and"
            f" {entry.generation}; first {worst.store!r}, new partition {worst.partition}:"
            f" {worst.keys_before} keys"
            f" before, {worst.keys_after} after.",
            action=f"generation {catalog.active.generation} is still active and complete: run `stateflow"
            " scale abort`,"
            " then start again. If it differs again, keep the topics and report it.",
            unequal=[(row.store, row.partition) for row in unequal],
        )
    return rows


def _as_workers_will_read_it(cluster: Cluster, app: str, entry: GenerationEntry) -> GenerationEntry:
    """The generation with the routing that workers will take from the catalog, whatever the mover was given."""
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
    return msgspec.structs.replace(entry, routing=routing)


def _audit_job(
    topic: MovedTopic,
    entry: GenerationEntry,
    source: TopicPartition,
    offsets: OffsetRange,
    settings: ScaleSettings,
    base: Base | None = None,
) -> AuditJob:
    return AuditJob(
        store=topic.name,
        source=source,
        offsets=offsets,
        layout=topic.layout,
        routing=entry.routing,
        keys_max=settings.audit_keys_max,
        base=base,
    )


def _check_untouched(cluster: Cluster, app: str, jobs: list[MoveJob]) -> None:
    """Raise when anything was written to the old generation after its ranges were fixed.

    Touch records, with which the tuner makes idle partitions roll, are not state and are allowed.
    """
    refuse_while_running(cluster, app)
    ends = settled_ranges(cluster, [job.source for job in jobs])
    for job in jobs:
        added = OffsetRange(job.offsets.offset_next, ends[job.source].offset_next)
        for batch in read_range(cluster, job.source, added):
            if job.layout is None or not all(is_reserved(key) for key in batch.keys):
                raise OldGenerationWritten(
                    f"{job.source} was written to at offset {batch.offsets[0]} while it was being"
                    " repartitioned.",
                    action="a worker ran in between: stop it, run `stateflow scale abort`, and start again.",
                    topic=job.source.topic,
                    partition=job.source.partition,
                )
