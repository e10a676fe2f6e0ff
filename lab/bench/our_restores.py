"""Our side where state comes back: from the whole changelog, or from an image and what came after it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import stateflow as sf
from stateflow.checkpoint.image_making import create_image
from stateflow.checkpoint.image_selection import images_of
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.recovery import run_job
from stateflow.clock import SystemClock
from stateflow.errors import JobFailed
from stateflow.lab.bench.result import Ran, bytes_digest
from stateflow.lab.bench.running import ran_here
from stateflow.lab.bench.workload import STORE, Workload
from stateflow.lab.costs.running import Stopwatch
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.store.directory import task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_TAIL_SHARE = 0.01
"""Of a changelog: what is written after its image."""


def restore(load: Workload, cluster: Cluster, place: Path) -> Ran:
    """Every partition of a changelog into a database of its own, as many at a time as a worker restores."""
    return _measured(cluster, _jobs(load, cluster, place))


def restore_from_images(load: Workload, cluster: Cluster, place: Path) -> Ran:
    """The same from an image of each, made before the clock starts. Raises ``JobFailed`` where none was taken."""
    location = str(place / "images")
    _each(
        _jobs(load, cluster, place / "before", 1 - _TAIL_SHARE), lambda job: _imaged(cluster, job, location)
    )
    return _measured(cluster, _jobs(load, cluster, place, images=location))


def _jobs(
    load: Workload, cluster: Cluster, place: Path, share: float = 1.0, images: str | None = None
) -> list[RestoreJob]:
    """A restore per partition, of this share of its changelog."""
    topic_id = cluster.describe([load.topic])[load.topic].topic_id
    logs = cluster.ranges([TopicPartition(load.topic, number) for number in range(load.partitions)])
    return [
        RestoreJob(
            task=f"{STORE}-{log.partition}",
            directory=task_directory(place, "bench", cluster.cluster_id, 0, f"{STORE}-{log.partition}"),
            changelogs={STORE: log},
            topic_ids={load.topic: topic_id},
            images=images,
            ends={STORE: int(share * offsets.offset_next)},
        )
        for log, offsets in logs.items()
    ]


def _measured(cluster: Cluster, jobs: list[RestoreJob]) -> Ran:
    """All of the log counts as restored, whatever of it was read: how long it takes until the state is back."""
    resources = RocksResources()

    def one(job: RestoreJob) -> None:
        outcome = run_job(cluster, job, resources, lambda _progress: None, lambda: False)
        if job.images is not None and outcome.image is None:
            raise JobFailed(f"{job.task} was not restored from an image.", action="report this text.")

    watch = Stopwatch()
    _each(jobs, one)
    took = watch.took()
    found: dict[bytes, bytes] = {}
    for job in jobs:
        stores = RocksTaskStores.open(job.directory, [STORE], resources)
        found.update(stores.reader(STORE).scan())
        stores.close()
    return ran_here(sum((job.ends or {})[STORE] for job in jobs), took, bytes_digest(found))


def _imaged(cluster: Cluster, job: RestoreJob, location: str) -> None:
    run_job(cluster, job, RocksResources(), lambda _progress: None, lambda: False)
    stores = RocksTaskStores.open(job.directory, [STORE], RocksResources())
    images = images_of(job, open_objects(location), SystemClock())
    create_image(stores, images, job.changelogs, job.topic_ids, {})
    stores.close()


def _each(jobs: list[RestoreJob], do: Callable[[RestoreJob], None]) -> None:
    with ThreadPoolExecutor(sf.AppOptions().restore_threads) as threads:
        for _ in threads.map(do, jobs):
            pass
