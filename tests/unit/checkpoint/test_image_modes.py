"""Modes of images: what is sent, what one damaged object spoils, what may be collected; and settings that clash."""

from __future__ import annotations

from pathlib import Path

import pytest

import stateflow as sf
from stateflow.checkpoint.images import Published, TaskImages
from stateflow.checkpoint.manifest import ImageStore, UploadMode
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.clock import ManualClock, SystemClock
from stateflow.config import AppOptions, resolve
from stateflow.errors import ConfigError

STORES = {"a": ImageStore(changelog="app-a-changelog", topic_id="id", offset_next=7, applied_ms=1)}
HOUR_MS = 3_600_000


class Scene:
    """A task whose tables 1 and 2 stay, and whose table n belongs to its n-th image alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(SystemClock().now_ms())
        self.images = TaskImages(DirectoryObjects(folder / "objects"), "app", 0, "1-0", self.clock)
        self._made = 2

    def publish(self, mode: UploadMode) -> Published:
        self._made += 1
        checkpoint = self.folder / f"checkpoint-{self._made}"
        checkpoint.mkdir()
        for table in (1, 2, self._made):
            (checkpoint / f"{table:06d}.sst").write_bytes(b"table %d" % table)
        self.clock.advance(ms=2 * HOUR_MS)
        return self.images.publish(checkpoint, STORES, {}, mode=mode)

    def whole(self) -> list[bool]:
        """Newest first."""
        return [self.images.verify(self.images.load(name)) == [] for name in self.images.names()]

    def objects(self, folder: str) -> list[Path]:
        return sorted((self.folder / "objects/app/g0/1-0" / folder).rglob("*"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_full_sends_everything_each_time_and_delta_what_is_new(scene: Scene) -> None:
    sent = [
        scene.publish(mode).files_uploaded_total
        for mode in ("delta", "delta", "full", "full", "delta", "delta")
    ]
    assert sent == [3, 1, 3, 3, 3, 1], "a delta after a full image shares nothing with it"
    assert [scene.images.load(name).mode for name in scene.images.names()] == [
        *("delta", "delta", "full", "full", "delta", "delta")
    ]
    assert all(scene.whole())


@pytest.mark.parametrize(("mode", "whole"), [("full", [True, False, True]), ("delta", [False, False, False])])
def test_a_damaged_object_spoils_one_full_image_and_every_delta_that_names_it(
    scene: Scene, mode: UploadMode, whole: list[bool]
) -> None:
    images = [scene.publish(mode) for _ in range(3)]
    content = images[1].manifest.files[0].sha256
    folder = "files" if mode == "delta" else f"full/{images[1].manifest.created_ms:020d}"
    (scene.folder / "objects/app/g0/1-0" / folder / content).write_bytes(b"Table 1")
    assert scene.whole() == whole


def test_a_collection_takes_the_files_of_old_full_images_and_their_marks(scene: Scene) -> None:
    for mode in ("full", "delta", "full"):
        assert scene.images.confirm(scene.publish(mode).name) == []
    scene.clock.advance(ms=2 * HOUR_MS)
    done = scene.images.collect(keep=1, grace_ms=HOUR_MS)
    assert (len(done.manifests), len(done.files)) == (2, 6)
    assert scene.whole() == [True]
    assert scene.objects("files") == []
    assert len([path for path in scene.objects("full") if path.is_file()]) == 3
    assert len(scene.objects("safe")) == 1
    assert scene.images.safe_names() == scene.images.names()


def test_all_images_may_go_where_the_changelog_is_the_only_copy(scene: Scene) -> None:
    scene.publish("delta")
    scene.clock.advance(ms=2 * HOUR_MS)
    scene.images.collect(keep=0, grace_ms=HOUR_MS)
    assert scene.images.names() == []
    assert scene.objects("files") == []


def test_a_safe_image_stops_being_safe_when_its_manifest_or_a_size_changes(scene: Scene) -> None:
    first, second = scene.publish("full"), scene.publish("full")
    assert [scene.images.confirm(image.name) for image in (first, second)] == [[], []]
    (file, *_) = second.manifest.files
    folder = scene.folder / "objects/app/g0/1-0/full" / f"{second.manifest.created_ms:020d}"
    (folder / file.sha256).write_bytes(b"longer than it was")
    assert scene.images.safe_names() == [first.name]
    path = scene.folder / "objects" / first.name
    path.write_bytes(path.read_bytes() + b"\n")
    assert scene.images.safe_names() == []


@pytest.mark.parametrize(
    "settings",
    [
        {"trim": True},
        {"trim": True, "images": "/images", "image_mode": "continuous"},
        {"trim": True, "images": "/images", "images_restorable": 4},
        {"trim": True, "images": "s3://key:secret@bucket/prefix"},
        {"trim": True, "images": "s3://bucket/prefix?access_key=x&secret_key=y"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("shop", AppOptions(), settings, {})
    assert "secret" not in str(caught.value)


def test_an_application_chooses_by_its_arguments_and_whoever_runs_it_overrides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = sf.App("shop", images="/images", image_mode="full", trim=True, commit_mode="paranoid")
    assert (app.options.trim_to, app.options.image_mode, app.options.commit_mode) == (
        "/images",
        "full",
        "paranoid",
    )
    monkeypatch.setenv("STATEFLOW_COMMIT_MODE", "standard")
    other = sf.App("shop", commit_mode="paranoid")
    shown = {setting.name: (setting.value, setting.origin) for setting in other.settings.shown()}
    assert shown["commit_mode"] == ("standard", "environment STATEFLOW_COMMIT_MODE")
    assert shown["trim"] == ("False", "default")
