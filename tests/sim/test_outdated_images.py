"""Images that a repartition makes useless: said before, named afterwards, removed with the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.manifest import ImageStore
from stateflow.checkpoint.outdated_images import (
    collect_outdated,
    images_by_generation,
    outdated_contents,
    outdated_images,
)
from stateflow.cli.image_generations import image_generations, outdated_sentence
from stateflow.clock import ManualClock, SystemClock
from stateflow.config import AppOptions
from stateflow.log.memory import MemoryCluster
from stateflow.routing import RoutingTable
from stateflow.scale.generation import load_catalog
from tests.sim.repartitioned import run, written

CONTENTS = {"000007.sst": b"seven", "CURRENT": b"MANIFEST-000001\n"}
SIZE_BYTES = sum(map(len, CONTENTS.values()))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "images")


def publish(
    location: str,
    clock: ManualClock,
    generation: int,
    task: str,
    *,
    app: str = "shop",
    savepoint: str | None = None,
) -> None:
    clock.advance(seconds=1)
    folder = Path(location).parent / f"checkpoint-{clock.now_ms()}"
    folder.mkdir()
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    stores = {"totals": ImageStore(changelog="c", topic_id="id", offset_next=1, applied_ms=1)}
    images = TaskImages(open_objects(location), app, generation, task, clock)
    images.publish(folder, stores, {}, savepoint=savepoint)


def test_a_repartition_leaves_images_behind_and_says_so_before(
    cluster: MemoryCluster, location: str, clock: ManualClock
) -> None:
    written(cluster, RoutingTable.modulo(4))
    for task in ("by-0", "by-0", "by-1"):
        publish(location, clock, 0, task)
    publish(location, clock, 7, "by-0", app="shop-eu")
    options = AppOptions(images=location)
    before = image_generations(load_catalog(cluster, "shop"), options)
    assert before is not None
    assert (before.active.images, before.active.size_bytes, before.outdated) == (3, 2 * SIZE_BYTES, ())
    said = before.left_behind()
    assert said is not None
    assert said.startswith("3 images (42 B) at ")
    assert before.data()["images"] == 3

    run(cluster, RoutingTable.modulo(6).entry())

    after = image_generations(load_catalog(cluster, "shop"), options)
    assert after is not None
    assert after.left_behind() is None
    assert [(of.generation, of.images, of.tasks) for of in after.outdated] == [(0, 3, {"by-0", "by-1"})]
    assert outdated_sentence(after.outdated[0], 1).startswith(
        "3 images (42 B) of generation 0 cannot be used"
    )


def test_they_are_all_removed_but_for_what_a_savepoint_holds(location: str, clock: ManualClock) -> None:
    publish(location, clock, 0, "by-0")
    publish(location, clock, 0, "by-1")
    publish(location, clock, 0, "by-1", savepoint="before.1")
    publish(location, clock, 1, "by-0")
    objects = open_objects(location)
    (outdated,) = outdated_images(objects, "shop", 1)
    clock.advance(seconds=3600)
    planned = collect_outdated(objects, "shop", outdated, clock, grace_ms=0, dry_run=True)
    assert len(outdated_images(objects, "shop", 1)) == 1
    assert collect_outdated(objects, "shop", outdated, clock, grace_ms=0, dry_run=False) == planned
    assert {task: len(done.files) for task, done in planned.items()} == {"by-0": 2, "by-1": 0}
    assert outdated_images(objects, "shop", 1) == []
    assert images_by_generation(objects, "shop")[1].images == 1
    kept = TaskImages(objects, "shop", 0, "by-1", clock)
    assert [kept.verify(kept.load(name)) for name in kept.savepoint_names()] == [[]]


def test_what_a_deleted_savepoint_has_left_is_removed_when_its_generation_has_no_images(
    location: str, clock: ManualClock
) -> None:
    """Its files are kept for an hour when it is deleted; of an old generation they stayed for ever."""
    publish(location, clock, 0, "by-0", savepoint="before.1")
    publish(location, clock, 0, "by-0", savepoint="other.2")
    publish(location, clock, 0, "by-1", savepoint="before.1")
    objects = open_objects(location)
    for task in ("by-0", "by-1"):
        TaskImages(objects, "shop", 0, task, clock).forget_savepoint("before.1", grace_ms=3_600_000)
    assert outdated_images(objects, "shop", 1) == []
    clock.advance(seconds=7_200)
    (left,) = outdated_contents(objects, "shop", 1)
    removed = collect_outdated(objects, "shop", left, clock, grace_ms=3_600_000, dry_run=False)
    assert {task: len(done.files) for task, done in removed.items()} == {"by-0": 0, "by-1": 2}
    kept = TaskImages(objects, "shop", 0, "by-0", clock)
    assert [kept.verify(kept.load(name)) for name in kept.savepoint_names()] == [[]]


def test_without_a_place_nothing_is_said(cluster: MemoryCluster, location: str) -> None:
    written(cluster, RoutingTable.modulo(4))
    catalog = load_catalog(cluster, "shop")
    assert image_generations(catalog, AppOptions()) is None
    empty = image_generations(catalog, AppOptions(images=location))
    assert empty is not None
    assert empty.left_behind() is None
