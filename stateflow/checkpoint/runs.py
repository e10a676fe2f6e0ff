"""One restore done by several: offset sub-ranges of a changelog become sorted files, which one database takes in.

A *run* is a sorted table file with the newest value per key of a sub-range, deletions included. Runs are taken in from
the oldest to the newest, so of each key the newest by offset wins, as if the whole changelog had been replayed in
order; taking one in costs some milliseconds, whatever its size. What reads, sorts and writes is in ``write_runs``,
whose jobs have no order among them and may be repeated; ``merge_runs`` is short. Any process can run either.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.changelog.format import RESERVED_KEY_PREFIX
from stateflow.checkpoint.image_making import create_image
from stateflow.checkpoint.image_selection import images_of
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.objects import ObjectStore
from stateflow.checkpoint.planner import StorePlan
from stateflow.clock import SystemClock
from stateflow.errors import Interrupted, StateCorrupt
from stateflow.log.base import Cluster
from stateflow.log.newest import NewestSink
from stateflow.log.reading import read_range_into
from stateflow.native.newest import newest_values
from stateflow.record import OffsetRange, TopicPartition
from stateflow.store.base import StorePosition
from stateflow.store.directory import TaskDirectory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
from stateflow.store.runs import take_in_run, write_run

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Where runs wait to be merged: a folder of a place that all processes reach."""

    location: str
    folder: str

    def open(self) -> ObjectStore:
        """The place."""
        return open_objects(self.location)

    def remove(self) -> None:
        """Delete everything in the folder."""
        objects = self.open()
        for info in list(objects.list(self.folder)):
            objects.delete(info.name)


@dataclass(frozen=True, slots=True)
class Run:
    """One sorted file, known by its hash."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeJob:
    """One sub-range of one changelog partition."""

    source: TopicPartition
    offsets: OffsetRange
    scratch: Scratch
    bytes_max: int
    """What is read and not written yet may take so much memory: more becomes another run."""


@dataclass(frozen=True, slots=True)
class RangeRuns:
    """What a sub-range became: its runs, oldest first."""

    runs: tuple[Run, ...]
    slots: int
    """Offset slots of the sub-range."""
    records_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeJob:
    """One task whose runs are all there."""

    job: RestoreJob
    plans: tuple[StorePlan, ...]
    runs: Mapping[str, tuple[Run, ...]]
    """By store, oldest first."""
    scratch: Scratch
    inputs: Mapping[str, int]
    images: str | None
    """Where the result is published as an image; None leaves it in the task's own directory."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A recovered task."""

    task: str
    offsets: Mapping[str, int]
    """By store, the ``offset_next`` that its content stands for."""
    image: str | None
    """Name of the image, if one was published."""


def write_runs(cluster: Cluster, job: RangeJob) -> RangeRuns:
    """Read a sub-range and store its runs. Raises ``OffsetOutOfRange`` when the log's beginning moved past it."""
    objects, runs = job.scratch.open(), list[Run]()
    with TemporaryDirectory(prefix="stateflow-runs-") as folder:
        newest = newest_values(RESERVED_KEY_PREFIX)
        sink = NewestSink(newest, job.offsets.offset_next)

        def write() -> None:
            changes = newest.ordered()
            if changes:
                file = Path(folder) / f"{len(runs)}.sst"
                write_run(file, changes)
                # A name of its own: an attempt that was believed dead may still be writing.
                name = f"{job.scratch.folder}/{job.source}/{job.offsets.offset_first}-{uuid.uuid4().hex}.sst"
                runs.append(_stored(objects, name, file))
                file.unlink()
            newest.clear()

        for _ in read_range_into(cluster, job.source, job.offsets, sink):
            if newest.held_bytes > job.bytes_max:
                write()
        write()
    return RangeRuns(tuple(runs), job.offsets.slots, sink.records_total)


def _stored(objects: ObjectStore, name: str, file: Path) -> Run:
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
        source.seek(0)
        objects.put(name, source)
    return Run(name, file.stat().st_size, digest)


def merge_runs(cluster: Cluster, merge: MergeJob) -> Merged:  # noqa: ARG001 - as engines call a job
    """Build a task's database of its runs; on return it is whole on disk, or published as an image.

    What the task's directory held before is replaced. An attempt that ended before is begun anew. Raises
    ``StateLocked`` while a worker has the task, ``StateCorrupt`` for a run that is not what was written, ``DiskFull``.
    """
    with TemporaryDirectory(prefix="stateflow-merge-") as folder:
        job = merge.job
        if merge.images is not None:
            job = replace(job, directory=TaskDirectory(Path(folder) / job.task, job.directory.identity))
        stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources())
        try:
            for plan in merge.plans:
                _fill(stores, plan, merge.runs.get(plan.store, ()), merge.scratch)
            stores.flush()
            image = None if merge.images is None else _published(stores, job, merge)
        finally:
            stores.close()
    offsets = {plan.store: plan.offsets.offset_next for plan in merge.plans}
    return Merged(merge.job.task, offsets, image)


def _fill(stores: RocksTaskStores, plan: StorePlan, runs: Sequence[Run], scratch: Scratch) -> None:
    if plan.action == "empty":
        return
    stores.clear(plan.store)
    objects = scratch.open()
    for run in runs:
        file = stores.directory.path / f"load-{uuid.uuid4().hex}.sst"
        try:
            _fetch(objects, run, file)
            take_in_run(stores, plan.store, file)
        finally:
            file.unlink(missing_ok=True)
    position = StorePosition(plan.topic_id, plan.offsets.offset_next, plan.planned_ms)
    stores.apply({}, {plan.store: position})


def _fetch(objects: ObjectStore, run: Run, file: Path) -> None:
    digest, left_bytes = hashlib.sha256(), run.size_bytes
    try:
        with objects.open(run.name) as source, file.open("wb") as sink:
            while left_bytes > 0 and (chunk := source.read(min(_CHUNK_BYTES, left_bytes))):
                sink.write(chunk)
                digest.update(chunk)
                left_bytes -= len(chunk)
            is_longer = bool(source.read(1))
    except FileNotFoundError as error:
        raise Interrupted(
            f"the run {run.name} was removed: another recovery of these partitions was started.",
            action="leave the work to that one; if there is none, start this one again.",
        ) from error
    if left_bytes or is_longer or digest.hexdigest() != run.sha256:
        raise StateCorrupt(
            f"the run {run.name} is not what was written.",
            action="start the recovery again; if it happens again, look at the place where its files are kept.",
            replaceable=False,
        )


def _published(stores: RocksTaskStores, job: RestoreJob, merge: MergeJob) -> str | None:
    assert merge.images is not None, "asked for"
    images = images_of(job, open_objects(merge.images), SystemClock())
    published = create_image(stores, images, job.changelogs, job.topic_ids, merge.inputs)
    return None if published is None else published.name
