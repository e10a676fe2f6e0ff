"""Rebuilding lost state with all cores: every changelog partition is read in offset sub-ranges at the same time.

1. What is to be restored is planned as for any restore (``checkpoint.planner``), from empty; targets are fixed here.
2. Each sub-range becomes sorted files (``checkpoint.runs.write_runs``), by as many jobs as the engine has lanes for:
   one partition is read by several, which is what a restore by task cannot do.
3. Each task's files are made its database, oldest first, so the newest offset of a key wins (``merge_runs``): in place,
   or as an image that a worker fetches when it opens the task.

Nothing is written to Kafka, and workers may run if the result is an image: they do not see it before it is whole.
What a recovery that was killed has left of its files is removed by the next one of the same partitions, and by any
other a day later.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stateflow.catalog.model import Catalog
from stateflow.checkpoint.jobs import jobs_of, plan_of
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.planner import TaskPlan
from stateflow.checkpoint.runs import MergeJob, RangeJob, RangeRuns, Run, Scratch, merge_runs, write_runs
from stateflow.checkpoint.sub_ranges import sub_ranges
from stateflow.clock import Clock
from stateflow.errors import ConfigError
from stateflow.log.base import Cluster
from stateflow.memory import memory_shares
from stateflow.runtime.progress.lag import committed_inputs
from stateflow.scale.engine import Engine
from stateflow.scale.progress import Progress, ProgressWatch
from stateflow.scale.ranges import RangeRead
from stateflow.store.memory import MemoryTaskStores

_LOG = logging.getLogger(__name__)

_LEFT_MS_MAX = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverSettings:
    """Limits of a recovery."""

    slots_min: int = 50_000
    """Offset slots of a sub-range at least: a smaller one costs more to begin than it saves."""
    ranges_per_lane: int = 2
    """A compacted log is thinner at its beginning, so equal numbers of slots are not equal work: more parts even that
    out.
    """
    bytes_max: int = memory_shares().restore_bytes_each(1) // 2
    """What each job may hold in memory before it writes a file."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was rebuilt."""

    tasks: int
    ranges: int
    records_total: int
    slots_total: int
    seconds_reading: float
    seconds_merging: float
    images: dict[str, str]
    """Task → name of its image, if images were made."""


def recover(
    cluster: Cluster,
    catalog: Catalog,
    engine: Engine,
    clock: Clock,
    *,
    scratch: str,
    state_dir: Path | None = None,
    images: str | None = None,
    partitions: Sequence[int] = (),
    settings: RecoverSettings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Recovered:
    """Rebuild the state of all tasks, or of those of some partitions, in ``state_dir`` or as images at ``images``.

    ``scratch`` is a place that the engine's jobs all reach: a directory of this machine, or an object store. What is
    put there is removed at the end. One that was killed is begun anew, which removes what it left; if it was not dead
    after all it ends with ``Interrupted``. ``on_progress`` is told, by another thread, how much is read: what follows
    takes a second or two, whatever the size. Raises
    ``ChangelogTrimmed`` for a log that begins with an image (`stateflow restore` reads those), ``TopicRecreated``,
    ``StateLocked`` while a worker has a task that is rebuilt in place.
    """
    if (state_dir is None) == (images is None):
        raise ConfigError(
            "it is not clear where the state goes.",
            action="name either a state directory or a place of images.",
        )
    settings = settings or RecoverSettings()
    jobs = jobs_of(catalog, cluster.cluster_id, state_dir or Path("nowhere"), partitions)
    plans = {job.task: plan_of(cluster, job, MemoryTaskStores(job.changelogs), clock) for job in jobs}
    place = _fresh_place(scratch, catalog.app.app, partitions, clock)
    began = clock.monotonic_seconds()
    try:
        ranges = _range_jobs(plans, engine.lanes, place, settings)
        read = _read(cluster, engine, ranges, on_progress)
        reading_seconds = clock.monotonic_seconds() - began
        runs: dict[object, list[Run]] = defaultdict(list)
        for job, found in zip(ranges, read, strict=True):
            runs[job.source] += found.runs
        merges = [
            MergeJob(
                job=job,
                plans=plans[job.task].stores,
                runs={store: tuple(runs[source]) for store, source in job.changelogs.items()},
                scratch=place,
                inputs=committed_inputs(cluster, catalog, job.task),
                images=images,
            )
            for job in jobs
        ]
        merged = engine.run(merge_runs, merges)
    finally:
        place.remove()
    _warn_of_deletions(plans.values(), clock)
    return Recovered(
        tasks=len(jobs),
        ranges=len(ranges),
        records_total=sum(found.records_total for found in read),
        slots_total=sum(plan.slots for plan in plans.values()),
        seconds_reading=round(reading_seconds, 3),
        seconds_merging=round(clock.monotonic_seconds() - began - reading_seconds, 3),
        images={task.task: task.image for task in merged if task.image is not None},
    )


def _fresh_place(location: str, app: str, partitions: Sequence[int], clock: Clock) -> Scratch:
    """A folder of its own, once those of earlier recoveries are removed.

    Recoveries of other partitions may run beside this one, so theirs stay until nobody can be at work on them.
    """
    whole = f"{app}/recovery"
    same = f"{whole}/{'-'.join(map(str, sorted(set(partitions)))) or 'all'}"
    oldest_ms = clock.now_ms() - _LEFT_MS_MAX
    objects = open_objects(location)
    left = [
        info.name
        for info in objects.list(whole)
        if info.name.startswith(f"{same}/") or info.modified_ms < oldest_ms
    ]
    for name in left:
        objects.delete(name)
    if left:
        _LOG.info("Removed %d files that an earlier recovery left at %s.", len(left), location)
    return Scratch(location=location, folder=f"{same}/{uuid.uuid4().hex}")


def _range_jobs(
    plans: dict[str, TaskPlan], lanes: int, scratch: Scratch, settings: RecoverSettings
) -> list[RangeJob]:
    """The sub-ranges of all changelogs, each log's in order."""
    slots = sum(plan.slots for plan in plans.values())
    slots_each = max(settings.slots_min, -(-slots // (lanes * settings.ranges_per_lane)))
    return [
        RangeJob(source=plan.changelog, offsets=part, scratch=scratch, bytes_max=settings.bytes_max)
        for task in plans.values()
        for plan in task.stores
        if plan.action == "replay"
        for part in sub_ranges(plan.offsets, slots_each)
    ]


def _read(
    cluster: Cluster,
    engine: Engine,
    ranges: Sequence[RangeJob],
    on_progress: Callable[[Progress], None] | None,
) -> list[RangeRuns]:
    """The sorted files of all sub-ranges."""
    with ProgressWatch(cluster, "reading", on_progress) as watch:
        watch.expect(2 * sum(job.offsets.slots for job in ranges))
        return engine.run(
            write_runs,
            ranges,
            lambda done: watch.note(RangeRead(2 * done.slots, done.records_total)),
        )


def _warn_of_deletions(plans: Iterable[TaskPlan], clock: Clock) -> None:
    """A replay that outlives the log's tombstones may bring deleted keys back, however it is done."""
    now_ms = clock.now_ms()
    for task in plans:
        for plan in task.stores:
            if now_ms - plan.planned_ms > plan.tombstones_kept_ms:
                _LOG.warning(
                    "The replay of %s took longer than its topic keeps deletions (%d s): keys deleted meanwhile may be"
                    " back. Raise delete.retention.ms of the topic and recover again.",
                    plan.changelog,
                    plan.tombstones_kept_ms // 1000,
                )
