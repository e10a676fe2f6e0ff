"""`stateflow checkpoint`, and a restore that begins with an image, against a real broker."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stateflow.errors import ConfigError, ImagesUnreachable, StateCorrupt, StateLocked
from stateflow.log.kafka import KafkaCluster
from tests.broker.catalog_site import PARTITIONS, Application, at, stateflow

pytestmark = pytest.mark.broker

TASKS = [f"by-{partition}" for partition in range(PARTITIONS)]


class Site:
    """An application with its state restored here, and the commands run on it."""

    def __init__(self, cluster: KafkaCluster, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.application = Application(cluster)
        self.state_dir, self.images = folder / "state", folder / "images"
        self._cluster, self._capfd = cluster, capfd
        self.restore()

    def run(self, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        where = at(self._cluster, self.application, "--images", str(self.images))
        return stateflow(self._capfd, *arguments, *where, exit_code=exit_code)

    def create(self, *more: str, exit_code: int = 0) -> dict[str, Any]:
        return self.run(
            "checkpoint", "create", "--state-dir", str(self.state_dir), *more, exit_code=exit_code
        )

    def restore(self, *more: str) -> dict[str, Any]:
        return self.run("restore", "--to", str(self.state_dir), *more)

    def lose_the_machine(self) -> None:
        shutil.rmtree(self.state_dir)

    def counts(self) -> dict[str, int]:
        return self.application.counts(self.state_dir)


@pytest.fixture
def site(cluster: KafkaCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Site:
    return Site(cluster, tmp_path, capfd)


def test_images_are_made_listed_verified_and_collected(site: Site) -> None:
    dry = site.create("--dry-run")
    assert [row["task"] for row in dry["images"]] == TASKS
    assert not site.images.exists()

    for _ in range(2):  # a folder that is not there, and one without images
        for command in ("verify", "list", "gc"):
            missing = site.run("checkpoint", command, exit_code=ImagesUnreachable.exit_code)
            assert str(site.images) in missing["message"]
        site.images.mkdir(exist_ok=True)

    first = site.create()["images"]
    assert [row["task"] for row in first] == TASKS
    assert all(row["uploaded_bytes"] == row["size_bytes"] > 0 for row in first)
    second = site.create()["images"]
    assert all(0 < row["uploaded_bytes"] < row["size_bytes"] for row in second)

    listed = site.run("checkpoint", "list")["images"]
    assert [row["task"] for row in listed] == [task for task in TASKS for _ in range(2)]
    assert all(row["refused"] is None and row["tail_slots"] == 0 for row in listed)
    verified = site.run("checkpoint", "verify", "--all")["verified"]
    assert len(verified) == 2 * PARTITIONS
    assert all(row["files"] > 0 and row["problems"] == [] for row in verified)

    planned = site.run("checkpoint", "gc", "--keep", "1", "--grace", "0s", "--dry-run")["would_remove"]
    assert len(site.run("checkpoint", "list")["images"]) == 2 * PARTITIONS
    removed = site.run("checkpoint", "gc", "--keep", "1", "--grace", "0s")["removed"]
    assert removed == planned
    assert all(row["images"] == 1 and row["files"] > 0 for row in removed)
    assert len(site.run("checkpoint", "verify", "--all")["verified"]) == PARTITIONS


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_lost_machine_is_restored_from_images_and_the_tail_after_them(site: Site, workers: str) -> None:
    site.create()
    site.application.write(5)
    site.lose_the_machine()

    plan = site.restore("--dry-run")["plan"]
    assert {row["action"] for row in plan} == {"tail"}
    assert all(row["image"].endswith(".json") and "the image reaches" in row["reason"] for row in plan)
    assert not site.state_dir.exists()

    done = site.restore("--workers", workers)
    assert site.counts() == site.application.truth["counts"]
    whole = sum(row["offset_next"] for row in plan)
    assert 0 < done["slots"] < whole / 2
    assert all(row["image"] for row in done["plan"])
    assert site.restore()["records"] == 0


def test_what_is_on_disk_is_kept_where_only_a_tail_is_missing(site: Site) -> None:
    site.create()
    site.application.write(5)
    plan = site.restore("--dry-run")["plan"]
    assert all(row["image"] is None and "the local state reaches" in row["reason"] for row in plan)


def test_a_damaged_image_is_told_and_passed_over(site: Site) -> None:
    older = {row["task"]: row["image"] for row in site.create()["images"]}
    site.application.write(5)
    site.restore()
    newer = {row["task"]: row for row in site.create()["images"]}
    files = site.images / site.application.id / "g0" / "by-1" / "files"
    newest = max(files.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes() + b"more")

    found = site.run("checkpoint", "verify", exit_code=StateCorrupt.exit_code)
    assert newer["by-1"]["image"] in found["message"]
    assert len(found["fields"]["problems"]) == 1

    site.lose_the_machine()
    done = {row["task"]: row["image"] for row in site.restore("--workers", "1")["plan"]}
    assert done == {"by-0": newer["by-0"]["image"], "by-1": older["by-1"], "by-2": newer["by-2"]["image"]}
    assert site.counts() == site.application.truth["counts"]


def test_a_task_that_a_worker_has_open_is_refused(site: Site) -> None:
    held = site.application.opened(site.state_dir, 0)
    try:
        site.create(exit_code=StateLocked.exit_code)
    finally:
        held.close()
    assert not site.images.exists()


def test_mistakes_are_told(site: Site, tmp_path: Path) -> None:
    empty = str(tmp_path / "elsewhere")
    found = site.run("checkpoint", "create", "--state-dir", empty, exit_code=ConfigError.exit_code)
    assert empty in found["message"]
    site.images.write_text("a file where a directory should be")
    found = site.create(exit_code=ImagesUnreachable.exit_code)
    assert str(site.images) in found["message"]
    site.lose_the_machine()
    assert {row["action"] for row in site.restore("--dry-run")["plan"]} == {"replay"}


def test_a_damaged_manifest_is_told_and_removed_where_that_is_asked_for(site: Site) -> None:
    site.create()
    older = site.run("checkpoint", "list")["images"][0]["image"]
    newest = site.create()["images"][0]["image"]
    (site.images / newest).write_bytes(b"{")
    collected = site.run("checkpoint", "gc", "--keep", "1", "--grace", "0s")["removed"][0]
    assert collected == {"task": TASKS[0], "images": 0, "files": 0, "freed_bytes": 0, "refused": [newest]}
    collected = site.run("checkpoint", "gc", "--keep", "1", "--grace", "0s", "--damaged")["removed"][0]
    assert (collected["images"], collected["refused"]) == (1, [])
    left = [row["image"] for row in site.run("checkpoint", "list")["images"] if row["task"] == TASKS[0]]
    assert left == [older]
    assert site.run("checkpoint", "verify")["verified"][0]["problems"] == []
