"""The parts of an application that stands still: its committed offsets, and images made of what restores to there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import task_id
from stateflow.changelog.position import InputPosition
from stateflow.checkpoint.image_making import SAVEPOINT_FOLDER, take_checkpoint_in
from stateflow.checkpoint.jobs import RestoreJob, has_database, jobs_of
from stateflow.checkpoint.recovery import run_job
from stateflow.checkpoint.savepoints import SavedImage, SavedTask, SavepointObjects
from stateflow.clock import Clock
from stateflow.errors import SavepointFailed
from stateflow.log.base import Cluster
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.snapshots.savepoint_participant import publish_image, saved_task
from stateflow.scale.fencing import fence_tasks
from stateflow.scale.generation import refuse_beside_query
from stateflow.scale.last_commits import read_last_commits
from stateflow.store.directory import TaskDirectory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores


class StartedMeanwhile(SavepointFailed):
    """Workers ran while the parts of an application that had stood still were made."""


def stopped_parts(
    cluster: Cluster,
    catalog: Catalog,
    saved: SavepointObjects,
    state_dir: Path | None,
    clock: Clock,
    report: Callable[[int, int], None] | None = None,
) -> list[SavedTask]:
    """Every task of an application at its last commit, with its image published.

    Tasks are fenced first, so that no worker that was believed dead can move on. Raises ``StillRunning`` beside a
    Spark query, ``CommitTorn``, ``ReplayPending``, and ``StartedMeanwhile`` when a worker ran all the same.
    """
    app = catalog.app.app
    _refuse_started(cluster, app)
    fence_tasks(cluster, catalog)
    before = _ends(cluster, catalog)
    last = read_last_commits(cluster, catalog)
    last.refuse_torn()
    last.refuse_pending_replays()
    positions = {stage: last.positions(stage) for stage in catalog.stages}
    jobs = {job.task: job for job in jobs_of(catalog, cluster.cluster_id, state_dir or Path())}
    tasks = []
    total = sum(catalog.partitions(stage) for stage in catalog.stages)
    for stage in catalog.stages:
        for partition in range(catalog.partitions(stage)):
            task = task_id(stage, partition)
            own = positions[stage][partition]
            image = None
            if task in jobs:
                image = _image(cluster, jobs[task], own, saved, clock, is_local=state_dir is not None)
            tasks.append(saved_task(task, stage, partition, own, image))
            if report is not None:
                report(len(tasks), total)
    _refuse_started(cluster, app, ran=_ends(cluster, catalog) != before)
    return tasks


def _refuse_started(cluster: Cluster, app: str, *, ran: bool = False) -> None:
    if ran or cluster.group_members(app):
        raise StartedMeanwhile(
            f"{app!r} was started while its savepoint was made.",
            action="make it again once its workers run, or are stopped for good.",
            app=app,
        )
    refuse_beside_query(cluster, app)


def _ends(cluster: Cluster, catalog: Catalog) -> dict[TopicPartition, OffsetRange]:
    """The application's own topics as they are: whatever a worker does shows in one of them, or in the offsets."""
    own = [
        TopicPartition(topic, partition)
        for topic, info in cluster.describe(catalog.active.topic_ids).items()
        for partition in range(info.partitions)
    ]
    return stable_ranges(cluster, own)


def _image(
    cluster: Cluster,
    job: RestoreJob,
    position: InputPosition,
    saved: SavepointObjects,
    clock: Clock,
    *,
    is_local: bool,
) -> SavedImage | None:
    """The state of one task at the end of its changelogs; what is on this disk shortens the way there."""
    if is_local and has_database(job) and not job.directory.is_damaged:
        return _restored_image(cluster, job, position, saved, clock)
    with TemporaryDirectory(prefix="stateflow-") as scratch:
        elsewhere = TaskDirectory(Path(scratch) / job.task, job.directory.identity)
        return _restored_image(cluster, replace(job, directory=elsewhere), position, saved, clock)


def _restored_image(
    cluster: Cluster,
    job: RestoreJob,
    position: InputPosition,
    saved: SavepointObjects,
    clock: Clock,
) -> SavedImage | None:
    resources = RocksResources()
    run_job(cluster, job, resources, lambda _: None, lambda: False, clock)
    stores = RocksTaskStores.open(job.directory, job.changelogs, resources, clock)
    try:
        folder = job.directory.path / SAVEPOINT_FOLDER
        taken = take_checkpoint_in(folder, stores, job.changelogs, job.topic_ids)
    finally:
        stores.close()
    if taken is None:
        return None
    try:
        images = saved.images(job.directory.identity.generation, job.task)
        return publish_image(taken, images, position, saved.id, lambda: False)
    finally:
        taken.discard()
