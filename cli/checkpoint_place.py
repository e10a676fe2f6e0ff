"""What every subcommand of `stateflow checkpoint` opens: an application, its tasks, and the place of its images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.checkpoint.changelog_policy import ChangelogPolicy
from stateflow.checkpoint.image_selection import images_of
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.jobs import RestoreJob, jobs_of
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.manifest import UploadMode
from stateflow.checkpoint.objects import ObjectStore
from stateflow.checkpoint.outdated_images import GenerationImages, outdated_contents
from stateflow.checkpoint.trimming import Trimmable
from stateflow.cli.application import connected
from stateflow.cli.options import (
    app_id_option,
    brokers_override,
    images_option,
    json_option,
    optional_target_argument,
    stacked,
)
from stateflow.cli.target import chosen
from stateflow.clock import SystemClock
from stateflow.config import AppOptions
from stateflow.errors import ConfigError, ImagesUnreachable
from stateflow.log.base import Cluster
from stateflow.redaction import redacted_text, shown
from stateflow.runtime.progress.lag import committed_inputs

CLOCK = SystemClock()


place_options = stacked(optional_target_argument, app_id_option, brokers_override, images_option, json_option)
"""What every subcommand takes."""


@dataclass(frozen=True, slots=True)
class Place:
    """An application, its tasks, and where their images are."""

    cluster: Cluster
    catalog: Catalog
    jobs: list[RestoreJob]
    state_dir: Path
    location: str
    options: AppOptions
    is_given: bool
    """Whether the command line names the location."""

    def require_images(self) -> None:
        """Raise ``ImagesUnreachable`` where nothing of the application is at a place that the command line names."""
        app = self.catalog.app.app
        if self.is_given and not any(True for _ in self.objects.list(app)):
            raise no_image(app, self.objects.location)

    def images(self, job: RestoreJob) -> TaskImages:
        """The images of one task."""
        return images_of(job, self.objects, CLOCK)

    @property
    def objects(self) -> ObjectStore:
        """The place of all images."""
        return open_objects(self.location)

    def outdated(self) -> list[GenerationImages]:
        """Those of generations that are not active any more, and what deleted savepoints have left of them."""
        return outdated_contents(self.objects, self.catalog.app.app, self.catalog.active.generation)

    @property
    def mode(self) -> UploadMode:
        """How images are sent."""
        return "full" if self.options.image_mode == "full" else "delta"

    @property
    def retained(self) -> int:
        """Images that a restore may begin with; 0 while changelogs are not deleted before them."""
        return 0 if self.catalog.app.trim is None else self.options.images_restorable

    def trimmable(self, job: RestoreJob) -> Trimmable:
        """The changelogs of one task."""
        return Trimmable(job.changelogs, job.topic_ids)

    def inputs(self, job: RestoreJob) -> dict[str, int]:
        """What is committed of a task's inputs."""
        return committed_inputs(self.cluster, self.catalog, job.task)


@contextmanager
def opened_place(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    images: str | None,
    state_dir: Path | None = None,
    *,
    writes: bool = False,
) -> Iterator[Place]:
    """The application and its images. Raises ``ConfigError`` when their place is not known, ``ImagesUnreachable``.

    ``writes`` says that objects will be written or deleted there: see ``image_location``.
    """
    application = chosen(target, app_id, brokers)
    options = application.options
    with connected(options) as cluster:
        catalog = ControlTopic(cluster, application.app).load()
        location = image_location(catalog, images or options.images, writes=writes)
        where = state_dir or options.state_dir
        jobs = jobs_of(catalog, cluster.cluster_id, where, images=location)
        with _reachable(location):
            yield Place(cluster, catalog, jobs, where, location, options, is_given=images is not None)


def image_location(catalog: Catalog, configured: str | None, *, writes: bool) -> str:
    """Where the images of an application are: the configured place, or the one that its catalog names.

    A place that only the catalog names is read. It is not written to: whoever may write to the control topic could
    otherwise have state copied anywhere, or objects deleted. Raises ``ConfigError``.
    """
    location = ChangelogPolicy.of(catalog).images(configured)
    if location is None:
        raise _no_place()
    if writes and configured is None:
        raise ConfigError(
            f"Only the control topic says that the images of {catalog.app.app!r} are at {shown(location)}.",
            action=f"if that is where you keep them, give --images {shown(location)}, or the setting `images`; if not,"
            " see who may write to the control topic.",
            location=shown(location),
        )
    return location


def no_image(app: str, location: str) -> ImagesUnreachable:
    """What is told of a place that holds nothing of an application."""
    return ImagesUnreachable(
        f"there is no image of {app!r} in {location}.",
        action="correct --images (or the setting images) if they are elsewhere; otherwise make one with"
        " `stateflow checkpoint create`, or let workers make them.",
        location=location,
    )


def _no_place() -> ConfigError:
    return ConfigError(
        "No image location is configured.",
        action="give --images LOCATION, or the setting `images`: a directory, s3://bucket/prefix,"
        " gs://… or hdfs://….",
    )


@contextmanager
def _reachable(location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ImagesUnreachable(
            f"the images at {shown(location)} cannot be read or written ({redacted_text(str(error))}).",
            action="check that the place exists, that this machine reaches it, and that credentials are in the"
            " environment; the changelog has everything unless it was trimmed (`stateflow checkpoint list`).",
            location=shown(location),
        ) from error
