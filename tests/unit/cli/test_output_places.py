"""Files and folders that commands are to write are looked at before anything else is done."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stateflow.cli.compaction_session import saved_measurements
from stateflow.cli.main import run
from stateflow.cli.options import OutputFile, OutputFolder
from stateflow.errors import ConfigError
from stateflow.lab.commands import bench, chaos, endurance, faults, linear_road, recovery
from stateflow.lab.commands import compaction as compaction_study
from stateflow.output_places import writing

_NOBODY = "127.0.0.1:1"
"""A command that asked a broker first would end with another exit code, late."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a file in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATEFLOW_BROKERS", _NOBODY)
    (tmp_path / "file").write_text("mine")
    return tmp_path


WRITING = [
    ["compaction", "report", "--topic", "t", "--restore-within", "9s", "--out"],
    ["jobs", "new", "snapshot"],
    ["run", "app.py:app", "--runner", "spark", "--progress-file"],
]
WRITING_FOLDERS = [
    ["compaction", "watch", "--topic", "t", "--restore-within", "9s", "--log"],
    ["up", "--data"],
]


@pytest.mark.parametrize("arguments", WRITING, ids=lambda words: " ".join(words[:2]))
def test_a_folder_that_is_missing_is_named_at_once(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "nowhere/new.txt", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["message"].endswith("nowhere/new.txt cannot be written (there is no folder nowhere).")
    assert told["action"].startswith("make the folder first")


@pytest.mark.parametrize("arguments", [*WRITING, *WRITING_FOLDERS], ids=lambda words: " ".join(words[:2]))
def test_a_place_below_a_file_is_refused_and_nothing_is_left(
    arguments: list[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "file/new.txt", "--json"]) == 2
    assert "file is a file" in json.loads(capsys.readouterr().out)["message"]
    assert [path.name for path in place.iterdir()] == ["file"]


def test_the_option_is_named_and_an_old_file_stays_as_it_is(place: Path) -> None:
    assert OutputFile().convert("file", None, None) == Path("file")
    assert (place / "file").read_text() == "mine"
    assert OutputFile().convert("new", None, None) == Path("new")
    assert OutputFile(makes_folder=True).convert("a/b/new", None, None) == Path("a/b/new")
    assert OutputFolder().convert("a/b", None, None) == Path("a/b")
    assert [path.name for path in place.iterdir()] == ["file"], "looking leaves nothing behind"


def test_a_device_and_a_pipe_are_written_to_as_they_are(place: Path) -> None:
    os.mkfifo(place / "pipe")
    assert OutputFile().convert("pipe", None, None) == Path("pipe")
    assert OutputFile().convert("/dev/null", None, None) == Path("/dev/null")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (bench.command, "--save"),
        (bench.command, "--update-band"),
        (compaction_study.command, "--folder"),
        (chaos.command, "--folder"),
        (endurance.command, "--folder"),
        (faults.command, "--state-dir"),
        (linear_road.command, "--page"),
        (recovery.command, "--page"),
    ],
)
def test_studies_and_benchmarks_look_at_their_places_too(command: object, option: str) -> None:
    params = {name: param for param in command.params for name in param.opts}  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=f"{option}: file/new"):
        params[option].type.convert("file/new", params[option], None)


def test_what_fails_only_when_it_is_written_is_a_sentence_too(place: Path) -> None:
    said = r"--out: .*file/new cannot be written \(.*file is a file\)"
    with pytest.raises(ConfigError, match=said), writing(place / "file" / "new", "--out"):
        (place / "file" / "new").write_text("")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"{", b"[1]", b"{}"])
def test_a_saved_measurement_that_is_none(content: bytes, place: Path) -> None:
    (place / "saved").write_bytes(content)
    with pytest.raises(ConfigError, match=r"saved is (no measurement|empty)") as raised:
        saved_measurements(place / "saved")
    assert "measure --json" in str(raised.value.action)


def test_a_home_of_brokers_that_is_a_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATEFLOW_HOME", str(place / "file"))
    assert run(["up", "--json"]) == 2
    assert "STATEFLOW_HOME" in json.loads(capsys.readouterr().out)["message"]
