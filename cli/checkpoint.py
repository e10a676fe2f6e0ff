"""`stateflow checkpoint`: images of local state in an object store: make, list, verify, collect garbage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from stateflow.checkpoint.image_making import create_image
from stateflow.checkpoint.image_selection import ImageCandidate, image_candidates
from stateflow.checkpoint.images import Collected, TaskImages
from stateflow.checkpoint.jobs import RestoreJob, has_database
from stateflow.checkpoint.outdated_images import collect_outdated
from stateflow.checkpoint.trimming import (
    TrimPoint,
    carry_out,
    confirm_newest,
    retained_images,
    trim_points,
)
from stateflow.cli.checkpoint_place import CLOCK, Place, no_image, opened_place, place_options
from stateflow.cli.image_generations import outdated_data, outdated_sentence
from stateflow.cli.options import Duration, dry_run_option, state_dir_override
from stateflow.cli.output import emit_json, emit_table, human_bytes
from stateflow.errors import ConfigError, GenerationUnfinished, StateCorrupt
from stateflow.scale.generation import preparing
from stateflow.store.rocks import RocksResources, RocksTaskStores


@click.group()
def command() -> None:
    """Images of local state: a restore begins with the newest and reads only the changelog's tail after it."""


@command.command()
@place_options
@state_dir_override
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
    with opened_place(target, app_id, brokers, images, state_dir, writes=not dry_run) as place:
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


def _create(place: Place, job: RestoreJob) -> dict[str, Any]:
    if job.directory.is_damaged:
        raise StateCorrupt(
            f"the store in {job.directory.path} was found damaged.",
            action="run `stateflow restore` first: an image must not be made of it.",
            path=str(job.directory.path),
        )
    stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources(), CLOCK)
    try:
        published = create_image(
            stores, place.images(job), job.changelogs, job.topic_ids, place.inputs(job), place.mode
        )
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
@place_options
def list_(
    target: str | None, app_id: str | None, brokers: str | None, images: str | None, as_json: bool
) -> None:
    """List the images of APP's active generation, newest first, and what a restore from each would read.

    A safe image was read back and compared since it was sent; only these stand for a changelog that is deleted. Below
    are counted those that a repartition made useless.
    """
    with opened_place(target, app_id, brokers, images) as place:
        place.require_images()
        rows = []
        for job in place.jobs:
            held = place.images(job)
            safe = set(held.safe_names())
            rows += [
                {**_listed(job, image), "safe": image.name in safe}
                for image in image_candidates(place.cluster, job, held, CLOCK)
            ]
        outdated = [of for of in place.outdated() if of.images]
    _show(place, "images", rows, as_json=as_json, outdated=[outdated_data(of) for of in outdated])
    if outdated and not as_json:
        for of in outdated:
            click.echo(outdated_sentence(of, place.catalog.active.generation))
        click.echo("`stateflow checkpoint gc` removes them.")


def _listed(job: RestoreJob, image: ImageCandidate) -> dict[str, Any]:
    manifest = image.manifest
    created = datetime.fromtimestamp(manifest.created_ms / 1000, UTC) if manifest else None
    return {
        "task": job.task,
        "image": image.name,
        "created": created.isoformat(timespec="seconds") if created else None,
        "mode": manifest.mode if manifest else None,
        "size_bytes": manifest.size_bytes if manifest else None,
        "tail_slots": None if image.refused else image.slots,
        "refused": image.refused,
    }


@command.command()
@place_options
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

    Damage ends with exit code 32, naming every file; with exit code 34 if there is no image at all, though workers are
    to make some.
    """
    with opened_place(target, app_id, brokers, images) as place:
        rows = [row for job in place.jobs for row in _verified(place.images(job), every=every)]
        problems = [f"{row['image']}: {problem}" for row in rows for problem in row["problems"]]
        if problems:
            raise StateCorrupt(
                f"{len(problems)} problems in the images of {place.catalog.app.app}: {'; '.join(problems)}.",
                action="make new images; a restore passes over damaged ones, and the changelog has everything.",
                problems=problems,
            )
        if place.jobs and not rows and place.options.image_mode != "continuous":
            raise no_image(place.catalog.app.app, place.objects.location)
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
@place_options
@click.option(
    "--keep",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Images kept of each task; 0 only where the changelog is whole and no more are made (image_mode continuous).",
)
@click.option(
    "--grace",
    "grace_seconds",
    type=Duration(),
    default="1h",
    show_default=True,
    help="Files younger than this stay: they may belong to an upload under way.",
)
@click.option(
    "--damaged", is_flag=True, help="Remove images whose manifests cannot be read, too, however new they are."
)
@dry_run_option
def gc(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    images: str | None,
    keep: int,
    grace_seconds: float,
    damaged: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove all but the newest images of each task of APP, and files that no remaining image names.

    Images that a trimmed changelog needs stay, whatever --keep says; those that a repartition made useless all go. One
    whose manifest is damaged is told, and keeps the files of its task, until it is older than those kept, or --damaged
    is given.
    """
    with opened_place(target, app_id, brokers, images, writes=not dry_run) as place:
        place.require_images()
        _check_kept(place, keep)
        rows = []
        for job in place.jobs:
            held = place.images(job)
            needed = retained_images(place.cluster, place.trimmable(job), held, place.retained)
            done = held.collect(
                keep=keep,
                grace_ms=int(grace_seconds * 1000),
                protected=needed,
                damaged=damaged,
                dry_run=dry_run,
            )
            rows.append(_collected(job.task, done))
        rows += _collect_outdated(place, int(grace_seconds * 1000), dry_run=dry_run)
    _show(place, "would_remove" if dry_run else "removed", rows, as_json=as_json)


