"""Killed at every single step of publishing, collecting and installing images: what can be found is always whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from stateflow.checkpoint.image_selection import install
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.manifest import ImageStore
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.clock import ManualClock, SystemClock
from stateflow.errors import StateLocked
from stateflow.store.directory import TaskDirectory, task_directory

STORES = {"a": ImageStore(changelog="app-a-changelog", topic_id="id", offset_next=7, applied_ms=1)}
STEPS_MAX = 60


class Killed(BaseException):
    """The process ends here."""


class Mortal(DirectoryObjects):
    """Ends the process at the n-th call that reads or changes an object."""

    def __init__(self, root: Path, killed_at: int) -> None:
        super().__init__(root)
        self._left = killed_at

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    def put(self, name: str, source: BinaryIO) -> None:
        self._step()
        super().put(name, source)

    def open(self, name: str) -> BinaryIO:
        self._step()
        return super().open(name)

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)


class Scene:
    """Two images that share a file, and a third to come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(SystemClock().now_ms())
        for number in range(2):
            self.publish(number)
            self.clock.advance(seconds=7200)

    def images(self, killed_at: int = STEPS_MAX * 100) -> TaskImages:
        return TaskImages(Mortal(self.folder / "objects", killed_at), "app", 0, "1-0", self.clock)

    def publish(self, number: int, killed_at: int = STEPS_MAX * 100) -> str:
        checkpoint = self.folder / f"checkpoint-{number}"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "CURRENT").write_bytes(b"MANIFEST-000001\n")
        for table in range(number, number + 3):
            (checkpoint / f"{table:06d}.sst").write_bytes(b"table %d" % table)
        return self.images(killed_at).publish(checkpoint, STORES, {}).name

    def assert_all_whole(self) -> list[str]:
        images = self.images()
        assert all(images.verify(images.load(name)) == [] for name in images.names())
        return images.names()

    @property
    def place(self) -> TaskDirectory:
        return task_directory(self.folder / "state", "app", "cluster", 0, "1-0")

    def install(self, killed_at: int = STEPS_MAX * 100) -> None:
        images = self.images(killed_at)
        manifest = self.images().load(self.images().names()[0])
        install(self.place, images, manifest, lambda: False)

    def installed(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in self.place.database.iterdir()}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def killed_steps(act: Callable[[int], object], check: Callable[[], object]) -> int:
    """Kill ``act`` at its first step, its second, … until it comes to its end; returns how often."""
    for killed_at in range(STEPS_MAX):
        try:
            act(killed_at)
        except Killed:
            check()
        else:
            return killed_at
    raise AssertionError("it never comes to an end")


def test_an_upload_killed_anywhere_leaves_only_whole_images(scene: Scene) -> None:
    def check() -> None:
        assert len(scene.assert_all_whole()) == 2

    assert killed_steps(lambda n: scene.publish(2, n), check) >= 3
    assert len(scene.assert_all_whole()) == 3


def test_a_collection_killed_anywhere_leaves_only_whole_images(scene: Scene, tmp_path: Path) -> None:
    newest = scene.publish(2)
    scene.clock.advance(seconds=7200)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "objects", whole)

    def collect(killed_at: int) -> None:
        scene.images(killed_at).collect(keep=1, grace_ms=3_600_000)

    def check() -> None:
        assert newest in scene.assert_all_whole()
        shutil.rmtree(tmp_path / "objects")
        shutil.copytree(whole, tmp_path / "objects")

    assert killed_steps(collect, check) >= 4
    assert scene.assert_all_whole() == [newest]


def test_what_a_killed_upload_sent_is_collected_after_the_period_of_grace(scene: Scene) -> None:
    with pytest.raises(Killed):
        scene.publish(9, 3)
    folder = scene.folder / "objects/app/g0/1-0/files"
    sent = len(list(folder.iterdir()))
    day_ms = 24 * 3_600_000
    assert scene.images().collect(keep=2, grace_ms=day_ms).files == (), "the upload may still go on"
    scene.clock.advance(ms=day_ms)
    assert len(scene.images().collect(keep=2, grace_ms=day_ms).files) == 2
    assert len(list(folder.iterdir())) == sent - 2
    assert len(scene.assert_all_whole()) == 2


def test_an_installation_killed_anywhere_leaves_the_old_database_or_the_new(scene: Scene) -> None:
    scene.place.claim()
    scene.place.database.mkdir()
    (scene.place.database / "CURRENT").write_bytes(b"old")

    def check() -> None:
        assert scene.installed() == {"CURRENT": b"old"}

    assert killed_steps(scene.install, check) == 4, "one step a file"
    assert sorted(scene.installed()) == ["000001.sst", "000002.sst", "000003.sst", "CURRENT"]
    assert sorted(file.name for file in scene.place.path.iterdir()) == ["db", "identity.json"]


def test_what_a_killed_installation_left_gives_way(scene: Scene) -> None:
    scene.place.claim()
    for left in ("arriving", "leaving", ".arriving-x1"):
        (scene.place.path / left).mkdir()
        (scene.place.path / left / "000001.sst").write_bytes(b"half")
    scene.install()
    assert sorted(file.name for file in scene.place.path.iterdir()) == ["db", "identity.json"]


def test_two_processes_do_not_install_into_one_directory(scene: Scene) -> None:
    class Meanwhile(Mortal):
        """In the midst of an installation, another begins."""

        def open(self, name: str) -> BinaryIO:
            with pytest.raises(StateLocked, match="another process is fetching"):
                scene.install()
            return super().open(name)

    images = TaskImages(Meanwhile(scene.folder / "objects", STEPS_MAX), "app", 0, "1-0", scene.clock)
    manifest = scene.images().load(scene.images().names()[0])
    install(scene.place, images, manifest, lambda: False)
    assert "CURRENT" in scene.installed()


def test_a_damaged_database_is_set_aside_before_an_image_takes_its_place(scene: Scene) -> None:
    scene.place.claim()
    scene.place.database.mkdir()
    scene.place.mark_damaged("Corruption: bad block")
    scene.install()
    assert not scene.place.is_damaged
    assert "CURRENT" in scene.installed()
    assert (scene.place.path.with_name("1-0.damaged") / "DAMAGED").exists()
