"""`stateflow jobs`, for programs, and without doing anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateflow.cli.main import run
from stateflow.errors import ConfigError
from stateflow.spark.submit import Submission, template


def told(capsys: pytest.CaptureFixture[str], *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    assert run(["jobs", *arguments]) == exit_code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_template_is_shown_with_what_is_known_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, "show", "snapshot", "--json")
    assert shown["source"] == template("snapshot").source
    assert shown["name"] == "snapshot"


def test_a_copy_is_only_told_of_at_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    assert told(capsys, "new", "snapshot", str(file), "--dry-run", "--json")["dry_run"]
    assert not file.exists()
    assert told(capsys, "new", "snapshot", str(file), "--json") == {
        "job": "snapshot",
        "file": str(file),
        "dry_run": False,
    }
    assert file.read_text() == template("snapshot").source
    refused = ["new", "snapshot", str(file), "--dry-run", "--json"]
    assert told(capsys, *refused, exit_code=ConfigError.exit_code)["error"] == "ConfigError"


def test_a_job_of_no_name_leaves_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    told(capsys, "new", "nothing", str(file), "--json", exit_code=ConfigError.exit_code)
    assert not file.exists()


def test_a_submission_is_told_as_a_command_line_and_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = told(capsys, "submit", "--dry-run", "--json", "snapshot", "--app", "shop")
    assert planned["command"][-2:] == ["--app", "shop"]
    monkeypatch.setattr(Submission, "run", lambda _: 3)
    assert told(capsys, "submit", "--json", "snapshot", "--app", "shop", exit_code=3) == {
        "command": planned["command"],
        "dry_run": False,
        "exit_code": 3,
    }
