"""Reading all that a changelog partition stands for: an image, where the log was deleted before it, and then the log.

Jobs read changelogs from their beginning. Once a log was trimmed its beginning is an image: its entries come first, as
if they stood in one slot before the log. What follows is the whole log, also what the image contains: for each key its
newest record is the last, so it does not matter how far the image reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.catalog.model import Catalog
from stateflow.checkpoint.image_selection import image_candidates, images_of
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.jobs import RestoreJob, jobs_of
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.planner import trimmed
from stateflow.clock import Clock, SystemClock
from stateflow.log.base import Cluster
from stateflow.log.newest import Sink
from stateflow.log.reading import read_range, read_range_into
from stateflow.record import OffsetRange, RecordBatch, TopicPartition
from stateflow.store.directory import Identity, TaskDirectory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_ROWS_PER_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Base:
    """The image that a trimmed changelog begins with, as data that another process can take."""

    location: str
    app: str
    generation: int
    task: str
    image: str
    store: str

    @contextmanager
    def opened(self, folder: Path | None = None) -> Iterator[OpenedBase]:
        """Fetch the image below ``folder``, or the system's temporary folder, for as long as the scope lasts.

        Raises ``StateCorrupt`` for a damaged image, ``OSError`` when the place cannot be read.
        """
        images = TaskImages(open_objects(self.location), self.app, self.generation, self.task, SystemClock())
        manifest = images.load(self.image)
        with TemporaryDirectory(prefix="stateflow-image-", dir=folder) as scratch:
            directory = TaskDirectory(
                Path(scratch) / "task", Identity(self.app, "", self.generation, self.task)
            )
            images.fetch(manifest, directory.database)
            stores = RocksTaskStores.open_secondary(directory, f"{scratch}/notes", RocksResources())
            try:
                yield OpenedBase(stores, self.store, manifest.created_ms)
            finally:
                stores.close()


@dataclass(frozen=True, slots=True)
class OpenedBase:
    """The content of one store in an image that was fetched."""

    stores: RocksTaskStores
    store: str
    created_ms: int

    @property
    def keys_estimated(self) -> int:
        """About how many entries it has."""
        return self.stores.size(self.store).keys_estimated

    def batches(self, source: TopicPartition, offset: int) -> Iterator[RecordBatch]:
        """The entries in the order of their keys, as records that all stand at ``offset``."""
        keys: list[bytes] = []
        values: list[bytes] = []
        for key, value in self.stores.reader(self.store).scan():
            keys.append(key)
            values.append(value)
            if len(keys) == _ROWS_PER_BATCH:
                yield self._batch(source, offset, keys, values)
                keys, values = [], []
        if keys:
            yield self._batch(source, offset, keys, values)

    def _batch(
        self, source: TopicPartition, offset: int, keys: list[bytes], values: list[bytes]
    ) -> RecordBatch:
        return RecordBatch(source, [offset] * len(keys), [self.created_ms] * len(keys), keys, values)


def find_base(
    cluster: Cluster, catalog: Catalog, store: str, source: TopicPartition, log: OffsetRange, clock: Clock
) -> Base | None:
    """The newest image that one changelog partition can be read on from; None for a log that begins at 0.

    Raises ``ChangelogTrimmed`` when the log was trimmed and there is none.
    """
    if log.offset_first == 0:
        return None
    job = _job_of(cluster, catalog, store, source)
    if job.images is None:
        raise trimmed(store, source, log, "the catalog names no place of images")
    images = images_of(job, open_objects(job.images), clock)
    refused = []
    for found in image_candidates(cluster, job, images, clock):
        if found.refused is None:
            app, generation = job.directory.identity.app, job.directory.identity.generation
            return Base(job.images, app, generation, job.task, found.name, store)
        refused.append(f"{found.name}: {found.refused}")
    raise trimmed(store, source, log, "; ".join(refused) or "there is no image of its task")


def with_base_slot(log: OffsetRange, base: Base | None) -> OffsetRange:
    """The offsets to read of a partition: with an image, one slot more before the log, which stands for it."""
    return log if base is None else OffsetRange(log.offset_first - 1, log.offset_next)


def read_whole(
    cluster: Cluster, source: TopicPartition, offsets: OffsetRange, opened: OpenedBase | None
) -> Iterator[RecordBatch]:
    """The entries of an image, if there is one, then the committed records of a partition, in order.

    ``offsets`` is as ``with_base_slot`` made it. Entries of the image come with the offset before its first, so that
    whoever keeps a position has moved past the slot only when a record of the log was read. Raises as ``read_range``.
    """
    if opened is not None:
        yield from opened.batches(source, offsets.offset_first - 1)
        offsets = _log_of(offsets)
    yield from read_range(cluster, source, offsets)


def read_whole_into(
    cluster: Cluster, source: TopicPartition, offsets: OffsetRange, opened: OpenedBase, sink: Sink
) -> Iterator[None]:
    """The same to where only the newest record of each key is kept; yields now and then."""
    for batch in opened.batches(source, offsets.offset_first - 1):
        sink.add(batch)
        yield
    yield from read_range_into(cluster, source, _log_of(offsets), sink)


def _log_of(offsets: OffsetRange) -> OffsetRange:
    """What ``with_base_slot`` was given."""
    return OffsetRange(offsets.offset_first + 1, offsets.offset_next)


def _job_of(cluster: Cluster, catalog: Catalog, store: str, source: TopicPartition) -> RestoreJob:
    jobs = jobs_of(catalog, cluster.cluster_id, Path("nowhere"), [source.partition])
    (job,) = [job for job in jobs if job.changelogs.get(store) == source]
    return job
