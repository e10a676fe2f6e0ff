"""Making a savepoint: open a barrier, wait for every task's part, collect input in flight, publish the whole.

1. Open a barrier on the control topic. Tasks commit their barrier points and publish their parts
   (``runtime/snapshots/savepoint_participant.py``); of an
   application that stands still the parts are made here (``stopped.py``).
2. When all parts are there, fix the ends of the repartition topics and collect what is in flight.
3. Make sure that the barrier is still open: then no task had left it when the ends were fixed, so what was read is
   exact.
4. Publish the manifest. From here on there is a savepoint.
5. In one transaction on the control topic, list it and end the barrier.

Whatever fails before step 4 aborts it and removes the parts; a process that is killed leaves parts that are no
savepoint, and the next one removes them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from stateflow.catalog.control import ControlTopic, refuse_unfinished
from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.model import BarrierEntry, Catalog, SavepointEntry
from stateflow.catalog.names import SAVEPOINT_NAME, task_id
from stateflow.checkpoint.locations import NO_LOCATIONS, AllowedLocations, open_objects, written_down
from stateflow.checkpoint.savepoints import SavedQueue, SavedTask, Savepoint, SavepointObjects
from stateflow.clock import Clock
from stateflow.errors import ConfigError, SavepointFailed, StateCorrupt, StateflowError, StillRunning
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.runtime.snapshots.savepoint_participant import abort_savepoint
from stateflow.savepoint.inflight import collect_queues
from stateflow.savepoint.stopped import StartedMeanwhile, stopped_parts
from stateflow.scale.generation import load_catalog, refuse_beside_query

_LOG = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
_GRACE_MS = 3_600_000

Report = Callable[[int, int], None]
"""Told how many of all parts are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSettings:
    """How a savepoint is made."""

    timeout_seconds: float = 120.0
    """How long the tasks of a running application may take for their parts."""
    state_dir: Path | None = None
    """Where a stopped application's state may be on this machine; what is not there is read from the changelogs."""
    allowed: AllowedLocations = NO_LOCATIONS
    """Where parts of a savepoint that came to nothing may be removed, besides the place of the new one."""


def create(
    cluster: Cluster,
    app: str,
    name: str,
    location: str,
    clock: Clock,
    *,
    settings: CreateSettings | None = None,
    report: Report | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Savepoint:
    """Make a savepoint of an application, running or not; on return it is whole and listed.

    Where workers start while it is made of an application that stood still, it is begun again, with them taking part.

    Raises ``ConfigError`` for a name that is taken or cannot be one, ``StillRunning`` while another is being made or
    Spark runs the application in micro-batches, ``SavepointFailed`` when a task did not publish its part in time or
    could not, ``CommitTorn`` and what reading the log raises. Nothing of it is left then.
    """
    settings = settings or CreateSettings()
    attempt = partial(_create, cluster, app, name, location, clock, settings, report, pause)
    try:
        return attempt()
    except StartedMeanwhile as error:
        _LOG.info("%s It is begun again.", error.message)
    return attempt()


def _create(
    cluster: Cluster,
    app: str,
    name: str,
    location: str,
    clock: Clock,
    settings: CreateSettings,
    report: Report | None,
    pause: Callable[[float], None],
) -> Savepoint:
    catalog = check_creatable(cluster, app, name)
    control = ControlTopic(cluster, app)
    entry = _open_barrier(control, catalog, name, location, clock, settings)
    saved = SavepointObjects(open_objects(location), app, name, entry.barrier_id, clock)
    try:
        tasks = None
        if cluster.group_members(app):
            tasks = _await_parts(cluster, control, catalog, entry, saved, clock, report, pause)
        barrier_id = None if tasks is None else entry.barrier_id
        if tasks is None:
            tasks = stopped_parts(cluster, catalog, saved, settings.state_dir, clock, report)
        reach("savepoint.after_parts")
        queues = tuple(collect_queues(cluster, catalog, barrier_id, saved, tasks, pause))
        savepoint = _whole(cluster, catalog, entry, tasks, queues, clock)
        _check_open(control, entry)
        _check_files(saved, savepoint)
        reach("savepoint.before_manifest")
        saved.publish(savepoint)
    except BaseException as error:
        if isinstance(
            error, StateflowError | OSError | KeyboardInterrupt
        ):  # anything else is as good as a kill
            _give_up(control, entry, saved, error)
        raise
    reach("savepoint.after_manifest")
    _list(control, entry, savepoint, location)
    reach("savepoint.after_list")
    return savepoint


def check_creatable(cluster: Cluster, app: str, name: str) -> Catalog:
    """The catalog, if a savepoint of that name may be made now; changes nothing. Raises what ``create`` raises."""
    if not SAVEPOINT_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a savepoint.",
            action="take letters, digits, - and _, at most 100.",
            savepoint=name,
        )
    catalog = refuse_unfinished(load_catalog(cluster, app))
    _refuse_taken(catalog, name)
    if not cluster.group_members(app):  # workers take part, on Spark, too; the tasks of micro-batches cannot
        refuse_beside_query(cluster, app)
    return catalog


