"""How much of a changelog may be deleted: never what one of the retained images, or whoever takes over, still reads."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.position import NO_POSITION
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.manifest import ImageStore
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.checkpoint.tails import read_tails
from stateflow.checkpoint.trimming import (
    Trimmable,
    carry_out,
    confirm_newest,
    retained_images,
    trim_points,
)
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition

pytestmark = pytest.mark.slow

STORES = ("a", "b")
CHANGELOGS = {store: TopicPartition(f"app-{store}-changelog", 0) for store in STORES}
CONFIG = {"cleanup.policy": "compact,delete"}
SLOTS = 100
EVERY = 10
"""Each changelog has 100 slots, every tenth of which is a commit record: at 9, 19, 29 and so on."""


class Scene:
    """A task with two changelogs, and images of it whose only file is a name."""

    def __init__(self, folder: Path, *, records: bool = True) -> None:
        self.clock = ManualClock(1_000_000)
        self.cluster = MemoryCluster(self.clock)
        self.folder = folder
        made = self.cluster.create(TopicSpec(tp.topic, 1, config=CONFIG) for tp in CHANGELOGS.values())
        self.ids = {name: info.topic_id for name, info in made.items()}
        self.task = Trimmable(CHANGELOGS, self.ids)
        writer = self.cluster.writer()
        for number in range(SLOTS):
            is_record = records and number % EVERY == EVERY - 1
            record = CommitRecord(0, number // EVERY, EVERY - 1, NO_POSITION).encode()
            for topic, _ in CHANGELOGS.values():
                key = COMMIT_KEY if is_record else b"k%d" % number
                writer.send(topic, key, record if is_record else b"v", partition=0)
        writer.commit()
        (folder / "checkpoint").mkdir(exist_ok=True)
        (folder / "checkpoint/CURRENT").write_bytes(b"MANIFEST-000001\n")

    @property
    def images(self) -> TaskImages:
        return TaskImages(DirectoryObjects(self.folder / "objects"), "app", 0, "main-0", self.clock)

    def image(self, a: int, b: int | None = None, topic_id: str | None = None, *, safe: bool = True) -> str:
        held = {
            store: ImageStore(
                changelog=CHANGELOGS[store].topic,
                topic_id=topic_id or self.ids[CHANGELOGS[store].topic],
                offset_next=offset,
                applied_ms=1,
            )
            for store, offset in (("a", a), ("b", a if b is None else b))
        }
        self.clock.advance(ms=1)
        name = self.images.publish(self.folder / "checkpoint", held, {}).name
        if safe:
            assert self.images.confirm(name) == []
        return name

    def trim(self, retained: int = 2) -> list[int]:
        """Carry it out; where the changelogs begin then."""
        points = trim_points(self.cluster, self.task, self.images, retained, self.clock)
        carry_out(self.cluster, points)
        return self.begin()

    def begin(self) -> list[int]:
        logs = self.cluster.ranges(CHANGELOGS.values())
        return [logs[changelog].offset_first for changelog in CHANGELOGS.values()]

    def reasons(self, retained: int = 2) -> list[str]:
        points = trim_points(self.cluster, self.task, self.images, retained, self.clock)
        return [point.reason for point in points]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_it_goes_up_to_the_commit_record_before_the_oldest_retained_image(scene: Scene) -> None:
    scene.image(40, 50)
    scene.image(70, 60)
    assert scene.trim() == [39, 49]
    assert scene.trim() == [39, 49], "again, it is nothing"


def test_each_changelog_is_held_by_the_image_that_reaches_least_into_it(scene: Scene) -> None:
    scene.image(70, 40)
    scene.image(50, 60)
    assert scene.trim() == [49, 39]


def test_an_image_between_commit_records_keeps_the_one_before_it(scene: Scene) -> None:
    scene.image(45)
    assert scene.trim(retained=1) == [39, 39]


def test_fewer_safe_images_than_retained_delete_nothing(scene: Scene) -> None:
    scene.image(40)
    scene.image(70, safe=False)
    assert scene.trim() == [0, 0]
    assert scene.reasons() == ["1 of 2 retained images are safe and can be used"] * 2
    assert confirm_newest(scene.images, 2, lambda: False) == []
    assert scene.trim() == [39, 39]


def test_older_images_beyond_the_promise_do_not_hold_the_log(scene: Scene) -> None:
    for offset in (20, 40, 70):
        scene.image(offset)
    assert scene.trim() == [39, 39]


def test_an_image_that_lost_a_file_or_its_manifest_no_longer_counts(scene: Scene) -> None:
    scene.image(30)
    scene.image(40)
    newest = scene.image(70)
    DirectoryObjects(scene.folder / "objects").put(newest, io.BytesIO(b"{}"))
    assert scene.trim() == [29, 29]
    for file in (scene.folder / "objects").rglob("files/*"):
        file.unlink()
    assert retained_images(scene.cluster, scene.task, scene.images, 2) == {}
    assert confirm_newest(scene.images, 3, lambda: False) != []


def test_an_image_that_ends_before_the_log_begins_does_not_count(scene: Scene) -> None:
    scene.image(40)
    scene.image(70)
    assert scene.trim() == [39, 39]
    scene.image(30)  # of an owner that was thought dead: newer, and behind
    assert scene.reasons() == ["the oldest of 2 retained images reaches 40"] * 2
    assert list(retained_images(scene.cluster, scene.task, scene.images, 2)) == scene.images.names()[1:]


@pytest.mark.parametrize("foreign", ["another-topic-of-this-name"])
def test_an_image_of_a_recreated_changelog_does_not_count(scene: Scene, foreign: str) -> None:
    scene.image(40, topic_id=foreign)
    scene.image(70, topic_id=foreign)
    assert scene.trim() == [0, 0]


def test_an_image_ahead_of_the_log_does_not_count(scene: Scene) -> None:
    scene.image(SLOTS + 1)
    assert scene.trim(retained=1) == [0, 0]


def test_without_a_commit_record_nothing_goes_under_exactly_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, records=False)
    scene.image(40)
    assert scene.trim(retained=1) == [0, 0]
    assert scene.reasons(1) == ["it has no commit record before the images yet"] * 2


def test_a_late_point_of_another_owner_changes_nothing(scene: Scene) -> None:
    scene.image(40)
    late = trim_points(scene.cluster, scene.task, scene.images, 1, scene.clock)
    scene.image(70)
    assert scene.trim(retained=1) == [69, 69]
    carry_out(scene.cluster, late)
    assert scene.begin() == [69, 69]


def test_what_a_collection_protects_is_what_the_log_was_deleted_for(scene: Scene) -> None:
    scene.image(40)
    scene.image(70)
    scene.trim()
    for _ in range(3):
        scene.image(30)  # a zombie's
    protected = retained_images(scene.cluster, scene.task, scene.images, 2)
    scene.images.collect(keep=1, grace_ms=0, protected=protected)
    left = retained_images(scene.cluster, scene.task, scene.images, 2)
    assert [manifest.stores["a"].offset_next for manifest in left.values()] == [70, 40]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_retained_image_can_be_begun_with_and_the_last_commit_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    scene = Scene(tmp_path_factory.mktemp("scene"))
    retained = data.draw(st.integers(1, 3))
    offsets = data.draw(
        st.lists(st.tuples(st.integers(0, SLOTS), st.integers(0, SLOTS)), min_size=1, max_size=6)
    )
    for a, b in offsets:
        scene.image(a, b, safe=data.draw(st.booleans()))
        usable = retained_images(scene.cluster, scene.task, scene.images, retained)
        begin = scene.trim(retained)
        for manifest in usable.values():
            for store, first in zip(STORES, begin, strict=True):
                assert manifest.stores[store].offset_next >= first
        tails = read_tails(scene.cluster, CHANGELOGS)
        assert all(tail.last is not None and tail.last.sequence == 9 for tail in tails.values())
