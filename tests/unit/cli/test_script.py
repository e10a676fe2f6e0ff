"""`app.main()`: every command of `stateflow` finds the application of the script that calls it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import stateflow as sf
from stateflow.cli import main as frame
from stateflow.cli.script import with_application

TARGET = "/x/shop.py:app"
BY_TARGET = (
    "run",
    "describe",
    "reset",
    "topics",
    "workers",
    "restore",
    "checkpoint",
    "savepoint",
    "scale",
    "config",
    "doctor",
)
TAKES_NONE = ("up", "down", "status", "jobs")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATEFLOW_BROKERS", "STATEFLOW_CONFIG", "STATEFLOW_UP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def named(*arguments: str, brokers: str | None = None) -> list[str]:
    return with_application(arguments, sf.App("shop", brokers=brokers), TARGET)


def leaves(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(frame.cli))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_that_takes_an_application_is_given_it(path: tuple[str, ...]) -> None:
    line = named(*path, "one", "two", brokers="kafka:1")
    assert line[: len(path)] == list(path)
    parameters = {parameter.name for parameter in COMMANDS[path].params}
    takes = bool(parameters & {"target", "words", "app_id"})
    assert (TARGET in line or line[len(path) : len(path) + 2] == ["--app", "shop"]) == takes
    if path[0] in BY_TARGET:
        assert line == [*path, TARGET, "one", "two"]
    if path[0] in TAKES_NONE:
        assert line == [*path, "one", "two"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("topics plan --json", f"topics plan {TARGET} --json"),
        ("savepoint create before-2 --to x", f"savepoint create {TARGET} before-2 --to x"),
        ("state get totals 47 --json", f"state get --target {TARGET} totals 47 --json"),
        ("state list", "state list --app shop"),
        ("state migrate --dry-run", f"state migrate {TARGET} --dry-run"),
        ("compaction measure --seconds 3", "compaction measure --app shop --brokers kafka:1 --seconds 3"),
        ("compaction measure --brokers b:1", "compaction measure --app shop --brokers b:1"),
        ("doctor", f"doctor {TARGET}"),
        ("compaction calibrate", "compaction calibrate --brokers kafka:1"),
        ("up --detach", "up --detach"),
    ],
)
def test_it_is_named_as_the_command_takes_it(given: str, expected: str) -> None:
    assert named(*given.split(), brokers="kafka:1") == expected.split()


@pytest.mark.parametrize(
    "line",
    [
        "scale status --app other",
        "state get --app=other totals 47",
        "state scan -t other.py:app totals",
        "compaction measure --app other",
        "scale plan --help",
        "scale",
        "--version",
        "fly away",
        "scale fly",
    ],
)
def test_a_line_that_names_one_itself_or_no_command_stays_as_it_is(line: str) -> None:
    assert named(*line.split(), brokers="kafka:1") == line.split()


def test_without_a_broker_chosen_commands_look_for_one_themselves() -> None:
    assert named("compaction", "calibrate") == ["compaction", "calibrate"]
    assert named("compaction", "measure") == ["compaction", "measure", "--app", "shop"]


def test_a_script_runs_commands_of_groups(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(
        "import stateflow as sf\n"
        'app = sf.App("shop", brokers="127.0.0.1:1")\n'
        'app.stream(app.topic("in")).to(app.topic("out"))\n'
        'if __name__ == "__main__":\n    app.main()\n'
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    shown = run("config", "show")
    assert shown.returncode == 0, shown.stderr
    assert "127.0.0.1:1" in shown.stdout
    assert run("scale", "--help").returncode == 0
    assert run("jobs", "list").returncode == 0
    refused = run("fly")
    assert (refused.returncode, "fly" in refused.stderr) == (2, True)


def test_help_and_usage_errors_name_the_script(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(
        "import stateflow as sf\napp = sf.App('shop')\nif __name__ == '__main__':\n    app.main()\n"
    )
    expected = {
        ("--help",): "Usage: python shop.py [",
        ("run", "--help"): "Usage: python shop.py run ",
        ("run", "--no-such-option"): "Run `python shop.py run --help`",
    }
    for arguments, text in expected.items():
        subprocess.run([sys.executable, str(script), *arguments], check=False)
        told = capfd.readouterr()
        assert text in told.out + told.err, arguments