def task_ids(catalog: Catalog) -> dict[str, tuple[str, int]]:
    """Every task of the active generation: its stage and partition."""
    return {
        task_id(stage, partition): (stage, partition)
        for stage in catalog.stages
        for partition in range(catalog.partitions(stage))
    }


def _refuse_taken(catalog: Catalog, name: str) -> None:
    if name in catalog.savepoints:
        raise ConfigError(
            f"{catalog.app.app!r} has a savepoint {name!r} already.",
            action=f"take another name, or delete it with `stateflow savepoint delete APP {name}`.",
            savepoint=name,
        )


def _open_barrier(
    control: ControlTopic,
    catalog: Catalog,
    name: str,
    location: str,
    clock: Clock,
    settings: CreateSettings,
) -> BarrierEntry:
    """Open the next barrier, and remove what the one before left when it came to nothing."""
    before = catalog.barrier
    now_ms = clock.now_ms()

    def decide(current: Catalog | None) -> list[CatalogItem]:
        assert current is not None, "it was there a moment ago, and catalogs stay"
        refuse_unfinished(current)
        _refuse_taken(current, name)
        last = current.barrier
        if last is not None and last.state == "open" and now_ms <= last.deadline_ms:
            raise StillRunning(
                f"the savepoint {last.savepoint!r} of {current.app.app!r} is being made.",
                action="wait for it; one whose maker was killed is given up after its time-out.",
                savepoint=last.savepoint,
            )
        return [
            BarrierEntry(
                barrier_id=1 if last is None else last.barrier_id + 1,
                savepoint=name,
                location=written_down(location),
                generation=current.active.generation,
                state="open",
                requested_ms=now_ms,
                deadline_ms=now_ms + int(settings.timeout_seconds * 1000),
            )
        ]

    # A complete one was listed in the same moment: if it is not now, it was deleted, and left nothing.
    if before is not None and before.state != "complete" and not _is_listed(catalog, before):
        if before.state == "open" and now_ms > before.deadline_ms:
            abort_savepoint(control, before.barrier_id, "whoever asked for it has not ended it in time")
        if before.state != "open" or now_ms > before.deadline_ms:
            _remove_leftovers(catalog, before, settings.allowed.and_also(location), clock)
    reach("savepoint.before_open")
    opened = control.change(decide).barrier
    assert opened is not None, "the barrier was written a moment ago"
    reach("savepoint.after_open")
    return opened


def _is_listed(catalog: Catalog, barrier: BarrierEntry) -> bool:
    listed = catalog.savepoints.get(barrier.savepoint)
    return listed is not None and listed.number == barrier.barrier_id


def _remove_leftovers(
    catalog: Catalog, barrier: BarrierEntry, allowed: AllowedLocations, clock: Clock
) -> None:
    try:
        place = allowed.resolve(barrier.location)
    except ConfigError as error:
        _LOG.warning("What may be left of the savepoint %r is not removed: %s", barrier.savepoint, error)
        return
    saved = SavepointObjects(
        open_objects(place), catalog.app.app, barrier.savepoint, barrier.barrier_id, clock
    )
    try:
        saved.delete(saved.image_tasks(), grace_ms=_GRACE_MS)
    except OSError as error:
        _LOG.warning(
            "What is left of the savepoint %r at %s cannot be removed: %s", saved.name, saved.location, error
        )


def _await_parts(
    cluster: Cluster,
    control: ControlTopic,
    catalog: Catalog,
    entry: BarrierEntry,
    saved: SavepointObjects,
    clock: Clock,
    report: Report | None,
    pause: Callable[[float], None],
) -> list[SavedTask] | None:
    """The parts of all tasks; None when the last worker has left the group before they were there."""
    wanted = task_ids(catalog)
    while True:
        missing = wanted.keys() - saved.part_tasks()
        if report is not None:
            report(len(wanted) - len(missing), len(wanted))
        if not missing:
            break
        _check_open(control, entry)
        if not cluster.group_members(catalog.app.app):
            return None
        if clock.now_ms() > entry.deadline_ms:
            seconds = (entry.deadline_ms - entry.requested_ms) // 1000
            raise SavepointFailed(
                f"{len(missing)} of {len(wanted)} tasks did not publish their part of the savepoint"
                f" {entry.savepoint!r} within {seconds} s: {', '.join(sorted(missing)[:5])}.",
                action="see whether all tasks run (`stateflow scale status`), then try again, with a longer --timeout"
                " if the state is large or the application far behind.",
                missing=sorted(missing),
            )
        pause(_LOOK_SECONDS)
    return [_part_of(saved, entry, task) for task in wanted]


