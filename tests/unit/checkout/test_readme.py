"""What the README shows is there: its application builds, and its command lines name real commands and options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from stateflow.app import load
from stateflow.cli.main import cli

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


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
