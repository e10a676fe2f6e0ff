"""Savepoints that are there: find one, check one without restoring it, delete one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import CatalogItem, Removed
from stateflow.catalog.model import AppEntry, Catalog, SavepointEntry
from stateflow.checkpoint.locations import AllowedLocations, open_objects
from stateflow.checkpoint.queues import read_records
from stateflow.checkpoint.savepoints import (
    SavedQueue,
    SavedTask,
    Savepoint,
    SavepointObjects,
    find_savepoints,
)
from stateflow.clock import Clock
from stateflow.errors import SavepointMissing, StateCorrupt, StillRunning, TopicMissing
from stateflow.log.base import Cluster


def find_listed(catalog: Catalog, name: str) -> SavepointEntry:
    """The entry of a savepoint in its application's list. Raises ``SavepointMissing``."""
    entry = catalog.savepoints.get(name)
    if entry is None:
        known = ", ".join(sorted(catalog.savepoints)) or "none"
        raise SavepointMissing(
            f"{catalog.app.app!r} has no savepoint {name!r}.",
            action=f"its savepoints are: {known}. One that this cluster does not list is found with --from LOCATION.",
            app=catalog.app.app,
            savepoint=name,
        )
    return entry


def open_listed(entry: SavepointEntry, app: str, clock: Clock, allowed: AllowedLocations) -> SavepointObjects:
    """The objects of a listed savepoint. Raises ``ConfigError`` where the list names a place that is not allowed."""
    place = allowed.resolve(entry.location)
    return SavepointObjects(open_objects(place), app, entry.name, entry.number, clock)


def open_at(location: str, app: str, name: str, clock: Clock) -> SavepointObjects:
    """The objects of the newest savepoint of that name at a place, whatever any cluster lists."""
    objects = open_objects(location)
    numbers = [number for found, number in find_savepoints(objects, app) if found == name]
    if not numbers:
        raise SavepointMissing(
            f"there is no savepoint {name!r} of {app!r} at {objects.location}.",
            action="check the place, and the application's id: it is the id of the one that the savepoint was made of.",
            app=app,
            savepoint=name,
        )
    return SavepointObjects(objects, app, name, numbers[-1], clock)


def problems_of(saved: SavepointObjects, savepoint: Savepoint) -> dict[str, list[str]]:
    """What is wrong with each task's image and each queue, by name; reads all of it. Empty lists mean whole."""
    found = {task.task: _task_problems(saved, savepoint.generation, task) for task in savepoint.tasks}
    for queue in savepoint.queues:
        found[f"{queue.step}-repartition-{queue.partition}"] = _queue_problems(saved, queue)
    return found


def _task_problems(saved: SavepointObjects, generation: int, task: SavedTask) -> list[str]:
    if task.image is None:
        return []
    images = saved.images(generation, task.task)
    try:
        manifest = images.load(images.savepoint_name(saved.id))
    except FileNotFoundError:
        return ["its manifest is missing"]
    except StateCorrupt as error:
        return [error.message]
    if manifest.sha256 != task.image.manifest_sha256:
        return ["its manifest is another than the savepoint's"]
    return images.verify(manifest)


def _queue_problems(saved: SavepointObjects, queue: SavedQueue) -> list[str]:
    with TemporaryDirectory(prefix="stateflow-") as scratch:
        file = Path(scratch) / "records"
        try:
            saved.fetch_queue(queue, file)
            count = sum(1 for _ in read_records(file, queue.step, queue.partition))
        except FileNotFoundError:
            return ["missing"]
        except StateCorrupt as error:
            return [error.message]
    return [] if count == queue.records else [f"{count} records instead of {queue.records}"]


def delete(
    cluster: Cluster, app: str, name: str, clock: Clock, allowed: AllowedLocations, *, grace_ms: int
) -> SavepointEntry:
    """Delete a listed savepoint: its manifest, what belongs to it alone, and last its place in the list.

    An interrupted deletion is repeated: until the end it stays listed. Files younger than ``grace_ms`` that no other
    image names are left to the collection of garbage. Raises ``SavepointMissing``, ``ConfigError`` for a place that is
    not allowed, and ``StillRunning`` while a savepoint is being made.
    """
    control = ControlTopic(cluster, app)
    catalog = control.load()
    entry = find_listed(catalog, name)
    if (
        catalog.barrier is not None
        and catalog.barrier.state == "open"
        and clock.now_ms() <= catalog.barrier.deadline_ms
    ):
        raise StillRunning(
            f"the savepoint {catalog.barrier.savepoint!r} of {app!r} is being made.",
            action="wait for it, then delete.",
            savepoint=catalog.barrier.savepoint,
        )
    saved = open_listed(entry, app, clock, allowed)
    saved.delete(_tasks_of(saved), grace_ms=grace_ms)

    def decide(current: Catalog | None) -> list[CatalogItem]:
        listed = None if current is None else current.savepoints.get(name)
        return [Removed(entry)] if listed == entry else []

    control.change(decide)
    return entry


def _tasks_of(saved: SavepointObjects) -> dict[str, int]:
    try:
        savepoint = saved.load()
    except (SavepointMissing, StateCorrupt):  # deleted half before, or damaged: its image manifests tell
        return saved.image_tasks()
    return {task.task: savepoint.generation for task in savepoint.tasks}


def expected_without_code(cluster: Cluster, savepoint: Savepoint, app: str) -> Catalog:
    """The application as it was, under an id, with its source topics as they are here. Raises ``TopicMissing``."""
    sources = {topic for stage in savepoint.stages for topic in stage.sources}
    found = cluster.describe(sources)
    missing = sorted(sources - found.keys())
    if missing:
        raise TopicMissing(
            f"the savepoint {savepoint.name!r} reads topics that do not exist here: {', '.join(missing)}.",
            action="create them, with the partitions that they had.",
            topics=missing,
        )
    stages = {
        stage.name: msgspec.structs.replace(
            stage,
            source_partitions=found[stage.sources[0]].partitions if stage.sources else None,
            source_ids={topic: found[topic].topic_id for topic in stage.sources},
        )
        for stage in savepoint.stages
    }
    return Catalog(
        app=AppEntry(app=app, guarantee=savepoint.guarantee),
        stages=stages,
        stores={store.name: store for store in savepoint.stores},
        generations={},
    )