def _part_of(saved: SavepointObjects, entry: BarrierEntry, task: str) -> SavedTask:
    part = saved.load_part(task)
    if part.generation != entry.generation:
        raise StateCorrupt(
            f"the part of {task} is of generation {part.generation} instead of {entry.generation}.",
            action="make the savepoint again.",
            task=task,
        )
    return part.task


def _whole(
    cluster: Cluster,
    catalog: Catalog,
    entry: BarrierEntry,
    tasks: list[SavedTask],
    queues: tuple[SavedQueue, ...],
    clock: Clock,
) -> Savepoint:
    return Savepoint(
        app=catalog.app.app,
        name=entry.savepoint,
        number=entry.barrier_id,
        cluster_id=cluster.cluster_id,
        generation=entry.generation,
        created_ms=clock.now_ms(),
        guarantee=catalog.app.guarantee,
        routing=catalog.active.routing,
        stages=tuple(catalog.stages.values()),
        stores=tuple(catalog.stores.values()),
        source_ids=_source_ids(cluster, catalog),
        tasks=tuple(tasks),
        queues=queues,
    )


def _source_ids(cluster: Cluster, catalog: Catalog) -> dict[str, str]:
    sources = {topic for stage in catalog.stages.values() for topic in stage.sources}
    return {name: info.topic_id for name, info in sorted(cluster.describe(sources).items())}


def _check_open(control: ControlTopic, entry: BarrierEntry) -> None:
    catalog = control.load()
    barrier = catalog.barrier
    if barrier is None or (barrier.barrier_id, barrier.state) != (entry.barrier_id, "open"):
        why = (
            barrier.reason
            if barrier is not None and barrier.barrier_id == entry.barrier_id
            else "another one was begun"
        )
        raise SavepointFailed(
            f"the savepoint {entry.savepoint!r} was given up: {why}.",
            action="cure the cause and make it again.",
            savepoint=entry.savepoint,
        )
    if catalog.active.generation != entry.generation:
        raise SavepointFailed(
            f"the number of partitions was changed while the savepoint {entry.savepoint!r} was made.",
            action="make it again.",
            savepoint=entry.savepoint,
        )


def _check_files(saved: SavepointObjects, savepoint: Savepoint) -> None:
    """Every file that an image names is there: nobody has collected what it shares with others."""
    for task in savepoint.tasks:
        if task.image is None:
            continue
        images = saved.images(savepoint.generation, task.task)
        manifest = images.load(images.savepoint_name(saved.id))
        absent = images.absent(manifest)
        if absent or manifest.sha256 != task.image.manifest_sha256:
            raise SavepointFailed(
                f"the image of {task.task} is not whole at {saved.location}: {', '.join(absent) or 'other manifest'}.",
                action="make the savepoint again; do not remove files by hand while it is made.",
                task=task.task,
            )


def _list(control: ControlTopic, entry: BarrierEntry, savepoint: Savepoint, location: str) -> None:
    listed = SavepointEntry(
        name=savepoint.name,
        number=savepoint.number,
        location=written_down(location),
        generation=savepoint.generation,
        created_ms=savepoint.created_ms,
        tasks=len(savepoint.tasks),
        size_bytes=savepoint.size_bytes,
    )

    def decide(current: Catalog | None) -> list[CatalogItem]:
        assert current is not None, "it was there a moment ago, and catalogs stay"
        barrier = current.barrier
        ended: list[CatalogItem] = []
        if barrier is not None and (barrier.barrier_id, barrier.state) == (entry.barrier_id, "open"):
            ended = [msgspec.structs.replace(barrier, state="complete")]
        return [listed, *ended]

    control.change(decide)


def _give_up(
    control: ControlTopic, entry: BarrierEntry, saved: SavepointObjects, error: BaseException
) -> None:
    """Abort it first, so that no task goes on, then remove the parts; the error that is told is the first."""
    try:
        abort_savepoint(control, entry.barrier_id, str(error) or type(error).__name__)
        saved.delete(saved.image_tasks(), grace_ms=_GRACE_MS)
    except (StateflowError, OSError) as second:
        _LOG.warning(
            "The parts of the savepoint %r could not be removed, the next one does it: %s", saved.name, second
        )
