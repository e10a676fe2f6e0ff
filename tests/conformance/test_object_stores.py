"""What images need of a place, asked of a directory, a file system through Arrow, and a server that speaks S3."""

from __future__ import annotations

import io
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateflow.checkpoint.image_making import create_image
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.objects import ObjectStore
from stateflow.checkpoint.remote import ArrowObjects
from stateflow.clock import ManualClock, SystemClock
from stateflow.errors import ConfigError, StateCorrupt
from stateflow.record import TopicPartition
from stateflow.store.base import StorePosition
from stateflow.store.directory import task_directory
from stateflow.store.rocks import RocksResources, RocksTaskStores

CHANGELOGS = {"counts": TopicPartition("app-counts-changelog", 0)}
TOPIC_IDS = {"app-counts-changelog": "id"}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "anybody",
    "AWS_SECRET_ACCESS_KEY": "anything",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server on this machine, with a bucket called ``images``."""
    from moto.server import ThreadedMotoServer  # a twentieth of the time that collecting all tests takes

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    host, port = server.get_host_and_port()
    request = urllib.request.Request(f"http://{host}:{port}/images", method="PUT")
    urllib.request.urlopen(request).close()
    yield f"{host}:{port}"
    server.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(params=["directory", "arrow", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param != "s3":
        return str(tmp_path / "objects")
    address = request.getfixturevalue("s3")
    return f"s3://images/{tmp_path.name}?scheme=http&endpoint_override={address}&region=us-east-1"


@pytest.fixture
def objects(location: str, request: pytest.FixtureRequest) -> ObjectStore:
    """Where ``location`` is; ``arrow`` is the local file system as HDFS is reached, through Arrow."""
    if "[arrow" in request.node.name:
        Path(location).mkdir()
        return ArrowObjects(f"file://{location}")
    return open_objects(location)


def names(objects: ObjectStore, prefix: str) -> list[str]:
    return sorted(info.name for info in objects.list(prefix))


def test_an_object_comes_back_and_is_listed_with_its_size_and_time(objects: ObjectStore) -> None:
    objects.put("app/files/a", io.BytesIO(b"hello"))
    objects.put("app/manifests/b", io.BytesIO(b"b" * 9_000_000))
    with objects.open("app/files/a") as source:
        assert source.read() == b"hello"
    with objects.open("app/manifests/b") as source:
        assert source.read() == b"b" * 9_000_000
    (info,) = objects.list("app/files")
    assert (info.name, info.size_bytes) == ("app/files/a", 5)
    assert abs(SystemClock().now_ms() - info.modified_ms) < 60_000
    assert names(objects, "app") == ["app/files/a", "app/manifests/b"]
    assert names(objects, "app/fil") == []


def test_an_object_is_replaced_whole(objects: ObjectStore) -> None:
    objects.put("a/x", io.BytesIO(b"the first, which is longer"))
    objects.put("a/x", io.BytesIO(b"the second"))
    with objects.open("a/x") as source:
        assert source.read() == b"the second"


def test_deleting_twice_and_what_is_not_there(objects: ObjectStore) -> None:
    objects.put("a/x", io.BytesIO(b"x"))
    objects.delete("a/x")
    objects.delete("a/x")
    assert names(objects, "a") == []
    assert names(objects, "nothing/here") == []
    with pytest.raises(FileNotFoundError):
        objects.open("a/x")


class CutOff(io.BytesIO):
    """A file that cannot be read to its end."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError("input/output error")
        return super().read(3)


def test_an_upload_that_fails_leaves_no_object(objects: ObjectStore) -> None:
    with pytest.raises(OSError, match="input/output error"):
        objects.put("a/x", CutOff(b"never whole"))
    assert names(objects, "a") == []


class LookedAt(io.BytesIO):
    """A file that is looked for at its destination while it is sent."""

    def __init__(self, objects: ObjectStore) -> None:
        super().__init__(b"whole in the end")
        self._objects = objects
        self.listed: list[str] = []
        self.unfinished: list[str] = []

    def read(self, size: int | None = -1) -> bytes:
        self.listed += names(self._objects, "a")
        self.unfinished += [info.name for info in self._objects.unfinished("a")]
        return super().read(size)


def test_an_upload_under_way_is_no_object_and_can_be_found(objects: ObjectStore, location: str) -> None:
    source = LookedAt(objects)
    objects.put("a/x", source)
    assert source.listed == []
    assert bool(source.unfinished) is not location.startswith("s3")
    assert names(objects, "a") == ["a/x"]
    assert list(objects.unfinished("a")) == []
    for name in source.unfinished:
        objects.delete(name)  # none of it is there any more


def test_an_image_of_a_database_is_made_verified_fetched_and_collected(
    objects: ObjectStore, tmp_path: Path
) -> None:
    clock = ManualClock(SystemClock().now_ms())
    images = TaskImages(objects, "app", 0, "main-0", clock)
    place = task_directory(tmp_path / "one", "app", "cluster", 0, "main-0")
    stores = RocksTaskStores.open(place, ["counts"], RocksResources())
    made = []
    for number in range(3):
        rows = [(b"%06d" % (number * 10_000 + i), os.urandom(50)) for i in range(5_000)]
        stores.apply({"counts": rows}, {"counts": StorePosition("id", number + 1)})
        clock.advance(seconds=1)
        made.append(create_image(stores, images, CHANGELOGS, TOPIC_IDS, {}))
    wanted = list(stores.reader("counts").scan())
    stores.close()
    assert len(images.names()) == 3
    clock.advance(seconds=60)
    assert len(images.collect(keep=1, grace_ms=1_000).manifests) == 2
    (name,) = images.names()
    newest = images.load(name)
    assert made[-1] is not None
    assert newest == made[-1].manifest
    assert images.verify(newest) == []

    there = task_directory(tmp_path / "two", "app", "cluster", 0, "main-0")
    there.claim()
    images.fetch(newest, there.database)
    copy = RocksTaskStores.open(there, ["counts"], RocksResources())
    assert list(copy.reader("counts").scan()) == wanted
    assert len(wanted) == 15_000
    assert copy.position("counts") == StorePosition("id", 3)
    copy.close()

    table = next(file for file in newest.files if file.name.endswith(".sst"))
    objects.put(f"app/g0/main-0/files/{table.sha256}", io.BytesIO(b"damaged"))
    assert images.verify(newest) == [f"{table.name}: damaged"]
    with pytest.raises(StateCorrupt, match="damaged"):
        images.fetch(newest, tmp_path / "three")
    assert not (tmp_path / "three").exists()


def test_credentials_in_a_location_are_not_shown(s3: str) -> None:
    plain = f"scheme=http&endpoint_override={s3.replace(':', '%3A')}&region=us-east-1"
    shown = open_objects(f"s3://me:hush@images/here?{plain}").location
    assert "hush" not in shown
    assert "images/here" in shown


@pytest.mark.parametrize("location", ["ftp://host/path", "s3://bucket/prefix?colour=blue"])
def test_a_place_that_cannot_be_is_refused(location: str) -> None:
    with pytest.raises(ConfigError, match="images cannot be kept at") as caught:
        open_objects(location)
    assert caught.value.action
