"""Images of stores in memory: the real publishing, judging and fetching, over objects in memory."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from stateflow.checkpoint.image_selection import image_candidates
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.manifest import ImageStore, Manifest
from stateflow.checkpoint.objects import ObjectInfo
from stateflow.checkpoint.planner import plan_task
from stateflow.clock import Clock
from stateflow.errors import ChangelogTrimmed, StateCorrupt
from stateflow.lab.faults.simulation.processes import OBJECT_ERRORS, Process, Watched
from stateflow.log.base import Cluster
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.base import StorePosition
from stateflow.store.directory import Identity, TaskDirectory
from stateflow.store.memory import MemoryTaskStores

_FAST_FOLDER = Path("/dev/shm")  # noqa: S108 - images are synced to disk, which a folder in memory makes cheap


class MemoryObjects:
    """Implements ``ObjectStore`` in memory."""

    location = "memory"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, tuple[bytes, int]] = {}

    def put(self, name: str, source: BinaryIO) -> None:
        """Store an object whole."""
        self._objects[name] = (source.read(), self._clock.now_ms())

    def open(self, name: str) -> BinaryIO:
        """Read an object."""
        if name not in self._objects:
            raise FileNotFoundError(name)
        return io.BytesIO(self._objects[name][0])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects below a folder."""
        found = [name for name in self._objects if name.startswith(f"{prefix}/")]
        return iter([ObjectInfo(name, len(self._objects[name][0]), self._objects[name][1]) for name in found])

    def unfinished(self, prefix: str) -> Iterator[ObjectInfo]:  # noqa: ARG002 - of no folder
        """None: an upload is one step."""
        return iter(())

    def delete(self, name: str) -> None:
        """Remove an object."""
        self._objects.pop(name, None)


class MemoryImageStore:
    """The images of one simulated application."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects = MemoryObjects(clock)

    def images(self, wiring: TaskWiring, process: Process | None = None) -> TaskImages:
        """The images of one task, as a process sees them."""
        objects = (
            self._objects if process is None else Watched(self._objects, process, "objects", OBJECT_ERRORS)
        )
        return TaskImages(objects, wiring.app, wiring.generation, wiring.id, self._clock)

    def publish(self, process: Process, wiring: TaskWiring, stores: MemoryTaskStores) -> Manifest | None:
        """Make an image of what a task has committed; None when it never has."""
        held: dict[str, ImageStore] = {}
        with _scratch() as folder:
            for number, (store, changelog) in enumerate(sorted(wiring.changelogs.items())):
                position = stores.position(store)
                if position is None or position.topic_id != wiring.topic_ids[changelog.topic]:
                    return None
                held[store] = ImageStore(
                    changelog=changelog.topic,
                    topic_id=position.topic_id,
                    offset_next=position.offset_next,
                    applied_ms=position.applied_ms,
                )
                content = msgspec.msgpack.encode(list(stores.reader(store).scan()))
                (Path(folder) / f"{number}.sst").write_bytes(content)
            return self.images(wiring, process).publish(Path(folder), held, {}).manifest

    def begun_with(
        self, cluster: Cluster, process: Process | None, wiring: TaskWiring, stores: MemoryTaskStores
    ) -> MemoryTaskStores:
        """What a restore begins with: these stores or, where that leaves less to read, those of an image.

        Raises ``ChangelogTrimmed`` when neither these stores nor an image reach to where the changelogs begin.
        """
        try:
            plan = plan_task(
                cluster,
                wiring.id,
                wiring.changelogs,
                wiring.topic_ids,
                stores,
                self._clock,
                log_policy=wiring.log_policy,
            )
        except ChangelogTrimmed:
            found = self.fetch_best(cluster, process, wiring, sys.maxsize)
            if found is None:
                raise
            return found
        if not any(part.action in ("replay", "empty") for part in plan.stores):
            return stores
        return self.fetch_best(cluster, process, wiring, plan.slots) or stores

    def fetch_best(
        self, cluster: Cluster, process: Process | None, wiring: TaskWiring, slots: int
    ) -> MemoryTaskStores | None:
        """The newest image that leaves no more to read than ``slots``, as stores."""
        images = self.images(wiring, process)
        identity = Identity(wiring.app, cluster.cluster_id, wiring.generation, wiring.id)
        directory = TaskDirectory(Path("nowhere"), identity)
        job = RestoreJob(
            wiring.id,
            directory,
            dict(wiring.changelogs),
            dict(wiring.topic_ids),
            log_policy=wiring.log_policy,
        )
        for image in image_candidates(cluster, job, images, self._clock):
            if image.refused is None and image.manifest is not None and image.slots <= slots:
                try:
                    return self._stores(images, image.manifest)
                except (StateCorrupt, FileNotFoundError):
                    continue  # passed over, as a worker does; the oracle looks at every image
        return None

    def _stores(self, images: TaskImages, manifest: Manifest) -> MemoryTaskStores:
        names = sorted(manifest.stores)
        stores = MemoryTaskStores(names, self._clock)
        with _scratch() as folder:
            target = Path(folder) / "fetched"
            images.fetch(manifest, target)
            for number, store in enumerate(names):
                content = msgspec.msgpack.decode(
                    (target / f"{number}.sst").read_bytes(), type=list[tuple[bytes, bytes]]
                )
                held = manifest.stores[store]
                position = StorePosition(held.topic_id, held.offset_next, held.applied_ms)
                stores.apply({store: list(content)}, {store: position})
        stores.flush()
        return stores


def scratch_folder() -> Path | None:
    """Where passing files go; None for the system's usual place."""
    return _FAST_FOLDER if _FAST_FOLDER.is_dir() else None


def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stateflow-image-", dir=scratch_folder())
