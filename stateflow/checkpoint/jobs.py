"""The tasks of an application as the catalog knows them, and what is on the local disk of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic, task_id
from stateflow.changelog.sequences import resolve
from stateflow.checkpoint.changelog_policy import WHOLE_LOGS, ChangelogPolicy
from stateflow.checkpoint.planner import TaskPlan, plan_task
from stateflow.checkpoint.tails import read_tails
from stateflow.clock import Clock
from stateflow.errors import StateCorrupt
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.store.base import TaskStores
from stateflow.store.directory import IDENTITY_FILE, TaskDirectory, task_directory
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """One task to restore, as data that another process can take."""

    task: str
    directory: TaskDirectory
    changelogs: dict[str, TopicPartition]
    topic_ids: dict[str, str]
    images: str | None = None
    """Location of images that may shorten the restore."""
    log_policy: ChangelogPolicy = WHOLE_LOGS
    """What the catalog says about the changelogs."""
    ends: Mapping[str, int] | None = None
    """What ``committed_ends`` said when it was asked before: a log without any commit record is read whole for it."""


def jobs_of(
    catalog: Catalog,
    cluster_id: str,
    state_dir: Path,
    partitions: Sequence[int] = (),
    images: str | None = None,
) -> list[RestoreJob]:
    """A job for every task of the active generation that keeps state, or for those of some partitions.

    Without ``images`` the place counts that the catalog names, if it does.
    """
    log_policy = ChangelogPolicy.of(catalog)
    app, generation = catalog.app.app, catalog.active.generation
    ids = catalog.active.topic_ids
    jobs = []
    for stage in catalog.stages:
        stores = sorted(store.name for store in catalog.stores.values() if store.stage == stage)
        own_generation = catalog.changelog_generation(stage)
        topics = {store: changelog_topic(app, store, own_generation) for store in stores}
        if not stores or not all(topic in ids for topic in topics.values()):
            continue  # stateless, or in the catalog but never started: there is nothing to restore
        for partition in range(catalog.partitions(stage)):
            if partitions and partition not in partitions:
                continue
            task = task_id(stage, partition)
            jobs.append(
                RestoreJob(
                    task=task,
                    directory=task_directory(state_dir, app, cluster_id, generation, task),
                    changelogs={store: TopicPartition(topic, partition) for store, topic in topics.items()},
                    topic_ids={topic: ids[topic] for topic in topics.values()},
                    images=log_policy.images(images),
                    log_policy=log_policy,
                )
            )
    return jobs


def plan_job(cluster: Cluster, job: RestoreJob, clock: Clock | None = None) -> TaskPlan:
    """What restoring this task from what is here would do now; creates and locks nothing."""
    with looking_at(job) as stores:
        return plan_of(cluster, job, stores, clock)


def plan_of(
    cluster: Cluster,
    job: RestoreJob,
    stores: TaskStores,
    clock: Clock | None = None,
    *,
    held: str = "the local state",
    ends: Mapping[str, int] | None = None,
) -> TaskPlan:
    """What restoring this task onto ``stores`` would do now; see ``plan_task``. ``ends`` is what ``committed_ends``
    said, for whoever asks several times.
    """
    return plan_task(
        cluster,
        job.task,
        job.changelogs,
        job.topic_ids,
        stores,
        clock,
        ends=committed_ends(cluster, job, clock) if ends is None else ends,
        held=held,
        log_policy=job.log_policy,
    )


def committed_ends(cluster: Cluster, job: RestoreJob, clock: Clock | None = None) -> Mapping[str, int]:
    """Up to where each changelog counts, by the commit records of all of them."""
    if job.ends is not None:
        return job.ends
    return resolve(read_tails(cluster, job.changelogs, clock)).restore_next


def has_database(job: RestoreJob) -> bool:
    """True when a task's database is on this machine. Raises ``StateForeign`` when it is not this task's."""
    if not (job.directory.path / IDENTITY_FILE).exists():
        return False
    job.directory.claim()
    return (job.directory.database / "CURRENT").exists()


@contextmanager
def looking_at(job: RestoreJob) -> Iterator[TaskStores]:
    """The positions of a task's local stores, without creating or locking anything."""
    if job.directory.is_damaged or not has_database(job):
        yield MemoryTaskStores(job.changelogs)
        return
    with TemporaryDirectory(prefix="stateflow-") as scratch:
        try:
            stores = RocksTaskStores.open_secondary(job.directory, scratch, RocksResources())
        except StateCorrupt as error:
            if not error.fields["replaceable"]:
                raise
            yield MemoryTaskStores(job.changelogs)  # it is set aside when it is opened for writing
            return
        try:
            yield stores
        finally:
            stores.close()