def _collect_outdated(place: Place, grace_ms: int, *, dry_run: bool) -> list[dict[str, Any]]:
    rows = []
    for of in place.outdated():
        removed = collect_outdated(
            place.objects, place.catalog.app.app, of, CLOCK, grace_ms=grace_ms, dry_run=dry_run
        )
        rows += [
            _collected(f"{task} (generation {of.generation})", done)
            for task, done in removed.items()
            if done.manifests or done.files or done.refused
        ]
    return rows


def _collected(task: str, done: Collected) -> dict[str, Any]:
    for error in done.refused:
        click.echo(
            f"{task}: no file was removed, as it is not known which of them are needed: {error}", err=True
        )
    return {
        "task": task,
        "images": len(done.manifests),
        "files": len(done.files),
        "freed_bytes": done.freed_bytes,
        "refused": [error.fields["manifest"] for error in done.refused],
    }


def _check_kept(place: Place, keep: int) -> None:
    if keep == 0 and (place.options.image_mode != "continuous" or place.catalog.app.trim is not None):
        raise ConfigError(
            "The newest image of a task is not garbage while workers make images, or changelogs begin with them.",
            action="Give --keep 1 or more; or set image_mode to continuous, for an application that never trimmed.",
        )


@command.command()
@place_options
@dry_run_option
def trim(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    images: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete the changelogs of APP before its images, as workers do by themselves after each image.

    Never past the oldest of the images that are retained (setting `images_restorable`), each of which is read back
    first; the last commit record stays. APP must have the policy (setting `trim`); workers may run.
    """
    with opened_place(target, app_id, brokers, images, writes=not dry_run) as place:
        _check_policy(place)
        rows = []
        for job in place.jobs:
            held, task = place.images(job), place.trimmable(job)
            if not dry_run:
                for problem in confirm_newest(held, place.retained, lambda: False):
                    click.echo(f"not safe: {problem}", err=True)
            points = trim_points(place.cluster, task, held, place.retained, CLOCK)
            if not dry_run:
                carry_out(place.cluster, points)
            rows += [_trimmed(job, point) for point in points]
    _show(place, "would_delete" if dry_run else "deleted", rows, as_json=as_json)


def _check_policy(place: Place) -> None:
    app = place.catalog.app.app
    if place.catalog.app.trim is None:
        raise ConfigError(
            f"the changelogs of {app!r} are not to be deleted: it does not have that policy.",
            action="set `trim` (and `images`) for the application, and start a worker once: it sets the topics.",
            app=app,
        )
    entry = preparing(place.catalog)
    if entry is not None:
        raise GenerationUnfinished(
            f"a change of {app!r} to {entry.partitions} partitions is under way, and reads the changelogs.",
            action="finish it with `stateflow scale start`, or undo it with `stateflow scale abort`.",
            app=app,
        )


def _trimmed(job: RestoreJob, point: TrimPoint) -> dict[str, Any]:
    return {
        "task": job.task,
        "store": point.store,
        "begins": point.log.offset_first,
        "to": point.offset_next,
        "slots": point.slots,
        "reason": point.reason,
    }


def _show(place: Place, what: str, rows: list[dict[str, Any]], *, as_json: bool, **more: Any) -> None:
    if as_json:
        generation = place.catalog.active.generation
        mode = place.options.image_mode
        facts = {"app": place.catalog.app.app, "generation": generation, "image_mode": mode}
        emit_json({**facts, what: rows, **more})
    elif rows:
        header = [name.removesuffix("_bytes") for name in rows[0]]
        emit_table(header, [[_cell(name, value) for name, value in row.items()] for row in rows])
    else:
        continuous = " (continuous)" if place.options.image_mode == "continuous" else ""
        click.echo(f"No images at {place.objects.location}{continuous}.")


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return human_bytes(value) if name.endswith("_bytes") else value
