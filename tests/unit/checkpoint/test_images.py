"""Images: published whole, sent incrementally, verified, refused when tampered with, collected from what is live."""

import errno
import io
import json
import os
from pathlib import Path

import pytest

from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.manifest import MANIFEST_BYTES_MAX, ImageStore, Manifest
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.clock import ManualClock, SystemClock
from stateflow.errors import DiskFull, StateCorrupt

STORES = {"count": ImageStore(changelog="app-count-changelog", topic_id="id", offset_next=7, applied_ms=1)}
INPUTS = {"words[0]": 12}


def checkpoint(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, content in {"CURRENT": b"MANIFEST-000001\n", **files}.items():
        (folder / name.replace("sst", ".sst").replace("_", "")).write_bytes(content)
    return folder


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def images(tmp_path: Path, clock: ManualClock) -> TaskImages:
    return TaskImages(DirectoryObjects(tmp_path / "objects"), "app", 0, "1-0", clock)


class Full(io.BytesIO):
    """What is written where no room is left, on the disk or for this user."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def read(self, _: int | None = -1) -> bytes:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_with_what_was_to_be_written(tmp_path: Path, number: int) -> None:
    """Savepoints are kept by the same means: they were told of as images."""
    name = "shop/savepoints/one.1/savepoint.json"
    with pytest.raises(DiskFull, match=f"{tmp_path} for {name}"):
        DirectoryObjects(tmp_path).put(name, Full(number))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_image_comes_back_byte_for_byte(images: TaskImages, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "cp", _000007sst=b"seven")
    published = images.publish(source, STORES, INPUTS)
    images.fetch(images.load(images.names()[0]), tmp_path / "task")
    assert {p.name: p.read_bytes() for p in (tmp_path / "task").iterdir()} == {
        "CURRENT": b"MANIFEST-000001\n",
        "000007.sst": b"seven",
    }
    assert published.manifest.stores == STORES
    assert published.manifest.inputs == INPUTS


def test_the_next_image_sends_only_what_is_new(
    images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    images.publish(checkpoint(tmp_path / "one", _000007sst=b"seven"), STORES, INPUTS)
    clock.advance(seconds=1)
    second = images.publish(
        checkpoint(tmp_path / "two", _000007sst=b"seven", _000008sst=b"eight!"), STORES, INPUTS
    )
    assert (second.files_uploaded_total, second.bytes_uploaded_total) == (1, 6)
    assert images.names()[0] == second.name


def test_a_damaged_or_missing_file_is_found_without_restoring(images: TaskImages, tmp_path: Path) -> None:
    manifest = images.publish(checkpoint(tmp_path / "cp", _000007sst=b"seven"), STORES, INPUTS).manifest
    assert images.verify(manifest) == []
    digest = {file.name: file.sha256 for file in manifest.files}
    folder = tmp_path / "objects" / "app/g0/1-0/files"
    (folder / digest["000007.sst"]).write_bytes(b"seveN")
    (folder / digest["CURRENT"]).unlink()
    assert images.verify(manifest) == ["000007.sst: damaged", "CURRENT: missing"] or images.verify(
        manifest
    ) == [
        "CURRENT: missing",
        "000007.sst: damaged",
    ]


def test_fetching_a_damaged_image_leaves_nothing(images: TaskImages, tmp_path: Path) -> None:
    manifest = images.publish(checkpoint(tmp_path / "cp", _000007sst=b"seven"), STORES, INPUTS).manifest
    for file in (tmp_path / "objects/app/g0/1-0/files").iterdir():
        file.write_bytes(file.read_bytes() + b"more")
    with pytest.raises(StateCorrupt, match="damaged"):
        images.fetch(manifest, tmp_path / "task")
    assert not [p for p in tmp_path.iterdir() if "task" in p.name]


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "sub/000001.sst", "LOCK.sh", "000001.sst\x00", "C:\\CURRENT"]
)
def test_a_manifest_may_only_name_checkpoint_files(images: TaskImages, tmp_path: Path, name: str) -> None:
    manifest = images.publish(checkpoint(tmp_path / "cp"), STORES, INPUTS).manifest
    fields = json.loads(manifest.encode())
    fields["files"][0]["name"] = name
    with pytest.raises(StateCorrupt, match="refused"):
        Manifest.decode(json.dumps(fields).encode(), "m")


def test_an_unknown_format_and_another_task_are_refused(images: TaskImages, tmp_path: Path) -> None:
    published = images.publish(checkpoint(tmp_path / "cp"), STORES, INPUTS)
    fields = json.loads(published.manifest.encode())
    with pytest.raises(StateCorrupt, match="format is 2"):
        Manifest.decode(json.dumps({**fields, "format": 2}).encode(), "m")
    foreign = json.dumps({**fields, "task": "1-1"}).encode()
    DirectoryObjects(tmp_path / "objects").put(published.name, io.BytesIO(foreign))
    with pytest.raises(StateCorrupt, match="belongs to app g0 1-1"):
        images.load(published.name)


def test_a_manifest_without_end_is_refused_before_it_is_read(tmp_path: Path, clock: ManualClock) -> None:
    place = tmp_path / "objects"
    images = TaskImages(DirectoryObjects(place), "app", 0, "task-0", clock)
    name = images.publish(checkpoint(tmp_path / "c", CURRENT=b"x"), {}, {}).name
    with (place / name).open("r+b") as manifest:
        manifest.truncate(MANIFEST_BYTES_MAX + 2)  # sparse: it takes no disk
    with pytest.raises(StateCorrupt, match=f"larger than {MANIFEST_BYTES_MAX} bytes"):
        images.load(name)
    assert images.safe_names() == []


def test_collection_keeps_what_a_remaining_image_names(
    images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    images.publish(checkpoint(tmp_path / "one", _000001sst=b"shared", _000002sst=b"old"), STORES, INPUTS)
    clock.advance(seconds=60)
    kept = images.publish(
        checkpoint(tmp_path / "two", _000001sst=b"shared", _000003sst=b"new"), STORES, INPUTS
    )
    clock.advance(seconds=3600)
    planned = images.collect(keep=1, grace_ms=1000, dry_run=True)
    assert len(images.names()) == 2, "a dry run removes nothing"
    done = images.collect(keep=1, grace_ms=1000)
    assert done == planned
    assert len(done.files) == 1
    assert images.names() == [kept.name]
    assert images.verify(kept.manifest) == []


def test_collection_leaves_an_upload_under_way_alone(
    images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    images.publish(checkpoint(tmp_path / "one"), STORES, INPUTS)
    DirectoryObjects(tmp_path / "objects").put(
        "app/g0/1-0/files/" + "a" * 64, io.BytesIO(b"not published yet")
    )
    clock.advance(seconds=1)
    assert images.collect(keep=1, grace_ms=3_600_000).files == ()


def test_collection_removes_what_killed_uploads_have_left_after_a_day(
    images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    published = images.publish(checkpoint(tmp_path / "one", _000007sst=b"seven"), STORES, INPUTS)
    images.confirm(published.name)
    task = "app/g0/1-0"
    left = {f"{task}/{folder}/.upload-abcd" for folder in ("files", "manifests", "safe")}
    for name in left:
        (tmp_path / "objects" / name).write_bytes(b"half of i")
    clock.advance(seconds=23 * 3600)
    assert images.collect(keep=1, grace_ms=1000).files == (), "one of them may be under way"
    clock.advance(seconds=2 * 3600)
    assert set(images.collect(keep=1, grace_ms=1000, dry_run=True).files) == left
    done = images.collect(keep=1, grace_ms=1000)
    assert (set(done.files), done.freed_bytes) == (left, 27)
    assert not list((tmp_path / "objects").rglob(".upload-*"))
    assert images.verify(published.manifest) == []
    assert images.safe_names() == [published.name]


def test_listing_goes_on_when_somebody_deletes_meanwhile(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    for name in ("a", "b", "c"):
        objects.put(f"files/{name}", io.BytesIO(b"x"))
    listing = objects.list("files")
    first = next(listing).name
    gone, kept = sorted({"files/a", "files/b", "files/c"} - {first})
    objects.delete(gone)
    assert [info.name for info in listing] == [kept]


def damage(tmp_path: Path, name: str, content: bytes = b"\x00not JSON") -> None:
    (tmp_path / "objects" / name).write_bytes(content)


def three_images(images: TaskImages, tmp_path: Path, clock: ManualClock) -> list[str]:
    """Newest first, each with a file of its own, all older than any grace."""
    names: list[str] = []
    for content in (b"one", b"two", b"three"):
        source = checkpoint(tmp_path / content.decode(), _000001sst=content, _000002sst=b"shared")
        names.insert(0, images.publish(source, STORES, INPUTS).name)
        clock.advance(seconds=60)
    clock.advance(seconds=3600)
    return names


def test_a_damaged_image_does_not_stop_a_collection_and_counts_as_none(
    images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    newest, middle, oldest = three_images(images, tmp_path, clock)
    damage(tmp_path, newest)
    done = images.collect(keep=1, grace_ms=1000)
    assert done.manifests == (oldest,)
    assert done.files == (), "nobody knows what the damaged one names"
    assert [error.fields["manifest"] for error in done.refused] == [newest]
    assert "gc --damaged" in str(done.refused[0].action)
    assert images.verify(images.load(middle)) == []


def test_a_damaged_image_goes_where_that_is_asked_for_and_nothing_in_use_with_it(
    images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    newest, middle, oldest = three_images(images, tmp_path, clock)
    damage(tmp_path, newest)
    done = images.collect(keep=2, grace_ms=1000, damaged=True)
    assert (done.manifests, done.refused) == ((newest,), ())
    assert len(done.files) == 1, "what the damaged image alone has named"
    assert images.names() == [middle, oldest]
    assert [images.verify(images.load(name)) for name in (middle, oldest)] == [[], []]


def test_a_damaged_image_that_is_older_than_those_kept_goes_with_the_others(
    images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    newest, middle, oldest = three_images(images, tmp_path, clock)
    damage(tmp_path, middle)
    done = images.collect(keep=1, grace_ms=1000)
    assert (set(done.manifests), done.refused) == ({middle, oldest}, ())
    assert images.verify(images.load(newest)) == []


@pytest.mark.parametrize("fields", [{"format": 2}, {"format": 2, "files": "elsewhere"}])
def test_an_image_of_another_version_is_never_taken_for_damage(
    images: TaskImages, tmp_path: Path, clock: ManualClock, fields: dict[str, object]
) -> None:
    newest, middle, _ = three_images(images, tmp_path, clock)
    later = {**json.loads(images.load(newest).encode()), **fields}
    damage(tmp_path, newest, json.dumps(later).encode())
    done = images.collect(keep=1, grace_ms=1000, damaged=True)
    assert done.files == ()
    assert images.names() == [newest, middle]
    assert "version of stateflow that wrote it" in str(done.refused[0].action)


def test_a_damaged_image_of_a_savepoint_keeps_the_contents_until_that_is_deleted(
    images: TaskImages, tmp_path: Path, clock: ManualClock
) -> None:
    saved = images.publish(
        checkpoint(tmp_path / "cp", _000009sst=b"saved"), STORES, INPUTS, savepoint="nightly.1"
    )
    newest = three_images(images, tmp_path, clock)[0]
    damage(tmp_path, saved.name)
    assert images.collect(keep=1, grace_ms=1000, damaged=True).files == ()
    done = images.forget_savepoint("nightly.1", grace_ms=1000)
    assert (len(done.files), done.refused) == (3, ())
    assert images.verify(images.load(newest)) == []
