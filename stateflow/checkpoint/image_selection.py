"""Which image a task is best restored from, and putting it in the place of the task's database.

An image is a shortcut to what its changelog says: it is good for exactly what a local store with its positions would
be good for, so the restore planner judges it. While the changelog begins at 0 nothing here is needed for correctness:
when no image can be had, the changelog is replayed. Once it was trimmed, an image is what the state begins with, and
not to have one is an error that names every image and what is wrong with it.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.jobs import RestoreJob, committed_ends, plan_job, plan_of
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.manifest import Manifest
from stateflow.checkpoint.objects import ObjectStore
from stateflow.checkpoint.planner import TaskPlan
from stateflow.checkpoint.transfers import Cancelled
from stateflow.clock import Clock
from stateflow.errors import ChangelogTrimmed, StateCorrupt, StateLocked
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
class ImageCandidate:
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


def image_candidates(
    cluster: Cluster, job: RestoreJob, images: TaskImages, clock: Clock
) -> Iterator[ImageCandidate]:
    """The images of one task, newest first, each judged by the log as it is now.

    Raises ``TopicMissing`` and ``TopicRecreated`` as any restore of this task does.
    """
    ends = committed_ends(cluster, job, clock)
    for name in images.names():
        try:
            manifest = images.load(name)
        except StateCorrupt as error:
            yield ImageCandidate(name, None, None, error.message)
        except FileNotFoundError:  # collected since it was listed
            continue
        else:
            yield _candidate(cluster, job, name, manifest, clock, ends)


@dataclass(frozen=True, slots=True)
class Choice:
    """What one task may be restored from."""

    local: TaskPlan | None
    """The plan from what is on the local disk; None when that, and the log, do not hold the state."""
    trimmed: ChangelogTrimmed | None
    """Why not."""
    better: tuple[ImageCandidate, ...]
    """Images from which less is to be read, newest first; every usable one where nothing local will do."""
    refused: tuple[str, ...]
    """Images that will not do, each with its reason, and what kept us from seeing others."""

    def missing(self, passed_over: Sequence[str] = ()) -> ChangelogTrimmed:
        """The error when nothing is left to begin with."""
        assert self.trimmed is not None, "without it the local plan is carried out"
        reasons = [*self.refused, *passed_over]
        told = f"Of the images, {'; '.join(reasons)}." if reasons else "There is no image of this task."
        return ChangelogTrimmed(
            f"{self.trimmed.message} {told}",
            action=self.trimmed.action,
            **self.trimmed.fields,
            images=reasons,
        )


def choose(cluster: Cluster, job: RestoreJob, images: TaskImages, clock: Clock) -> Choice:
    """Look at what is local and, unless that needs only a tail, at the images: what is here is nearer than what is far.

    A place that cannot be reached holds no images; that is a warning here, and an error for whoever needs one.
    """
    local, trimmed = _local(cluster, job, clock)
    if local is not None and not any(store.from_empty for store in local.stores):
        return Choice(local, None, (), ())
    try:
        found = list(image_candidates(cluster, job, images, clock))
    except OSError as error:
        _LOG.warning("Task %s goes on without images, which cannot be read: %s", job.task, error)
        return Choice(local, trimmed, (), (f"those at {images.location} cannot be read ({error})",))
    usable = [image for image in found if image.refused is None]
    better = usable if local is None else [image for image in usable if image.slots < local.slots]
    refused = [f"{image.name}: {image.refused}" for image in found if image.refused is not None]
    return Choice(local, trimmed, tuple(better), tuple(refused))


def _local(
    cluster: Cluster, job: RestoreJob, clock: Clock
) -> tuple[TaskPlan | None, ChangelogTrimmed | None]:
    try:
        return plan_job(cluster, job, clock), None
    except ChangelogTrimmed as error:
        return None, error


def plan_with_images(cluster: Cluster, job: RestoreJob, clock: Clock) -> tuple[TaskPlan, str | None]:
    """What restoring a task would do now, and the image that it would begin with; nothing is fetched.

    Raises ``ChangelogTrimmed`` when it cannot be done.
    """
    if job.images is None:
        return plan_job(cluster, job, clock), None
    choice = choose(cluster, job, images_of(job, open_objects(job.images), clock), clock)
    for image in choice.better:
        assert image.plan is not None, "only an image that may be used is better"
        return image.plan, image.name
    if choice.local is None:
        raise choice.missing()
    return choice.local, None


def install_best(
    cluster: Cluster, job: RestoreJob, location: str, clock: Clock, cancelled: Cancelled
) -> ImageCandidate | None:
    """Give a task's directory the database of the best image; None when its own, or none, is as good.

    An image that cannot be fetched is passed over with a warning, as is a location that cannot be reached. Raises
    ``ChangelogTrimmed`` when none can be had and the log alone does not hold the state; ``StateLocked`` while a
    process has the database open, ``StateForeign``, ``Interrupted``, and ``ConfigError`` or ``SetupError`` for a
    location that can never work.
    """
    images = images_of(job, open_objects(location), clock)
    choice = choose(cluster, job, images, clock)
    passed_over = []
    for image in choice.better:
        assert image.manifest is not None, "only an image that was read may be used"
        try:
            install(job.directory, images, image.manifest, cancelled)
        except (StateCorrupt, OSError) as error:
            _LOG.warning("Task %s: the image %s is passed over: %s", job.task, image.name, error)
            passed_over.append(f"{image.name}: {error}")
        else:
            _LOG.info("Task %s: the image %s was fetched.", job.task, image.name)
            return image
    if choice.local is None:
        raise choice.missing(passed_over)
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


def _candidate(
    cluster: Cluster,
    job: RestoreJob,
    name: str,
    manifest: Manifest,
    clock: Clock,
    ends: Mapping[str, int],
) -> ImageCandidate:
    held = MemoryTaskStores(job.changelogs, clock)
    for store, image in manifest.stores.items():
        if store not in job.changelogs:
            continue
        if image.changelog != job.changelogs[store].topic:
            return ImageCandidate(name, manifest, None, f"its {store} is of the changelog {image.changelog}")
        held.apply({}, {store: StorePosition(image.topic_id, image.offset_next, image.applied_ms)})
    try:
        plan = plan_of(cluster, job, held, clock, held="the image", ends=ends)
    except ChangelogTrimmed as error:
        return ImageCandidate(name, manifest, None, f"{error.fields['store']}: {error.fields['why']}")
    refused = [store for store in plan.stores if store.from_empty and held.position(store.store)]
    if refused:
        return ImageCandidate(
            name, manifest, plan, "; ".join(f"{store.store}: {store.reason}" for store in refused)
        )
    return ImageCandidate(name, manifest, plan, None)


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
