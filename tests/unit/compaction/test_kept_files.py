"""Where journals of settings are kept; those written before the folder followed ``STATEFLOW_HOME`` still count."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from stateflow.compaction.control.journal import Journal, JournalEntry
from stateflow.compaction.control.kept_files import (
    costs_path,
    default_folder,
    found_at,
    require_writable,
    written_to,
)
from stateflow.errors import ConfigError, DiskFull

CHANGE = JournalEntry("orders", 1, {"segment.ms": "500"}, {"segment.ms": None})
LATER = JournalEntry("orders", 2, {"segment.ms": "900"}, {"segment.ms": "500"})


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The former place, and the one that is set now."""
    former, home = tmp_path / "xdg", tmp_path / "home"
    monkeypatch.setenv("XDG_STATE_HOME", str(former))
    monkeypatch.setenv("STATEFLOW_HOME", str(home))
    return former / "stateflow" / "compaction", home / "compaction"


def test_what_is_kept_follows_the_setting(homes: tuple[Path, Path]) -> None:
    former, home = homes
    assert default_folder() == home
    Journal("c1").append(CHANGE)
    assert Journal("c1").path("orders").is_relative_to(home)
    assert Journal("c1").last_applied("orders") == CHANGE
    assert not former.exists()


def test_a_journal_at_the_former_place_is_read_and_goes_on_at_the_new_one(homes: tuple[Path, Path]) -> None:
    former, _ = homes
    Journal("c1", former).append(CHANGE)
    assert Journal("c1").last_applied("orders") == CHANGE
    Journal("c1").append(LATER)
    assert Journal("c1").entries("orders") == [CHANGE, LATER]
    assert Journal("c1", former).entries("orders") == [CHANGE]


def test_costs_at_the_former_place_are_found(homes: tuple[Path, Path]) -> None:
    former, home = homes
    assert found_at(costs_path("c1")) == home / "costs-c1.json"
    former.mkdir(parents=True)
    (former / "costs-c1.json").touch()
    assert found_at(costs_path("c1")) == former / "costs-c1.json"


def test_a_place_that_can_be_written_is_made_and_left_empty(tmp_path: Path) -> None:
    require_writable(tmp_path / "home" / "costs.json", "Nothing was changed.")
    assert list((tmp_path / "home").iterdir()) == []


def test_a_place_that_cannot_be_made_is_told_with_what_that_means(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(ConfigError, match=r"cannot be written \(Not a directory\)\. Nothing was changed\."):
        require_writable(tmp_path / "home" / "costs.json", "Nothing was changed.")


def test_a_full_disk_is_told_as_such(tmp_path: Path) -> None:
    told = pytest.raises(DiskFull, match=r"No space left for .*\. Nothing was changed\.")
    with told, written_to(tmp_path / "costs.json", "Nothing was changed."):
        raise OSError(errno.ENOSPC, "No space left on device")
