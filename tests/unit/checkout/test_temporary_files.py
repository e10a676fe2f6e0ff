"""Temporary files of a run go into memory where there is room, and are given back."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests import temporary_files
from tests.temporary_files import AVAILABLE_BYTES, has_room, make_folder, remove_folder


def meminfo(folder: Path, available_bytes: int) -> Path:
    file = folder / "meminfo"
    file.write_text(f"MemTotal:       99999999 kB\nMemAvailable:   {available_bytes >> 10} kB\n")
    return file


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody has chosen a place, and there is room in one."""
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(temporary_files, "MEMORY", tmp_path)
    monkeypatch.setattr(temporary_files, "has_room", lambda *_: True)


@pytest.mark.usefixtures("usual")
def test_what_follows_goes_there_and_is_removed_with_it(tmp_path: Path) -> None:
    folder = make_folder()
    assert folder is not None
    assert folder.parent == tmp_path
    with tempfile.NamedTemporaryFile(delete=False) as file:
        assert Path(file.name).parent == folder
    assert os.environ["TMPDIR"] == str(folder)
    remove_folder(folder)
    assert not folder.exists()
    assert "TMPDIR" not in os.environ
    assert tempfile.gettempdir() != str(folder)


@pytest.mark.usefixtures("usual")
def test_what_a_run_has_left_is_removed_by_the_next_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_folder()
    assert own is not None
    (tmp_path / "sf-tests-left").mkdir()
    (tmp_path / "sf-tests-left" / "run.lock").touch()
    (tmp_path / "of others").mkdir()
    monkeypatch.delenv("TMPDIR")
    other = make_folder()
    assert other is not None
    assert {path.name for path in tmp_path.iterdir()} == {own.name, other.name, "of others"}
    for folder in (own, other):
        remove_folder(folder)


@pytest.mark.usefixtures("usual")
def test_a_place_that_was_chosen_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert make_folder() is None
    assert os.environ["TMPDIR"] == str(tmp_path)


def test_memory_that_others_need_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(temporary_files, "ROOM_BYTES", 1)
    assert has_room(tmp_path, meminfo(tmp_path, AVAILABLE_BYTES))
    assert not has_room(tmp_path, meminfo(tmp_path, AVAILABLE_BYTES - 1024))
    monkeypatch.setattr(temporary_files, "ROOM_BYTES", 1 << 62)
    assert not has_room(tmp_path, meminfo(tmp_path, AVAILABLE_BYTES))


def test_no_memory_no_folder(tmp_path: Path) -> None:
    assert not has_room(tmp_path / "none", meminfo(tmp_path, AVAILABLE_BYTES))
    assert not has_room(tmp_path, tmp_path / "no-meminfo")
