"""Every case that a restore can meet, by name: what it decides, and the sentence that `restore --dry-run` prints."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.catalog.model import TrimEntry
from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.position import NO_POSITION
from stateflow.checkpoint.changelog_policy import ChangelogPolicy
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.errors import StateflowError, TopicMissing, TopicRecreated
from stateflow.store.directory import task_directory
from tests.unit.checkpoint.restore_scene import HOUR_MS, LOG, OTHER, Case, Scene, both

# --- the cases: what was there before ------------------------------------------------------------------


def empty_log(scene: Scene) -> None:
    scene.cluster.delete([LOG.topic])
    scene.create(LOG)


def compacted(scene: Scene) -> None:
    assert scene.cluster.compact(LOG.topic) > 80


def compacted_behind(scene: Scene) -> None:
    scene.local(60)
    compacted(scene)


def damaged_locally(scene: Scene) -> None:
    scene.local(100)
    scene.job.directory.mark_damaged("Corruption: bad block")


def damaged_with_image(scene: Scene) -> None:
    scene.image(90)
    damaged_locally(scene)


def unreadable_database(scene: Scene) -> None:
    scene.local(100)
    (scene.job.directory.database / "CURRENT").write_bytes(b"nothing of the kind\n")


def aborted_at_the_end(scene: Scene) -> None:
    scene.transaction(5).abort()


def torn_commit(scene: Scene) -> None:
    """Ten records behind the last commit record, visible to a reader of committed records."""
    writer = scene.cluster.writer()
    writer.send(LOG.topic, COMMIT_KEY, CommitRecord(0, 0, 100, NO_POSITION).encode(), partition=0)
    writer.commit()
    scene.write(10)


def torn_commit_behind_local(scene: Scene) -> None:
    torn_commit(scene)
    scene.local(101)


def recreated(scene: Scene) -> None:
    ids = dict(scene.ids)
    empty_log(scene)
    scene.ids |= ids


def trimmed_with_bad_newest(scene: Scene) -> None:
    scene.image(70)
    DirectoryObjects(scene.folder / "images").put(scene.image(90), io.BytesIO(b"{"))
    scene.trim(60)


def trimmed_with_bad_only(scene: Scene) -> None:
    DirectoryObjects(scene.folder / "images").put(scene.image(90), io.BytesIO(b"{"))
    scene.trim(60)


def lost_images(scene: Scene) -> None:
    scene.job = replace(scene.job, images=str(scene.folder / "images"))
    scene.trim(60)


def images_of_an_older_generation(scene: Scene) -> None:
    scene.image(90)
    place = task_directory(scene.folder / "state", "app", scene.cluster.cluster_id, 1, "main-0")
    scene.job = replace(scene.job, directory=place)


def switched_on(scene: Scene, *, kept_before_ms: int) -> None:
    """Deletions are kept for good since a minute ago; content is two hours old."""
    scene.local(60, age_ms=2 * HOUR_MS)
    scene.cluster.alter_topic_config(LOG.topic, {"delete.retention.ms": str(10**12)})
    since_ms = scene.clock.now_ms() - 60_000
    trim = TrimEntry(enabled=True, images="x", since_ms=since_ms, tombstones_before_ms=kept_before_ms)
    scene.job = replace(scene.job, log_policy=ChangelogPolicy(trim))


FIRST = "fetch the image 00000000003600000001.json; "
CASES = [
    Case("empty", empty_log, "empty", "nothing to restore: nothing was ever written"),
    Case(
        "full", lambda s: None, "replay", "begin empty and read 100 slots from 0 on: there is no local state"
    ),
    Case("local up to date", lambda s: s.local(100), "reuse", "read nothing: up to date"),
    Case(
        "offset behind", lambda s: s.local(60), "tail", "read 40 slots from 60 on: the local state reaches 60"
    ),
    Case(
        "offset ahead",
        lambda s: s.local(101),
        "replay",
        "begin empty and read 100 slots from 0 on: the local state is at 101, ahead of the log's end 100",
    ),
    Case(
        "offset ahead of an emptied log",
        both(empty_log, lambda s: s.local(7)),
        "replay",
        "begin empty and read 0 slots from 0 on: the local state is at 7, ahead of the log's end 0",
    ),
    Case(
        "local of an earlier topic",
        lambda s: s.local(60, "earlier"),
        "replay",
        "begin empty and read 100 slots from 0 on: the local state is of an earlier topic of this name",
    ),
    Case(
        "local older than deletions are kept",
        lambda s: s.local(60, age_ms=61_000),
        "replay",
        "begin empty and read 100 slots from 0 on: the local state is 61 s old, and the log kept deletions for 60 s"
        " only",
    ),
    Case("old and up to date", lambda s: s.local(100, age_ms=HOUR_MS), "reuse", "read nothing: up to date"),
    Case(
        "compacted", compacted, "replay", "begin empty and read 100 slots from 0 on: there is no local state"
    ),
    Case(
        "compacted, offset behind",
        compacted_behind,
        "tail",
        "read 40 slots from 60 on: the local state reaches 60",
    ),
    Case(
        "local marked as damaged",
        damaged_locally,
        "replay",
        "begin empty and read 100 slots from 0 on: there is no local state",
    ),
    Case(
        "local unreadable",
        unreadable_database,
        "replay",
        "begin empty and read 100 slots from 0 on: there is no local state",
    ),
    Case(
        "open transaction",
        lambda s: s.transaction(5),
        "replay",
        "begin empty and read 100 slots from 0 on: there is no local state",
    ),
    Case(
        "aborted transaction at the end",
        aborted_at_the_end,
        "replay",
        "begin empty and read 106 slots from 0 on: there is no local state",
    ),
    Case(
        "torn commit",
        torn_commit,
        "replay",
        "begin empty and read 101 slots from 0 on: there is no local state",
    ),
    Case("torn commit, local decided", torn_commit_behind_local, "reuse", "read nothing: up to date"),
    Case(
        "truncated before local",
        both(lambda s: s.local(60), lambda s: s.trim(50)),
        "tail",
        "read 40 slots from 60 on: the local state reaches 60",
    ),
    Case(
        "truncated at local",
        both(lambda s: s.local(60), lambda s: s.trim(60)),
        "tail",
        "read 40 slots from 60 on: the local state reaches 60",
    ),
    Case(
        "truncated past local",
        both(lambda s: s.local(60), lambda s: s.trim(61)),
        "refused",
        "cannot be restored: app-a-changelog[0] begins at 61: what it said before was deleted, so it alone does not"
        " hold the state, and the log begins at 61, after the end of the local state, 60.",
    ),
    Case(
        "trimmed, no local state",
        lambda s: s.trim(60),
        "refused",
        "cannot be restored: app-a-changelog[0] begins at 60: what it said before was deleted, so it alone does not"
        " hold the state, and there is no local state.",
    ),
    Case(
        "trimmed to its end",
        lambda s: s.trim(100),
        "refused",
        "cannot be restored: app-a-changelog[0] begins at 100: what it said before was deleted, so it alone does not"
        " hold the state, and there is no local state.",
    ),
    Case(
        "trimmed, image",
        both(lambda s: s.image(70), lambda s: s.trim(60)),
        "tail",
        FIRST + "read 30 slots from 70 on: the image reaches 70",
        image=True,
    ),
    Case(
        "trimmed to its end, image",
        both(lambda s: s.image(100), lambda s: s.trim(100)),
        "reuse",
        FIRST + "read nothing: up to date",
        image=True,
    ),
    Case(
        "trimmed, image behind",
        both(lambda s: s.image(50), lambda s: s.trim(60)),
        "refused",
        "cannot be restored: app-a-changelog[0] begins at 60: what it said before was deleted, so it alone does not"
        " hold the state, and there is no local state. Of the images,"
        " app/g0/main-0/manifests/00000000003600000001.json: a: the log begins at 60, after the end of the image, 50.",
    ),
    Case(
        "trimmed, bad image, older good",
        trimmed_with_bad_newest,
        "tail",
        FIRST + "read 30 slots from 70 on: the image reaches 70",
        image=True,
    ),
    Case(
        "trimmed, images lost",
        lost_images,
        "refused",
        "cannot be restored: app-a-changelog[0] begins at 60: what it said before was deleted, so it alone does not"
        " hold the state, and there is no local state. There is no image of this task.",
    ),
    Case(
        "image",
        lambda s: s.image(90),
        "tail",
        FIRST + "read 10 slots from 90 on: the image reaches 90",
        image=True,
    ),
    Case(
        "image, local damaged",
        damaged_with_image,
        "tail",
        FIRST + "read 10 slots from 90 on: the image reaches 90",
        image=True,
    ),
    Case(
        "image no shorter than the log",
        lambda s: s.image(0),
        "replay",
        "begin empty and read 100 slots from 0 on: there is no local state",
    ),
    Case(
        "image ahead",
        lambda s: s.image(101),
        "replay",
        "begin empty and read 100 slots from 0 on: there is no local state",
    ),
    Case(
        "image of an earlier topic",
        lambda s: s.image(90, "earlier"),
        "replay",
        "begin empty and read 100 slots from 0 on: there is no local state",
    ),
    Case(
        "image older than deletions are kept",
        lambda s: s.image(90, age_ms=61_000),
        "replay",
        "begin empty and read 100 slots from 0 on: there is no local state",
    ),
    Case(
        "image newer than local",
        both(lambda s: s.image(90), lambda s: s.local(60)),
        "tail",
        "read 40 slots from 60 on: the local state reaches 60",
    ),
    Case(
        "generation changed",
        images_of_an_older_generation,
        "replay",
        "begin empty and read 100 slots from 0 on: there is no local state",
    ),
    Case(
        "trim switched on, content was too old then",
        lambda s: switched_on(s, kept_before_ms=60_000),
        "replay",
        "begin empty and read 100 slots from 0 on: the local state is 7200 s old, and the log kept deletions for 60 s"
        " only",
    ),
    Case(
        "trim switched on, content was fresh then",
        lambda s: switched_on(s, kept_before_ms=24 * HOUR_MS),
        "tail",
        "read 40 slots from 60 on: the local state reaches 60",
    ),
    Case(
        "a new store beside an old one",
        both(lambda s: s.local(60), lambda s: s.two_stores(0)),
        "tail",
        "read 40 slots from 60 on: the local state reaches 60",
        more=(("empty", "nothing to restore: nothing was ever written"),),
    ),
    Case(
        "an image that lacks a store",
        both(lambda s: s.image(90), lambda s: s.two_stores(5)),
        "tail",
        FIRST + "read 10 slots from 90 on: the image reaches 90",
        more=(("replay", FIRST + "begin empty and read 5 slots from 0 on: there is no image"),),
        image=True,
    ),
    Case(
        "one of two changelogs trimmed past local",
        both(
            lambda s: s.two_stores(50),
            lambda s: s.local(60, b=20),
            lambda s: s.image(90, b=40),
            lambda s: s.trim(30, OTHER),
        ),
        "tail",
        FIRST + "read 10 slots from 90 on: the image reaches 90",
        more=(("tail", FIRST + "read 10 slots from 40 on: the image reaches 40"),),
        image=True,
    ),
]


def test_the_table_has_a_name_for_each_case() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert len(names) >= 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_decision(case: Case, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    case.arrange(scene)
    rows = scene.decided()
    assert [(row.action, row.sentence) for row in rows] == [(case.action, case.sentence), *case.more]
    assert all((row.image is not None) == case.image for row in rows)


@pytest.mark.parametrize(
    ("arrange", "error"),
    [
        (lambda s: s.cluster.delete([LOG.topic]), TopicMissing),
        (both(lambda s: s.image(90), lambda s: s.cluster.delete([LOG.topic])), TopicMissing),
        (recreated, TopicRecreated),
        (both(lambda s: s.local(100), recreated), TopicRecreated),
        (both(lambda s: s.image(90), recreated), TopicRecreated),
    ],
    ids=["missing", "missing, image", "recreated", "recreated, local", "recreated, image"],
)
def test_a_log_that_is_not_the_one_that_was_recorded_is_an_error(
    arrange: Callable[[Scene], None], error: type[StateflowError], tmp_path: Path
) -> None:
    scene = Scene(tmp_path)
    arrange(scene)
    with pytest.raises(error) as caught:
        scene.decided()
    assert "reset" in caught.value.action


def test_a_bad_image_of_a_trimmed_log_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    trimmed_with_bad_only(scene)
    (row,) = scene.decided()
    assert row.action == "refused"
    assert "the image manifest app/g0/main-0/manifests/00000000003600000001.json is refused" in row.sentence
