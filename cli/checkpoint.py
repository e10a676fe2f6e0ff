"""`stateflow checkpoint`: images of local state in an object store: make, list, verify, collect garbage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.checkpoint.choosing import Judged, images_of, judged_images
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.imaging import create_image
from stateflow.checkpoint.jobs import RestoreJob, has_database, jobs_of
from stateflow.checkpoint.locations import open_objects
from stateflow.cli.options import Duration, app_id_option, dry_run_option, images_option, json_option
from stateflow.cli.output import emit_json, emit_table, human_bytes
from stateflow.cli.target import chosen
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, ImagesUnreachable, StateCorrupt
from stateflow.log.base import Cluster
from stateflow.runtime.lag import stage_inputs
from stateflow.store.rocks import RocksResources, RocksTaskStores

_CLOCK = SystemClock()


@click.group()
def command() -> None:
    """Images of local state: a restore begins with the newest and reads only the changelog's tail after it."""


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """What every subcommand takes."""
    for option in (
        json_option,
        images_option,
        click.option("--brokers", metavar="HOST:PORT", help="Bootstrap servers; overrides every setting."),
        app_id_option,
        click.argument("target", metavar="[APP]", required=False),
    ):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class _Place:
    """An application, its tasks, and where their images are."""

    cluster: Cluster
    catalog: Catalog
    jobs: list[RestoreJob]
    state_dir: Path
    location: str

    def images(self, job: RestoreJob) -> TaskImages:
        """The images of one task."""
        return images_of(job, open_objects(self.location), _CLOCK)

    def inputs(self, job: RestoreJob) -> dict[str, int]:
        """What is committed of a task's inputs."""
        stage, _, partition = job.task.rpartition("-")
        sources = [
            source for source in stage_inputs(self.catalog, stage) if source.partition == int(partition)
        ]
        committed = self.cluster.committed(self.catalog.app.app, sources, stable=False)
        return {str(source): found.offset_next for source, found in committed.items()}


@contextmanager
def _opened(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    images: str | None,
    state_dir: Path | None = None,
) -> Iterator[_Place]:
    from stateflow.log.kafka import connect

    application = chosen(target, app_id, brokers)
    options = application.options
    location = images or options.images
    if location is None:
        raise ConfigError(
            "It is not said where images are kept.",
            action="give --images LOCATION, or the setting `images`: a directory, s3://bucket/prefix,"
            " gs://… or hdfs://….",
        )
    cluster = connect(options.brokers, options.client)
    try:
        catalog = ControlTopic(cluster, application.app).load()
        where = state_dir or options.state_dir
        jobs = jobs_of(catalog, cluster.cluster_id, where)
        yield _Place(cluster, catalog, jobs, where, location)
    except OSError as error:
        shown = location.partition("?")[0]
        raise ImagesUnreachable(
            f"the images at {shown} cannot be read or written ({error}).",
            action="check that the place exists, that this machine reaches it, and that credentials are in the"
            " environment; the changelog has everything.",
            location=shown,
        ) from error
    finally:
        cluster.close()


