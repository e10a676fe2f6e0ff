"""Which image a task is best restored from, and putting it in the place of the task's database.

An image is a shortcut to what its changelog says: it is good for exactly what a local store with its positions would
be good for, so the restore planner judges it. Nothing here is needed for correctness; when no image can be had, the
changelog is replayed.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stateflow.checkpoint.images import Cancelled, TaskImages
from stateflow.checkpoint.jobs import RestoreJob, plan_job
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.manifest import Manifest
from stateflow.checkpoint.objects import ObjectStore
from stateflow.checkpoint.planner import TaskPlan, plan_task
from stateflow.clock import Clock
from stateflow.errors import StateCorrupt, StateLocked
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.store.base import StorePosition
from stateflow.store.directory import IDENTITY_FILE, TaskDirectory
from stateflow.store.faults import refuse_locked
from stateflow.store.memory import MemoryTaskStores

_LOG = logging.getLogger(__name__)

_ARRIVING_FOLDER = "arriving"
_LEAVING_FOLDER = "leaving"


@dataclass(frozen=True, slots=True)
class Judged:
    """One image, and what a restore from it would do."""

    name: str
    manifest: Manifest | None
    """None when it cannot be read."""
    plan: TaskPlan | None
    refused: str | None
    """Why no restore may start from it; None when one may."""

    @property
    def slots(self) -> int:
        """Offset slots to read after it."""
        assert self.plan is not None, "only an image that may be used has a tail"
        return self.plan.slots


def images_of(job: RestoreJob, objects: ObjectStore, clock: Clock) -> TaskImages:
    """The images of a job's task and generation."""
    identity = job.directory.identity
    return TaskImages(objects, identity.app, identity.generation, identity.task, clock)


def judged_images(cluster: Cluster, job: RestoreJob, images: TaskImages, clock: Clock) -> Iterator[Judged]:
    """The images of one task, newest first, each judged by the log as it is now.

    Raises ``TopicMissing`` and ``TopicRecreated`` as any restore of this task does.
    """
    for name in images.names():
        try:
            manifest = images.load(name)
        except StateCorrupt as error:
            yield Judged(name, None, None, error.message)
        except FileNotFoundError:  # collected since it was listed
            continue
        else:
            yield _judged(cluster, job, name, manifest, clock)


def better_images(cluster: Cluster, job: RestoreJob, images: TaskImages, clock: Clock) -> list[Judged]:
    """Images from which a restore reads less than from what is on the local disk, newest first.

    None at all while what is on disk needs only a tail: what is here is nearer than what is far away. A place that
    cannot be reached holds none, with a warning.
    """
    local = plan_job(cluster, job, clock)
    if not any(store.from_empty for store in local.stores):
        return []
    try:
        found = list(judged_images(cluster, job, images, clock))
    except OSError as error:
        _LOG.warning("Task %s goes on without images, which cannot be read: %s", job.task, error)
        return []
    return [image for image in found if image.refused is None and image.slots < local.slots]


def plan_with_images(cluster: Cluster, job: RestoreJob, clock: Clock) -> tuple[TaskPlan, str | None]:
    """What restoring a task would do now, and the image that it would begin with; nothing is fetched."""
    if job.images is not None:
        images = images_of(job, open_objects(job.images), clock)
        for image in better_images(cluster, job, images, clock):
            assert image.plan is not None, "only an image that may be used is better"
            return image.plan, image.name
    return plan_job(cluster, job, clock), None


def install_best(
    cluster: Cluster, job: RestoreJob, location: str, clock: Clock, cancelled: Cancelled
) -> Judged | None:
    """Give a task's directory the database of the best image; None when its own, or none, is as good.

    An image that cannot be fetched is passed over with a warning, as is a location that cannot be reached. Raises
    ``StateLocked`` while a process has the database open, ``StateForeign``, ``Interrupted``, and ``ConfigError`` or
    ``SetupError`` for a location that can never work.
    """
    images = images_of(job, open_objects(location), clock)
    try:
        candidates = better_images(cluster, job, images, clock)
    except OSError as error:
        _LOG.warning(
            "Task %s: images at %s cannot be read (%s).", job.task, location.partition("?")[0], error
        )
        return None
    for image in candidates:
        assert image.manifest is not None, "only an image that was read may be used"
        try:
            install(job.directory, images, image.manifest, cancelled)
        except (StateCorrupt, OSError) as error:
            _LOG.warning("Task %s: the image %s is passed over: %s", job.task, image.name, error)
        else:
            _LOG.info("Task %s: the image %s was fetched.", job.task, image.name)
            return image
    return None


def install(directory: TaskDirectory, images: TaskImages, manifest: Manifest, cancelled: Cancelled) -> None:
    """Make an image a task's database, in the place of the one that may be there; whole or not at all.

    Raises ``StateLocked``, ``StateForeign``, ``Interrupted``, ``StateCorrupt`` for an image with damaged files, and
    ``OSError``.
    """
    directory.claim()
    if directory.is_damaged:
        refuse_locked(directory)
        _LOG.warning("The damaged store in %s was moved to %s.", directory.path, directory.set_aside())
        directory.claim()
    arriving, leaving = directory.path / _ARRIVING_FOLDER, directory.path / _LEAVING_FOLDER
    with _held_alone(directory):
        for left in (arriving, leaving, *directory.path.glob(f".{_ARRIVING_FOLDER}-*")):
            shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
        refuse_locked(directory)
        reach("install.before_fetch")
        images.fetch(manifest, arriving, cancelled)
        refuse_locked(directory)
        reach("install.before_swap")
        if directory.database.exists():
            directory.database.rename(leaving)
            reach("install.within_swap")
        arriving.rename(directory.database)
        reach("install.after_swap")
        shutil.rmtree(leaving, ignore_errors=True)


def _judged(cluster: Cluster, job: RestoreJob, name: str, manifest: Manifest, clock: Clock) -> Judged:
    held = MemoryTaskStores(job.changelogs, clock)
    for store, image in manifest.stores.items():
        if store not in job.changelogs:
            continue
        if image.changelog != job.changelogs[store].topic:
            return Judged(name, manifest, None, f"its {store} is of the changelog {image.changelog}")
        held.apply({}, {store: StorePosition(image.topic_id, image.offset_next, image.applied_ms)})
    plan = plan_task(cluster, job.task, job.changelogs, job.topic_ids, held, clock, held="the image")
    refused = [store for store in plan.stores if store.from_empty and held.position(store.store)]
    if refused:
        return Judged(name, manifest, plan, "; ".join(f"{store.store}: {store.reason}" for store in refused))
    return Judged(name, manifest, plan, None)


@contextmanager
def _held_alone(directory: TaskDirectory) -> Iterator[None]:
    """Only one process at a time puts an image into a task directory. Raises ``StateLocked``."""
    with (directory.path / IDENTITY_FILE).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateLocked(
                f"another process is fetching an image into {directory.path}.",
                action="let it finish, or stop it; then start again.",
                path=str(directory.path),
            ) from error
        yield
