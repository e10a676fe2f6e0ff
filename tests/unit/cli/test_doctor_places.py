"""What `stateflow doctor` says of the places that are set, where nothing can be kept there."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.cli.doctor import examine


def test_a_home_that_cannot_be_made_is_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path / "file" / "home"))
    found = next(finding for finding in examine(None) if finding.name == "disk, state")
    assert found.ok is False
    assert found.detail == f"{tmp_path / 'file' / 'home'} cannot be made (Not a directory)"
    assert "STATEFLOW_HOME" in found.action


def test_a_home_that_is_yet_to_be_made_is_as_good_as_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path / "deep" / "home"))
    found = next(finding for finding in examine(None) if finding.name == "disk, state")
    assert "free for" in found.detail
    assert list(tmp_path.iterdir()) == [], "looking leaves nothing behind"
