"""A repartition from beginning to end, while no worker runs: N → M, every key accounted for.

1. Publish generation g+1 as *preparing* (from now on no worker starts), create its topics.
2. Fence the tasks of g, so nothing of g can change any more, and fix the range to read of every partition.
3. Move: the state in sub-ranges and slices (``state_move``), unread records by old partition (``unread``).
4. Commit where the tasks of g+1 begin to read, with the event time that all tasks of g had reached.
5. Audit: key counts and hashes by store and new partition, both sides read from the log.
6. Make sure that g still ends where it did, then make g+1 active and g retired in one transaction.

A crash between any two steps is repaired by starting again; until step 6 everything can be aborted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog, GenerationEntry, RangeAudit, RoutingEntry
from stateflow.changelog.event_time import merged_minimum
from stateflow.changelog.format import is_reserved
from stateflow.clock import Clock
from stateflow.errors import OldGenerationWritten
from stateflow.log.base import Cluster
from stateflow.log.kept_readers import kept_readers
from stateflow.log.reading import read_range
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import OffsetRange, RecordBatch
from stateflow.runtime.snapshots.savepoint_participant import abort_savepoint
from stateflow.scale.application_merge import (
    ApplicationMerge,
    MergeJob,
    check_theirs_untouched,
    merge_partition,
)
from stateflow.scale.auditing import audit_repartition
from stateflow.scale.engine import Engine
from stateflow.scale.fencing import fence_tasks
from stateflow.scale.first_commits import FirstCommit, first_commits, write_commit_records
from stateflow.scale.generation import (
    activate,
    begin,
    check_change,
    load_catalog,
    refuse_while_running,
)
from stateflow.scale.last_commits import LastCommits, read_last_commits, refuse_trimmed_logs
from stateflow.scale.moving import Moves, fix_moves
from stateflow.scale.plan import Plan, make_plan
from stateflow.scale.prediction import Prediction, Run, Work, phase_seconds
from stateflow.scale.progress import Progress, ProgressWatch
from stateflow.scale.scope import moved_topics
from stateflow.scale.settings import ScaleSettings
from stateflow.scale.unread import MoveResult


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
    application_merge: ApplicationMerge | None = None,
    past: Sequence[Run] = (),
    seconds_starting: float = 0.0,
) -> Outcome:
    """Repartition all of an application's re-keyed state and unread records; resumes an unfinished attempt.

    With ``application_merge`` the routing stays, and after step 3 another application's state is merged in. Raises
    ``StillRunning``, ``GenerationUnfinished``, ``GraphError``, ``ConfigError`` before anything is moved, and
    ``MergeUndefined``, ``AuditFailed`` or ``OldGenerationWritten`` after; the old generation is active until this
    returns. ``past`` is what was made on this machine before, ``seconds_starting`` what the engine took to be there.
    """
    settings = settings or ScaleSettings()
    with kept_readers(cluster) as cluster:
        started_at = time.monotonic()
        catalog = load_catalog(cluster, app)
        merged_app = None if application_merge is None else application_merge.other
        check_change(catalog, routing, merged_app)
        plan = _planned(cluster, catalog, routing, engine, past, clock)
        theirs = None if application_merge is None else application_merge.check(cluster, catalog)
        if theirs is not None:
            refuse_trimmed_logs(cluster, catalog)
            refuse_trimmed_logs(cluster, theirs)
        catalog, entry = begin(cluster, catalog, routing, clock, merged_app)
        refuse_while_running(
            cluster, app
        )  # again: a worker may have joined before it could see the new generation
        fence_tasks(cluster, catalog)
        abort_savepoint(ControlTopic(cluster, app), None, "the number of partitions was changed")
        last = read_last_commits(cluster, catalog)  # again: now the answer is final
        last.refuse_torn()
        last.refuse_pending_replays()

        sizes = {row.source: row.bytes_estimated for row in plan.partitions}
        moves = fix_moves(cluster, catalog, entry, settings, clock, engine.lanes, sizes, last)
        moving_at = time.monotonic()
        with ProgressWatch(cluster, "moving", on_progress) as watch:
            moved = moves.run(cluster, engine, watch)
        merges: list[MergeJob] = []
        merged: list[MoveResult] = []
        if application_merge is not None and theirs is not None:
            application_merge.fence(cluster, theirs)
            merges = application_merge.jobs(cluster, catalog, theirs, entry.generation, moves.ranges)
            merged = engine.run(merge_partition, merges)
            application_merge.commit_sources(cluster, app, theirs)
        auditing_at = time.monotonic()
        _commit_inputs(cluster, catalog, entry, last)
        audit = audit_repartition(cluster, catalog, entry, moves, merges, engine, on_progress)
        audited_at = time.monotonic()
        _check_untouched(cluster, app, moves)
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
            records_read_total=moved.records_read_total + sum(done.records_read_total for done in merged),
            records_written_total=moved.records_written_total
            + sum(done.records_written_total for done in merged),
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


def _planned(
    cluster: Cluster,
    catalog: Catalog,
    routing: RoutingEntry,
    engine: Engine,
    past: Sequence[Run],
    clock: Clock,
) -> Plan:
    """The plan, once nothing speaks against it: looking at groups, changelogs and topics is mostly waiting.

    Raises ``StillRunning``, then ``CommitTorn`` or ``ReplayPending``, then what making a plan raises.
    """
    with ThreadPoolExecutor(3, thread_name_prefix="repartition-plan") as pool:
        stopped = pool.submit(refuse_while_running, cluster, catalog.app.app)
        reading = pool.submit(read_last_commits, cluster, catalog, stable=False)
        planning = pool.submit(
            make_plan,
            cluster,
            catalog,
            routing,
            lanes=engine.lanes,
            engine=engine.name,
            past=past,
            clock=clock,
        )
        stopped.result()
        last = reading.result()
        last.refuse_torn()
        last.refuse_pending_replays()
        return planning.result()


def _commit_inputs(cluster: Cluster, catalog: Catalog, entry: GenerationEntry, last: LastCommits) -> None:
    """Where the tasks of the new generation begin, and the event time that all tasks before them had
    reached.
    """
    app = catalog.app.app
    commits: list[FirstCommit] = []
    for stage in catalog.stages:
        if catalog.is_rekeyed(stage):
            lowest = merged_minimum([position.event_time for position in last.positions(stage).values()])
            event_times = dict.fromkeys(range(entry.partitions), lowest)
            commits += first_commits(cluster, catalog, stage, entry, event_times)
    write_commit_records(cluster, app, entry.generation, commits)
    cluster.commit(app, {at: to for commit in commits for at, to in commit.group_offsets().items()})


def _check_untouched(cluster: Cluster, app: str, moves: Moves) -> None:
    """Raise when anything was written to the old generation after its ranges were fixed.

    Touch records, with which the tuner makes idle partitions roll, are not state and are allowed.
    """
    refuse_while_running(cluster, app)
    ends = stable_ranges(cluster, moves.ranges)
    for move in moves.topics:
        for old in move.partitions:
            added = OffsetRange(old.offsets.offset_next, ends[old.source].offset_next)
            for batch in read_range(cluster, old.source, added):
                if move.layout is None or not all(is_reserved(key) for key in batch.keys):
                    raise _written_to(batch)


def _written_to(batch: RecordBatch) -> OldGenerationWritten:
    return OldGenerationWritten(
        f"{batch.source} was written to at offset {batch.offsets[0]} while it was being repartitioned.",
        action="a worker ran in between: stop it, run `stateflow scale abort`, and start again.",
        topic=batch.source.topic,
        partition=batch.source.partition,
    )
