"""Images go through memory in pieces: taking, reading back and installing one costs the same for any size of file."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.manifest import ImageStore
from stateflow.checkpoint.objects import DirectoryObjects, ObjectStore
from stateflow.checkpoint.remote import ArrowObjects
from stateflow.clock import ManualClock

FILE_BYTES = 64 << 20
PEAK_BYTES_MAX = 20 << 20
STORE = ImageStore(changelog="t", topic_id="i", offset_next=1, applied_ms=1)


def directory(root: Path) -> ObjectStore:
    return DirectoryObjects(root)


def arrow(root: Path) -> ObjectStore:
    root.mkdir()
    return ArrowObjects(root.as_uri())


@pytest.mark.parametrize("open_objects", [directory, arrow])
def test_a_large_file_is_never_in_memory_as_a_whole(
    tmp_path: Path, open_objects: Callable[[Path], ObjectStore]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    with (checkpoint / "000001.sst").open("wb") as file:
        file.truncate(FILE_BYTES)
    images = TaskImages(open_objects(tmp_path / "images"), "app", 0, "main-0", ManualClock(5_000))
    tracemalloc.start()
    try:
        published = images.publish(checkpoint, {"a": STORE}, {})
        assert images.confirm(published.name) == []
        images.fetch(images.load(published.name), tmp_path / "installed")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "installed" / "000001.sst").stat().st_size == FILE_BYTES
    assert peak_bytes < PEAK_BYTES_MAX
