"""What the README shows is there: its application builds, and its command lines name real commands and options."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from stateflow.app import load
from stateflow.cli.main import cli

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def command_lines() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("stateflow ")]


def test_the_application_builds(tmp_path: Path) -> None:
    (source,) = blocks("python")
    file = tmp_path / "readme_shop.py"
    file.write_text(source)
    topology = load(f"{file}:app").topology()
    assert {stage.name for stage in topology.stages} == {"payments", "by-shop", "limit"}
    assert "limit-total" in {store.name for store in topology.stores}
    assert {store.name for store in topology.stores} >= {
        "limit-recent",
        "limit-by_shop",
        "payments-per-minute",
    }


@pytest.mark.slow
def test_the_application_passes_a_strict_type_checker(tmp_path: Path) -> None:
    (source,) = blocks("python")
    (tmp_path / "shop.py").write_text(source)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    command += ["--cache-dir", str(tmp_path / "cache"), "shop.py"]
    variables = {"MYPYPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_on_images_say_where_they_are() -> None:
    """The application's settings do not, and without both they end with exit code 2."""
    lines = [line for line in command_lines() if line.startswith("stateflow checkpoint ")]
    assert len(lines) >= 3
    assert all("--images " in line for line in lines), lines


@pytest.mark.parametrize("line", command_lines())
def test_a_command_line_can_be_typed(line: str) -> None:
    _, *words = shlex.split(line)
    command: click.Command | None = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
        assert command is not None, line
    assert isinstance(command, click.Command)
    parsed = command.make_context(command.name, words, resilient_parsing=False)
    assert parsed.params
