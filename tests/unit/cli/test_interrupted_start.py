"""Ctrl-C while a command's modules are imported: one line, exit code 130, no trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stateflow.cli import main as frame
from stateflow.interrupts import stopped_by_user

ROOT = Path(__file__).parents[3]
_WHEN_IMPORTED = """
import importlib.abc, os, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)
        return None

sys.meta_path.insert(0, Interrupting())
from stateflow.cli.entry import main
main()
"""
IMPORTS = ["click", "stateflow.failpoints", "stateflow.cli.savepoint", "stateflow.catalog.control"]


def interrupted(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, interrupted when it begins to import a module."""
    program = [sys.executable, "-c", _WHEN_IMPORTED.format(name=name), *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)


@pytest.mark.parametrize("name", IMPORTS)
def test_it_ends_with_one_line(name: str) -> None:
    ended = interrupted(name, "savepoint", "list", "--app", "x")
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == f"error: {stopped_by_user()}\n"


def test_for_programs_it_is_the_object_of_every_error(capsys: pytest.CaptureFixture[str]) -> None:
    ended = interrupted("click", "savepoint", "list", "--app", "x", "--json")
    frame.report(stopped_by_user(), as_json=True)
    assert json.loads(ended.stdout) == json.loads(capsys.readouterr().out)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_a_command_that_has_begun_is_interrupted_by_an_exception() -> None:
    ended = interrupted("stateflow.lab.commands.time", "study", "time", "--help")
    assert ended.returncode == 130
    assert ended.stderr.strip() == f"error: {stopped_by_user()}"
