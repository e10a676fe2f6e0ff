"""Images made by a worker while it runs: a checkpoint when a task is flushed, its upload beside the poll thread.

The checkpoint holds whole commits only, as it is taken between two. What follows may fail or be stopped at any time:
an image is published last, and the one before it stays good.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from stateflow.checkpoint.image_making import Taken, take_checkpoint
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.manifest import ImageStore, UploadMode
from stateflow.checkpoint.objects import ObjectStore
from stateflow.checkpoint.trimming import (
    Trimmable,
    carry_out,
    confirm_newest,
    retained_images,
    trim_points,
)
from stateflow.clock import Clock
from stateflow.errors import Interrupted, StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.runtime.opening.opening import StoreOpener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.base import Change, StorePosition, StoreReader, TaskStores
from stateflow.store.rocks import RocksTaskStores

_LOG = logging.getLogger(__name__)

_GRACE_MS = 3_600_000
_STOP_SECONDS = 10.0


class Imaging:
    """Makes the images of one worker's tasks, one upload at a time. Leave it after the worker is closed."""

    def __init__(
        self, cluster: Cluster, objects: ObjectStore, settings: WorkerSettings, clock: Clock
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.clock = clock
        self.mode: UploadMode = "full" if settings.image_mode == "full" else "delta"
        self._objects = objects
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="images")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread; uploads were stopped when their tasks were closed."""
        self._pool.shutdown(wait=True)

    def opener(self, open_stores: Callable[[TaskWiring, Callable[[], bool]], RocksTaskStores]) -> StoreOpener:
        """Opens what ``open_stores`` opens, and has images made of it."""

        def open_imaged(wiring: TaskWiring, cancelled: Callable[[], bool]) -> TaskStores:
            stores = open_stores(wiring, cancelled)
            return ImagedStores(self, wiring, stores) if wiring.changelogs else stores

        return open_imaged

    def images(self, wiring: TaskWiring) -> TaskImages:
        """The images of one task."""
        return TaskImages(self._objects, wiring.app, wiring.generation, wiring.id, self.clock)

    def submit(self, upload: Callable[[], None]) -> Future[None]:
        """Run an upload after those before it."""
        return self._pool.submit(upload)


@dataclass(frozen=True, slots=True)
class ImageFigures:
    """An image that was published."""

    size_bytes: int
    created_ms: int
    offsets: Mapping[str, int]
    """Store → the first offset of its changelog that is not in the image."""


class ImagedStores:
    """The stores of a task, of which an image is made at the first flush after the newest image is old enough."""

    def __init__(self, imaging: Imaging, wiring: TaskWiring, stores: RocksTaskStores) -> None:
        self._imaging = imaging
        self._wiring = wiring
        self._stores = stores
        self._images = imaging.images(wiring)
        self._cancelled = threading.Event()
        self._upload: Future[None] | None = None
        self._taken: Taken | None = None
        self._published: Mapping[str, ImageStore] = {}
        self._made_ms = self._newest_ms()
        self.newest: ImageFigures | None = None
        """The newest image that was made here."""

    @property
    def on_disk(self) -> RocksTaskStores:
        """The stores themselves."""
        return self._stores

    def reader(self, store: str) -> StoreReader:
        """The committed content of one store."""
        return self._stores.reader(store)

    def position(self, store: str) -> StorePosition | None:
        """How far the store reaches."""
        return self._stores.position(store)

    def has_content(self, store: str) -> bool:
        """Whether there is any entry."""
        return self._stores.has_content(store)

    def apply(self, epoch: Mapping[str, Sequence[Change]], positions: Mapping[str, StorePosition]) -> None:
        """Write the changes of several stores and their positions in one batch."""
        self._stores.apply(epoch, positions)

    def load(self, store: str, changes: Sequence[Change], position: StorePosition) -> None:
        """``apply`` of one store for a long run of changes."""
        self._stores.load(store, changes, position)

    def flush(self) -> None:
        """Make everything durable; take a checkpoint when an image is due and none is on its way."""
        self._stores.flush()
        if self._upload is not None and self._upload.done():
            self._upload.result()  # failures of the place were logged: anything raised here is a bug
            self._upload = self._taken = None
        due_ms = self._made_ms + int(self._imaging.settings.image_interval_seconds * 1000)
        if self._upload is None and self._imaging.clock.now_ms() >= due_ms:
            self._begin()

    def checkpoint(self, directory: Path) -> dict[str, StorePosition]:
        """Make ``directory`` a copy of this moment."""
        return self._stores.checkpoint(directory)

    def clear(self, store: str) -> None:
        """Drop the content and position of one store."""
        self._stores.clear(store)

    def derive(self, family: str) -> None:
        """Make sure that a derived store is there."""
        self._stores.derive(family)

    def close(self) -> None:
        """Stop an upload that is on its way, then flush and release the directory.

        One that hangs is not waited for longer than a few seconds: it begins no further object, and publishes nothing.
        """
        self._cancelled.set()
        try:
            if self._upload is not None and not self._upload.cancel():
                wait([self._upload], _STOP_SECONDS)
            if self._taken is not None:
                self._taken.discard()
                self._taken = None
        finally:
            self._stores.close()

    # --- inside -----------------------------------------------------------------------------------

    def _newest_ms(self) -> int:
        """When the newest image was made, so that workers which start often make no more images than others."""
        try:
            return max((self._images.created_ms(name) for name in self._images.names()[:1]), default=0)
        except OSError as error:
            _LOG.warning("Task %s cannot see its images: %s", self._wiring.id, error)
            return self._imaging.clock.now_ms()

    def _begin(self) -> None:
        reach("image.before_checkpoint")
        self._made_ms = self._imaging.clock.now_ms()  # a failure, too, is tried again an interval later
        self._taken = taken = take_checkpoint(self._stores, self._wiring.changelogs, self._wiring.topic_ids)
        if taken is None:
            return
        reach("image.after_checkpoint")
        if taken.stores == self._published:  # nothing was written since: the newest image says it all
            taken.discard()
            return
        self._upload = self._imaging.submit(lambda: self._publish(taken))

    def _publish(self, taken: Taken) -> None:
        wiring = self._wiring
        try:
            reach("image.before_upload")
            committed = self._imaging.cluster.committed(wiring.group, wiring.inputs, stable=False)
            inputs = {str(source): position.offset_next for source, position in committed.items()}
            published = taken.publish(self._images, inputs, self._cancelled.is_set, self._imaging.mode)
            self._published = taken.stores
            manifest = published.manifest
            reached = {name: store.offset_next for name, store in manifest.stores.items()}
            self.newest = ImageFigures(manifest.size_bytes, manifest.created_ms, reached)
            _LOG.info(
                "Task %s: image %s, %d bytes sent.", wiring.id, published.name, published.bytes_uploaded_total
            )
        except Interrupted:
            _LOG.info("Task %s was closed before its image was sent.", wiring.id)
        except (StateflowError, OSError) as error:
            _LOG.warning("Task %s: no image was made: %s", wiring.id, error)
        else:
            self._tidied()
        finally:
            reach("image.before_discard")
            if not self._cancelled.is_set():  # otherwise the folder may be another owner's by now
                taken.discard()

    def _tidied(self) -> None:
        try:
            self._tidy()
        except Interrupted:
            _LOG.info("Task %s was closed before its images were read back.", self._wiring.id)
        except (StateflowError, OSError) as error:
            _LOG.warning("Task %s: nothing more was done after its image: %s", self._wiring.id, error)

    def _collect(self, keep: int, protected: Collection[str] = ()) -> None:
        for error in self._images.collect(keep=keep, grace_ms=_GRACE_MS, protected=protected).refused:
            _LOG.warning("Task %s: no contents of older images were removed: %s", self._wiring.id, error)

    def _tidy(self) -> None:
        """Remove images that are too old and, where that is the policy, what the changelogs say before the others."""
        settings, cluster = self._imaging.settings, self._imaging.cluster
        keep = settings.images_kept
        if self._wiring.log_policy.trim is None:
            self._collect(keep)
            return
        task = Trimmable(self._wiring.changelogs, self._wiring.topic_ids)
        retained = settings.images_restorable
        reach("trim.before_confirm")
        for problem in confirm_newest(self._images, retained, self._cancelled.is_set):
            _LOG.warning(
                "Task %s: an image is not safe, nothing is deleted for it: %s", self._wiring.id, problem
            )
        reach("trim.before_decision")
        usable = retained_images(cluster, task, self._images, retained)
        self._collect(keep, usable)
        if settings.trim and not self._cancelled.is_set():
            points = trim_points(cluster, task, self._images, retained, self._imaging.clock)
            slots = carry_out(cluster, points)
            _LOG.info(
                "Task %s: %d slots of its changelogs were deleted before images.", self._wiring.id, slots
            )
