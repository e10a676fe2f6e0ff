"""Which image a restore may begin with: judged by the log as it is now, by the rules for a local store."""

from __future__ import annotations

import io
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.checkpoint.image_selection import (
    Choice,
    choose,
    image_candidates,
    images_of,
    install_best,
    plan_with_images,
)
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.manifest import ImageStore
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.clock import ManualClock
from stateflow.errors import ChangelogTrimmed, TopicRecreated
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.store.directory import task_directory

TOPIC = "app-a-changelog"
PARTITION = TopicPartition(TOPIC, 0)
KEPT_MS = 1_000
CONFIG = {"cleanup.policy": "compact,delete", "delete.retention.ms": str(KEPT_MS)}


class Scene:
    """A changelog of 100 slots, a task without local state, and images of it without content."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(1_000_000)
        self.cluster = MemoryCluster(self.clock)
        self.topic_id = self.cluster.create([TopicSpec(TOPIC, 1, config=CONFIG)])[TOPIC].topic_id
        self.folder = folder
        self.job = RestoreJob(
            task="main-0",
            directory=task_directory(folder / "state", "app", self.cluster.cluster_id, 0, "main-0"),
            changelogs={"a": PARTITION},
            topic_ids={TOPIC: self.topic_id},
        )
        writer = self.cluster.writer()
        for number in range(100):
            writer.send(TOPIC, b"%d" % number, b"v", partition=0)
        writer.commit()
        (folder / "checkpoint").mkdir()

    @property
    def images(self) -> TaskImages:
        return images_of(self.job, DirectoryObjects(self.folder / "objects"), self.clock)

    def image(self, offset_next: int, topic: str = TOPIC, topic_id: str | None = None) -> str:
        held = ImageStore(
            changelog=topic,
            topic_id=topic_id or self.topic_id,
            offset_next=offset_next,
            applied_ms=self.clock.now_ms(),
        )
        self.clock.advance(ms=1)
        return self.images.publish(self.folder / "checkpoint", {"a": held}, {}).name

    def refusals(self) -> list[str | None]:
        found = image_candidates(self.cluster, self.job, self.images, self.clock)
        return [image.refused for image in found]

    def better(self) -> list[tuple[str, int]]:
        return [(image.name, image.slots) for image in self.choice().better]

    def choice(self) -> Choice:
        return choose(self.cluster, self.job, self.images, self.clock)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_newest_comes_first_and_each_says_what_is_left_to_read(scene: Scene) -> None:
    older, newer = scene.image(40), scene.image(90)
    assert scene.better() == [(newer, 10), (older, 60)]


def test_an_image_of_everything_leaves_nothing_to_read(scene: Scene) -> None:
    name = scene.image(100)
    assert scene.better() == [(name, 0)]


def test_an_image_that_ends_before_the_log_begins_is_refused(scene: Scene) -> None:
    scene.image(40)
    good = scene.image(50)
    scene.cluster.trim({PARTITION: 50})
    assert scene.refusals() == [None, "a: the log begins at 50, after the end of the image, 40"]
    assert scene.better() == [(good, 50)], (
        "the log from its beginning is as short, and does not hold the state"
    )
    assert scene.choice().local is None


def test_a_trimmed_log_without_a_usable_image_is_an_error_that_names_each(scene: Scene) -> None:
    old, bad = scene.image(40), scene.image(60)
    DirectoryObjects(scene.folder / "objects").put(bad, io.BytesIO(b"{"))
    scene.cluster.trim({PARTITION: 50})
    place = str(scene.folder / "objects")
    with pytest.raises(ChangelogTrimmed) as caught:
        install_best(scene.cluster, scene.job, place, scene.clock, lambda: False)
    assert "app-a-changelog[0] begins at 50" in caught.value.message
    assert f"{bad}: the image manifest" in caught.value.message
    assert f"{old}: a: the log begins at 50, after the end of the image, 40" in caught.value.message
    assert "stateflow checkpoint list" in caught.value.action
    with pytest.raises(ChangelogTrimmed):
        plan_with_images(scene.cluster, replace(scene.job, images=place), scene.clock)


def test_an_image_ahead_of_the_log_is_refused(scene: Scene) -> None:
    scene.image(101)
    assert scene.refusals() == ["a: the image is at 101, ahead of the log's end 100"]


def test_an_image_older_than_the_logs_deletions_is_refused_unless_nothing_came_after_it(scene: Scene) -> None:
    scene.image(40)
    level = scene.image(100)
    scene.clock.advance(ms=KEPT_MS + 2_000)
    refused = scene.refusals()
    assert refused[0] is None
    assert refused[1] is not None
    assert "kept deletions for 1 s only" in refused[1]
    assert [name for name, _ in scene.better()] == [level]


def test_an_image_of_another_topic_is_refused(scene: Scene) -> None:
    scene.image(40, topic_id="of-an-earlier-one")
    scene.image(40, topic="app-a-changelog-g1")
    assert scene.refusals() == [
        "its a is of the changelog app-a-changelog-g1",
        "a: the image is of an earlier topic of this name",
    ]


def test_a_recreated_changelog_is_an_error_as_without_images(scene: Scene) -> None:
    scene.image(40)
    scene.cluster.delete([TOPIC])
    scene.cluster.create([TopicSpec(TOPIC, 1, config=CONFIG)])
    with pytest.raises(TopicRecreated):
        scene.better()


def test_a_manifest_that_cannot_be_read_is_refused_and_the_one_before_it_used(scene: Scene) -> None:
    good, bad = scene.image(40), scene.image(50)
    DirectoryObjects(scene.folder / "objects").put(bad, io.BytesIO(b"{"))
    refused = scene.refusals()
    assert refused[0] is not None
    assert "cannot be read" in refused[0]
    assert scene.better() == [(good, 60)]


def test_a_place_that_cannot_be_reached_holds_no_images(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreachable(DirectoryObjects):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            raise OSError(f"connection refused: {prefix}")

    images = images_of(scene.job, Unreachable(scene.folder), scene.clock)
    with caplog.at_level(logging.WARNING):
        assert choose(scene.cluster, scene.job, images, scene.clock).better == ()
    assert "goes on without images" in caplog.text
    scene.cluster.trim({PARTITION: 50})
    choice = choose(scene.cluster, scene.job, images, scene.clock)
    assert "cannot be read (connection refused" in choice.missing().message
