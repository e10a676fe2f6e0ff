"""Making an image of a task: a checkpoint of its database, at once; then its upload, which may take long.

The checkpoint stands in the task's directory, so that it is made of hard links, under one fixed name: only the
process that has the database open makes one, and takes away what an earlier one left behind when it was killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stateflow.checkpoint.images import Published, TaskImages
from stateflow.checkpoint.manifest import ImageStore, UploadMode
from stateflow.checkpoint.transfers import Cancelled
from stateflow.errors import StateForeign
from stateflow.record import TopicPartition
from stateflow.store.base import StorePosition, TaskStores
from stateflow.store.rocks import RocksTaskStores

CHECKPOINT_FOLDER = "checkpoint"
SAVEPOINT_FOLDER = "cut"
"""Where the checkpoint for a savepoint is made: one name for all versions, so that each removes what another left."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A checkpoint on the local disk, not yet an image."""

    directory: Path
    stores: Mapping[str, ImageStore]

    def publish(
        self,
        images: TaskImages,
        inputs: Mapping[str, int],
        cancelled: Cancelled,
        mode: UploadMode = "delta",
        savepoint: str | None = None,
    ) -> Published:
        """Upload what is new and publish. Any thread may do it while the task goes on. Raises ``Interrupted``."""
        return images.publish(self.directory, self.stores, inputs, cancelled, mode, savepoint)

    def discard(self) -> None:
        """Take the checkpoint off the local disk; what cannot be removed now gives way to the next one."""
        shutil.rmtree(self.directory, ignore_errors=True)


def take_checkpoint(
    stores: RocksTaskStores, changelogs: Mapping[str, TopicPartition], topic_ids: Mapping[str, str]
) -> Taken | None:
    """``take_checkpoint_in`` the task's own directory."""
    return take_checkpoint_in(stores.directory.path / CHECKPOINT_FOLDER, stores, changelogs, topic_ids)


def take_checkpoint_in(
    directory: Path,
    stores: TaskStores,
    changelogs: Mapping[str, TopicPartition],
    topic_ids: Mapping[str, str],
) -> Taken | None:
    """A checkpoint of a task's open database, a few milliseconds after a flush; None when nothing was ever written.

    It takes the place of what is in ``directory``.

    ``topic_ids`` are those that the catalog recorded, by topic. Raises ``StateForeign`` when the content is of
    another topic than that: no restore would accept the image. Also ``DiskFull`` and ``StateCorrupt``.
    """
    if directory.exists():
        shutil.rmtree(directory)
    positions = stores.checkpoint(directory)
    found = {store: position for store, position in positions.items() if store in changelogs}
    try:
        held = {store: _held(store, at, changelogs[store], topic_ids) for store, at in found.items()}
    except StateForeign:
        shutil.rmtree(directory)
        raise
    if not held:
        shutil.rmtree(directory)
        return None
    return Taken(directory, held)


def create_image(
    stores: RocksTaskStores,
    images: TaskImages,
    changelogs: Mapping[str, TopicPartition],
    topic_ids: Mapping[str, str],
    inputs: Mapping[str, int],
    mode: UploadMode = "delta",
) -> Published | None:
    """Take a checkpoint and publish it as an image; None when nothing was ever written. Nothing stays behind."""
    taken = take_checkpoint(stores, changelogs, topic_ids)
    if taken is None:
        return None
    try:
        return taken.publish(images, inputs, lambda: False, mode)
    finally:
        taken.discard()


def _held(
    store: str, position: StorePosition, changelog: TopicPartition, topic_ids: Mapping[str, str]
) -> ImageStore:
    if position.topic_id != topic_ids[changelog.topic]:
        raise StateForeign(
            f"the local content of {store!r} is of another topic than {changelog.topic} is now.",
            action="run `stateflow restore` first; then it is what the changelog says.",
            store=store,
        )
    return ImageStore(
        changelog=changelog.topic,
        topic_id=position.topic_id,
        offset_next=position.offset_next,
        applied_ms=position.applied_ms,
    )
