"""The command line's frame: nouns found, errors turned into sentences and exit codes."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click
import pytest

from stateflow.cli import main as frame
from stateflow.cli.output import human_bytes
from stateflow.errors import DiskFull, StateflowError, TopicMissing

CLI = Path(__file__).resolve().parents[3] / "cli"


def raising(error: BaseException) -> click.Command:
    def callback() -> NoReturn:
        raise error

    return click.Command(
        "failing", params=[click.Option(["--json"], is_flag=True, expose_value=False)], callback=callback
    )


def test_an_error_is_a_sentence_on_stderr_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    command = raising(TopicMissing("There is no topic `a`.", action="Create it.", topic="a"))
    assert frame.run([], command) == 11
    shown = capsys.readouterr()
    assert shown.err == "error: There is no topic `a`. What to do: Create it.\n"
    assert shown.out == ""


def test_with_json_the_error_is_an_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    command = raising(TopicMissing("There is no topic `a`.", action="Create it.", topic=Path("a")))
    assert frame.run(["--json"], command) == 11
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "error": "TopicMissing",
        "message": "There is no topic `a`.",
        "action": "Create it.",
        "exit_code": 11,
        "fields": {"topic": "a"},
    }
    assert shown.err == ""


def test_ctrl_c_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    command = raising(KeyboardInterrupt())
    assert frame.run([], command) == 130
    assert "Stopped by the user" in capsys.readouterr().err


def test_sigterm_is_as_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    cleaned: list[bool] = []

    def callback() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            cleaned.append(True)

    assert frame.run([], click.Command("waiting", callback=callback)) == 130
    assert cleaned, "what a command has begun is put in order"
    assert "Stopped by the user" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_stays_ignored_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        told = click.Command("waiting", callback=lambda: signal.raise_signal(signal.SIGTERM))
        assert frame.run([], told) == 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert capsys.readouterr().err == ""


def test_a_bug_keeps_its_traceback() -> None:
    command = raising(AssertionError("a bug"))
    with pytest.raises(AssertionError, match="a bug"):
        frame.run([], command)


@pytest.mark.parametrize("arguments", [["no-such-noun"], ["--no-such-option"], ["up", "--port", "seventy"]])
def test_a_mistyped_command_line_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.run(arguments) == 2
    assert "--help`." in capsys.readouterr().err
    assert frame.run([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_every_noun_file_offers_a_command_with_help() -> None:
    present = [noun for noun in frame.NOUNS if (CLI / f"{noun}.py").exists()]
    assert {"up", "down", "status", "doctor"} <= set(present)
    for noun in present:
        command = importlib.import_module(f"stateflow.cli.{noun}").command
        assert isinstance(command, click.Command)
        assert command.help, noun


def test_help_imports_no_noun() -> None:
    script = (
        "import sys; from stateflow.cli.main import run; run(['--help']);"
        "loaded = [m for m in sys.modules if m.startswith('stateflow.cli.')];"
        "sys.exit(set(loaded) != {'stateflow.cli.entry', 'stateflow.cli.main'} or 'email' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout


def test_exit_codes_are_not_reused_for_usage() -> None:
    assert frame.USAGE_EXIT_CODE == 2
    assert StateflowError.exit_code == 1


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (37 << 20, "37 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("arguments", "former"),
    [(["scale", "--help"], "absorb"), (["repair", "--help"], "--end-cut")],
)
def test_a_former_name_is_taken_and_not_shown(
    arguments: list[str], former: str, capsys: pytest.CaptureFixture[str]
) -> None:
    noun, _ = arguments
    assert frame.run(arguments) == 0
    assert former not in capsys.readouterr().out
    assert frame.run([noun, former, "--help"]) == 0


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """All that can be typed, by what is typed."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, name
        yield from commands(found, f"{path} {name}")


def test_every_command_can_answer_in_json() -> None:
    lacking = [
        path
        for path, command in commands(frame.cli, "stateflow")
        if not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert lacking == []


PRINT_LINES = {
    f"stateflow compaction {name}" for name in ("measure", "model", "recommend", "apply", "rollback", "watch")
}
PRINT_ARRAYS = {
    "stateflow config show",
    "stateflow jobs list",
    "stateflow topics apply",
    "stateflow topics plan",
}


def test_help_says_how_many_json_values_there_are() -> None:
    said = {
        path: str(next(option for option in command.params if "--json" in option.opts).to_info_dict()["help"])
        for path, command in commands(frame.cli, "stateflow")
    }
    assert {path for path, text in said.items() if "one object per line" in text} == PRINT_LINES
    assert {path for path, text in said.items() if "one JSON array" in text} == PRINT_ARRAYS
    assert {
        path for path, text in said.items() if "one JSON object" in text
    } == said.keys() - PRINT_LINES - PRINT_ARRAYS


def test_an_output_that_is_full_is_a_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        program = [sys.executable, "-m", "stateflow.cli", "jobs", "list"]
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == DiskFull.exit_code
    assert done.stderr.startswith("error: No space left")
    assert len(done.stderr.splitlines()) == 1


def test_a_terminal_that_lacks_a_sign_is_shown_its_number(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stateflow.cli", "state", "list", "--state-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "keys \\u2248" in done.stdout