@command.command()
@_options
@click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), help="Where local state is kept."
)
@dry_run_option
def create(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    images: str | None,
    state_dir: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make an image of every task of APP (or --app ID) whose state is on this machine.

    Only what no kept image has is sent. A task that a running worker has open is refused: workers make images
    themselves when they know where.
    """
    with _opened(target, app_id, brokers, images, state_dir) as place:
        local = [job for job in place.jobs if has_database(job)]
        if not local:
            raise ConfigError(
                f"there is no state of {place.catalog.app.app!r} in {place.state_dir}.",
                action="run this where a worker ran, or name its --state-dir.",
            )
        rows = [_would_create(job) if dry_run else _create(place, job) for job in local]
    _show(place, "images", rows, as_json=as_json)


def _would_create(job: RestoreJob) -> dict[str, Any]:
    files = [path.stat().st_size for path in job.directory.database.iterdir()]
    return {"task": job.task, "image": None, "size_bytes": sum(files)}


def _create(place: _Place, job: RestoreJob) -> dict[str, Any]:
    if job.directory.is_damaged:
        raise StateCorrupt(
            f"the store in {job.directory.path} was found damaged.",
            action="run `stateflow restore` first: an image must not be made of it.",
            path=str(job.directory.path),
        )
    stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources(), _CLOCK)
    try:
        published = create_image(stores, place.images(job), job.changelogs, job.topic_ids, place.inputs(job))
    finally:
        stores.close()
    return {
        "task": job.task,
        "image": published.name if published else None,
        "size_bytes": published.manifest.size_bytes if published else 0,
        "uploaded_bytes": published.bytes_uploaded_total if published else 0,
        "uploaded_files": published.files_uploaded_total if published else 0,
    }


@command.command(name="list")
@_options
def list_(
    target: str | None, app_id: str | None, brokers: str | None, images: str | None, as_json: bool
) -> None:
    """List the images of APP's active generation, newest first, and what a restore from each would read."""
    with _opened(target, app_id, brokers, images) as place:
        rows = [
            _listed(job, image)
            for job in place.jobs
            for image in judged_images(place.cluster, job, place.images(job), _CLOCK)
        ]
    _show(place, "images", rows, as_json=as_json)


def _listed(job: RestoreJob, image: Judged) -> dict[str, Any]:
    manifest = image.manifest
    created = datetime.fromtimestamp(manifest.created_ms / 1000, UTC) if manifest else None
    return {
        "task": job.task,
        "image": image.name,
        "created": created.isoformat(timespec="seconds") if created else None,
        "size_bytes": manifest.size_bytes if manifest else None,
        "tail_slots": None if image.refused else image.slots,
        "refused": image.refused,
    }


@command.command()
@_options
@click.option("--all", "every", is_flag=True, help="All images, not only the newest of each task.")
def verify(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    images: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Read the newest image of each task of APP and compare every file with its hash.

    Damage ends with exit code 32, naming every file.
    """
    with _opened(target, app_id, brokers, images) as place:
        rows = [row for job in place.jobs for row in _verified(place.images(job), every=every)]
        problems = [f"{row['image']}: {problem}" for row in rows for problem in row["problems"]]
        if problems:
            raise StateCorrupt(
                f"{len(problems)} problems in the images of {place.catalog.app.app}: {'; '.join(problems)}.",
                action="make new images; a restore passes over damaged ones, and the changelog has everything.",
                problems=problems,
            )
    _show(place, "verified", rows, as_json=as_json)


def _verified(images: TaskImages, *, every: bool) -> Iterator[dict[str, Any]]:
    for name in images.names()[: None if every else 1]:
        try:
            manifest = images.load(name)
        except StateCorrupt as error:
            yield {"image": name, "files": 0, "size_bytes": 0, "problems": [error.message]}
            continue
        problems = images.verify(manifest)
        size_bytes = manifest.size_bytes
        yield {"image": name, "files": len(manifest.files), "size_bytes": size_bytes, "problems": problems}


@command.command()
@_options
@click.option(
    "--keep", type=click.IntRange(1), default=3, show_default=True, help="Images kept of each task."
)
@click.option(
    "--grace",
    "grace_seconds",
    type=Duration(),
    default="1h",
    show_default=True,
    help="Files younger than this stay: they may belong to an upload under way.",
)
@dry_run_option
def gc(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    images: str | None,
    keep: int,
    grace_seconds: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove all but the newest images of each task of APP, and files that no remaining image names."""
    with _opened(target, app_id, brokers, images) as place:
        rows = []
        for job in place.jobs:
            done = place.images(job).collect(keep=keep, grace_ms=int(grace_seconds * 1000), dry_run=dry_run)
            row = {"task": job.task, "images": len(done.manifests), "files": len(done.files)}
            rows.append({**row, "freed_bytes": done.freed_bytes})
    _show(place, "would_remove" if dry_run else "removed", rows, as_json=as_json)


def _show(place: _Place, what: str, rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        generation = place.catalog.active.generation
        emit_json({"app": place.catalog.app.app, "generation": generation, what: rows})
    elif rows:
        header = [name.removesuffix("_bytes") for name in rows[0]]
        emit_table(header, [[_cell(name, value) for name, value in row.items()] for row in rows])
    else:
        click.echo("No images.")


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return human_bytes(value) if name.endswith("_bytes") else value
