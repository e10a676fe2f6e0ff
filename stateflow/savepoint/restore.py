"""Starting an application from a savepoint: the same one, a changed one, or another one elsewhere.

1. Compare the savepoint with the application, and find where its sources go on.
2. Publish a new generation as *preparing* (from now on no worker starts), create its topics.
3. Fence the tasks of the generation before, if there is one, so that nothing can move its input positions any more.
4. Fill the changelogs from the images, the repartition topics with the records in flight; read both back and compare.
5. In one transaction on the control topic: the input positions, the stages and stores as they are now, the generation
   active, the one before retired.

Nothing that exists is overwritten, and nothing is active before step 5. A crash between any two steps is repaired by
starting again with the same savepoint; ``abort_restore`` undoes what there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from stateflow.catalog.compatibility import with_ids_of
from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import CatalogItem, Removed
from stateflow.catalog.model import Catalog, GenerationEntry, KeyLayout, RangeAudit
from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.catalog.stages import stage_changelogs
from stateflow.changelog.event_time import EventTime
from stateflow.changelog.position import InputPosition
from stateflow.checkpoint.savepoints import Savepoint, SavepointObjects
from stateflow.clock import Clock
from stateflow.errors import GenerationUnfinished
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.runtime.snapshots.savepoint_participant import abort_savepoint
from stateflow.runtime.worker.own_topics import own_topics
from stateflow.savepoint.fill import FillTarget, fill_queue, fill_task, total_audit
from stateflow.savepoint.matching import Match, SourcePolicy, match, source_positions
from stateflow.savepoint.target_generation import begin, found_attempt, next_generation, planned_catalog
from stateflow.scale.fencing import fence_tasks
from stateflow.scale.first_commits import FirstCommit, first_commits, write_commit_records
from stateflow.scale.generation import refuse_while_running

Report = Callable[[int, int], None]
"""Told how many of all partitions are filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSettings:
    """How a savepoint is restored."""

    allow_dropped_state: bool = False
    """Go on without state, or records in flight, that the application has no place for."""
    sources: SourcePolicy | None = None
    """Where sources are read from that are not the savepoint's own topics."""
    as_new: bool = False
    """Restore only as an application that has nothing yet: one that has run is refused, and not replaced."""
    replication: int = 1
    chunk_records_max: int = 100_000
    """Records per transaction: what a killed restore has to write again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a restore would do."""

    app: str
    generation: int
    resumes: bool
    match: Match
    positions: dict[TopicPartition, int]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore did."""

    app: str
    generation: int
    partitions: int
    keys_total: int
    records_in_flight_total: int
    match: Match
    audit: tuple[RangeAudit, ...]
    seconds: float


def plan_restore(
    cluster: Cluster, savepoint: Savepoint, expected: Catalog, settings: RestoreSettings
) -> Plan:
    """Compare and look; changes nothing. Raises what ``restore`` raises before it changes anything."""
    found = match(savepoint, expected, allow_dropped_state=settings.allow_dropped_state)
    positions = source_positions(cluster, savepoint, expected, settings.sources)
    catalog = ControlTopic(cluster, expected.app.app).read()
    entry = found_attempt(catalog, savepoint, expected.app.app, as_new=settings.as_new)
    generation = next_generation(catalog) if entry is None else entry.generation
    topics = planned_catalog(expected, savepoint, generation)
    return Plan(
        app=expected.app.app,
        generation=generation,
        resumes=entry is not None,
        match=found,
        positions=positions,
        topics=tuple(sorted(spec.name for spec in own_topics(topics, settings.replication))),
    )


def restore(
    cluster: Cluster,
    savepoint: Savepoint,
    saved: SavepointObjects,
    expected: Catalog,
    clock: Clock,
    *,
    settings: RestoreSettings | None = None,
    report: Report | None = None,
) -> Restored:
    """Make ``expected``, an application as a first start would write it down, go on from a savepoint.

    Its partition counts behind re-key steps become those of the savepoint. Raises ``StillRunning`` while it runs,
    ``CatalogIncompatible``, ``SavepointUnfit``, ``GenerationUnfinished`` when another change of it is unfinished,
    ``StateCorrupt``, ``SavepointMissing``, ``AuditFailed`` and ``ConfigError``. What was active is active until this
    returns.
    """
    started_at = time.monotonic()
    settings = settings or RestoreSettings()
    app = expected.app.app
    refuse_while_running(cluster, app)
    plan = plan_restore(cluster, savepoint, expected, settings)
    catalog, entry = begin(cluster, savepoint, expected, clock, settings.replication, as_new=settings.as_new)
    refuse_while_running(
        cluster, app
    )  # again: a worker may have joined before it could see the new generation
    if any(found.state == "active" for found in catalog.generations.values()):
        fence_tasks(cluster, catalog)
        abort_savepoint(ControlTopic(cluster, app), None, "the application was restored from a savepoint")
    reach("refill.after_topics")

    planned = planned_catalog(expected, savepoint, entry.generation)
    audit = _fill_all(cluster, savepoint, saved, planned, plan.match, entry, settings, clock, report)
    reach("refill.before_active")
    refuse_while_running(cluster, app)
    _activate(cluster, savepoint, planned, entry, audit, plan.positions, clock)
    reach("refill.after_active")
    keys, queued = total_audit(audit)
    return Restored(
        app=app,
        generation=entry.generation,
        partitions=entry.partitions,
        keys_total=keys,
        records_in_flight_total=queued,
        match=plan.match,
        audit=tuple(audit),
        seconds=time.monotonic() - started_at,
    )


# --- inside ---------------------------------------------------------------------------------------------


def _fill_all(
    cluster: Cluster,
    savepoint: Savepoint,
    saved: SavepointObjects,
    planned: Catalog,
    found: Match,
    entry: GenerationEntry,
    settings: RestoreSettings,
    clock: Clock,
    report: Report | None,
) -> list[RangeAudit]:
    app, generation = planned.app.app, entry.generation

    def target(topic: str, partition: int, stage: str | None, layout: KeyLayout | None) -> FillTarget:
        place = TopicPartition(topic, partition)
        routing = entry.routing if stage is None or planned.is_rekeyed(stage) else None
        topic_id = entry.topic_ids[topic]
        return FillTarget(app, generation, place, topic_id, settings.chunk_records_max, routing, layout)

    audit: list[RangeAudit] = []
    queues = [queue for queue in savepoint.queues if queue.step in found.steps_kept]
    total = len(savepoint.tasks) + len(queues)
    for index, task in enumerate(savepoint.tasks, 1):
        kept = [s for s in planned.stores.values() if s.stage == task.stage and s.name in found.kept]
        targets = {
            store.name: target(
                changelog_topic(app, store.name, generation), task.partition, task.stage, store.layout
            )
            for store in kept
        }
        if targets:
            audit += fill_task(cluster, saved, task, savepoint.generation, targets, clock)
        if report is not None:
            report(index, total)
    for index, queue in enumerate(queues, len(savepoint.tasks) + 1):
        place = target(repartition_topic(app, queue.step, generation), queue.partition, None, None)
        audit.append(fill_queue(cluster, saved, queue, place))
        if report is not None:
            report(index, total)
    return audit


def _activate(
    cluster: Cluster,
    savepoint: Savepoint,
    planned: Catalog,
    entry: GenerationEntry,
    audit: list[RangeAudit],
    positions: dict[TopicPartition, int],
    clock: Clock,
) -> None:
    app = planned.app.app
    commits = _first_commits(cluster, savepoint, planned, entry, positions)
    write_commit_records(cluster, app, entry.generation, commits)

    def decide(current: Catalog | None) -> list[CatalogItem]:
        found = None if current is None else current.generations.get(entry.generation)
        if found is not None and found.state == "active":
            return []  # an earlier attempt at this very transaction has succeeded
        if current is None or found is None or found.state != "preparing":
            raise GenerationUnfinished(
                f"the restore of {app!r} was aborted meanwhile.", action="start it again.", app=app
            )
        active = msgspec.structs.replace(
            found, state="active", audit=tuple(audit), activated_ms=clock.now_ms()
        )
        retired = [
            msgspec.structs.replace(other, state="retired")
            for other in current.generations.values()
            if other.state == "active"
        ]
        removed = [Removed(store) for name, store in current.stores.items() if name not in planned.stores]
        gone = [Removed(stage) for name, stage in current.stages.items() if name not in planned.stages]
        # Trimming is never taken out of a catalog; the new changelogs are whole, and are set for it at the next start.
        trim = None if current.app.trim is None else msgspec.structs.replace(current.app.trim, since_ms=0)
        return [
            msgspec.structs.replace(with_ids_of(planned.app, current.app), trim=trim),
            *planned.stages.values(),
            *planned.stores.values(),
            *removed,
            *gone,
            *retired,
            active,
        ]

    offsets = {at: to for commit in commits for at, to in commit.group_offsets().items()}
    ControlTopic(cluster, app).change(decide, offsets)


def _first_commits(
    cluster: Cluster,
    savepoint: Savepoint,
    planned: Catalog,
    entry: GenerationEntry,
    positions: Mapping[TopicPartition, int],
) -> list[FirstCommit]:
    """Tasks begin where the savepoint was made, at the event time that they had reached there.

    Those behind re-key steps begin with the records in flight. Of a source read from elsewhere nothing is known.
    """
    saved = {(task.stage, task.partition): task.position() for task in savepoint.tasks}
    commits: list[FirstCommit] = []
    for name, stage in planned.stages.items():
        times = {at: position.event_time for (of, at), position in saved.items() if of == name}
        if stage.rekeys:
            commits += first_commits(cluster, planned, name, entry, times)
            continue
        for partition in range(stage.source_partitions or 0):
            own = {
                at: to
                for at, to in positions.items()
                if at.partition == partition and at.topic in stage.sources
            }
            then = saved.get((name, partition), InputPosition())
            is_same = own == then.offsets
            position = InputPosition(own, then.event_time if is_same else EventTime())
            changelogs = stage_changelogs(planned, name, partition, entry.generation)
            commits.append(FirstCommit(list(changelogs.values()), position))
    return commits
