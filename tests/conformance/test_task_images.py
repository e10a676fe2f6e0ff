"""Images of real databases: made beside a running task, sent incrementally, and equal when they come back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stateflow.checkpoint.image_making import CHECKPOINT_FOLDER, create_image, take_checkpoint
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.clock import ManualClock, SystemClock
from stateflow.errors import StateForeign
from stateflow.record import TopicPartition
from stateflow.store.base import StorePosition
from stateflow.store.directory import TaskDirectory, task_directory
from stateflow.store.rocks import RocksResources, RocksTaskStores

ROWS = 5_000
CHANGELOGS = {"counts": TopicPartition("app-counts-changelog", 0)}
TOPIC_IDS = {"app-counts-changelog": "id"}
INPUTS = {"words[0]": 12}


def place(root: Path) -> TaskDirectory:
    return task_directory(root, "app", "cluster", 0, "main-0")


def opened(root: Path) -> RocksTaskStores:
    return RocksTaskStores.open(place(root), list(CHANGELOGS), RocksResources())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def images(tmp_path: Path, clock: ManualClock) -> TaskImages:
    return TaskImages(DirectoryObjects(tmp_path / "objects"), "app", 0, "main-0", clock)


@pytest.fixture
def filled(tmp_path: Path) -> RocksTaskStores:
    stores = opened(tmp_path / "one")
    rows = [(b"%06d" % i, os.urandom(50)) for i in range(ROWS)]
    stores.apply({"counts": rows}, {"counts": StorePosition("id", ROWS, applied_ms=77)})
    return stores


def test_an_image_comes_back_with_equal_content_and_positions(
    filled: RocksTaskStores, images: TaskImages, tmp_path: Path
) -> None:
    published = create_image(filled, images, CHANGELOGS, TOPIC_IDS, INPUTS)
    assert published is not None
    held = published.manifest.stores["counts"]
    assert (held.changelog, held.topic_id, held.offset_next, held.applied_ms) == (
        "app-counts-changelog",
        "id",
        ROWS,
        77,
    )
    assert published.manifest.inputs == INPUTS
    assert not (filled.directory.path / CHECKPOINT_FOLDER).exists()
    wanted = list(filled.reader("counts").scan())
    filled.close()

    place(tmp_path / "two").claim()
    images.fetch(images.load(published.name), place(tmp_path / "two").database)
    copy = opened(tmp_path / "two")
    assert list(copy.reader("counts").scan()) == wanted
    assert len(wanted) == ROWS
    position = copy.position("counts")
    assert position is not None
    assert (position, position.applied_ms) == (StorePosition("id", ROWS), 77)
    copy.close()


def test_the_next_image_sends_what_was_written_since(
    filled: RocksTaskStores, images: TaskImages, clock: ManualClock
) -> None:
    first = create_image(filled, images, CHANGELOGS, TOPIC_IDS, INPUTS)
    filled.apply({"counts": [(b"new", b"v")]}, {"counts": StorePosition("id", ROWS + 1)})
    clock.advance(seconds=1)
    second = create_image(filled, images, CHANGELOGS, TOPIC_IDS, INPUTS)
    filled.close()
    assert first is not None
    assert second is not None
    assert first.bytes_uploaded_total == first.manifest.size_bytes > ROWS * 50
    assert second.bytes_uploaded_total < ROWS * 10
    assert images.verify(second.manifest) == []


def test_contents_that_no_image_names_are_sent_again(
    filled: RocksTaskStores, images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    """A collection may be removing them at this moment."""
    first = create_image(filled, images, CHANGELOGS, TOPIC_IDS, INPUTS)
    assert first is not None
    DirectoryObjects(tmp_path / "objects").delete(first.name)
    clock.advance(seconds=1)
    second = create_image(filled, images, CHANGELOGS, TOPIC_IDS, INPUTS)
    filled.close()
    assert second is not None
    assert second.files_uploaded_total == len(second.manifest.files)


def test_there_is_no_image_of_a_database_that_was_never_written(images: TaskImages, tmp_path: Path) -> None:
    stores = opened(tmp_path / "one")
    assert create_image(stores, images, CHANGELOGS, TOPIC_IDS, INPUTS) is None
    assert images.names() == []
    assert not (stores.directory.path / CHECKPOINT_FOLDER).exists()
    stores.close()


def test_there_is_no_image_of_content_that_is_of_an_earlier_topic(
    filled: RocksTaskStores, images: TaskImages
) -> None:
    with pytest.raises(StateForeign, match="another topic") as caught:
        create_image(filled, images, CHANGELOGS, {"app-counts-changelog": "later"}, INPUTS)
    assert "stateflow restore" in caught.value.action
    assert images.names() == []
    assert not (filled.directory.path / CHECKPOINT_FOLDER).exists()
    filled.close()


def test_a_checkpoint_left_behind_by_a_killed_process_gives_way(filled: RocksTaskStores) -> None:
    left = take_checkpoint(filled, CHANGELOGS, TOPIC_IDS)
    assert left is not None
    (left.directory / "000099.sst").write_bytes(b"of the process that was killed")
    again = take_checkpoint(filled, CHANGELOGS, TOPIC_IDS)
    assert again is not None
    assert not (again.directory / "000099.sst").exists()
    again.discard()
    filled.close()
