"""Directories of state: for their owner alone, whatever the umask is and whoever made them before."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.checkpoint.savepoints import SavepointObjects
from stateflow.clock import ManualClock
from stateflow.errors import StateCorrupt, StateForeign
from stateflow.store.directory import disk_id, task_directory


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Everybody may read what is created without a mode of its own."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_created_is_for_its_owner_alone(tmp_path: Path) -> None:
    state_dir = tmp_path / "not" / "there"
    task_directory(state_dir, "shop", "cluster", 0, "count-0").claim()
    for made in (state_dir, state_dir / "shop", state_dir / "shop/g0", state_dir / "shop/g0/count-0"):
        assert mode_of(made) == 0o700


def test_the_folder_of_the_disk_is_private_too(tmp_path: Path) -> None:
    disk_id(tmp_path / "state", "shop")
    assert mode_of(tmp_path / "state/shop") == 0o700


def test_wider_rights_of_what_is_ours_are_narrowed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    place = task_directory(tmp_path, "shop", "cluster", 0, "count-0")
    place.path.mkdir(parents=True)
    place.claim()
    assert {mode_of(path) for path in (place.path, *list(place.path.parents)[:2])} == {0o700}
    assert mode_of(tmp_path) == 0o755, (
        "the state directory may be shared with others: it stays as it was made"
    )


def test_a_directory_of_somebody_else_keeps_its_rights(tmp_path: Path) -> None:
    task_directory(tmp_path, "other", "cluster", 0, "count-0").claim()
    theirs = tmp_path / "other/g0/count-0"
    theirs.chmod(0o755)
    (tmp_path / "shop").symlink_to(tmp_path / "other")
    with pytest.raises(StateForeign):
        task_directory(tmp_path, "shop", "cluster", 0, "count-0").claim()
    assert mode_of(theirs) == 0o755


def test_rights_that_cannot_be_changed_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = task_directory(tmp_path, "shop", "cluster", 0, "count-0")
    place.path.mkdir(parents=True)

    def refused(_path: Path, _mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    with caplog.at_level(logging.WARNING):
        place.claim()
    assert "count-0" in caplog.text
    assert "Operation not permitted" in caplog.text


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "", "/x"])
def test_no_name_leads_out_of_a_folder(tmp_path: Path, name: str) -> None:
    for app, task in ((name, "count-0"), ("shop", name)):
        with pytest.raises(StateCorrupt, match="cannot be the name"):
            task_directory(tmp_path, app, "cluster", 0, task)
        with pytest.raises(StateCorrupt, match="cannot be the name"):
            TaskImages(DirectoryObjects(tmp_path), app, 0, task, ManualClock())
        with pytest.raises(StateCorrupt, match="that none can have"):
            SavepointObjects(DirectoryObjects(tmp_path), app, task, 1, ManualClock())
