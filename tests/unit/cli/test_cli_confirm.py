"""What is asked before something is deleted, and what counts as a yes."""

from __future__ import annotations

import io

import click
import pytest

from stateflow.cli.confirm import confirm
from stateflow.cli.main import run


def asked(monkeypatch: pytest.MonkeyPatch, answer: str, *, yes: bool = False, as_json: bool = False) -> int:
    """The exit code of a command that deletes, with this on its standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    return run([], click.Command("delete", callback=lambda: confirm("Delete it?", yes=yes, as_json=as_json)))


def test_a_yes_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(monkeypatch, "y\n") == 0
    assert capsys.readouterr().out.startswith("Delete it? [y/N]: ")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""], ids=["no", "none", "nobody there"])
def test_all_else_changes_nothing_and_names_the_option(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch, answer) == 130
    assert capsys.readouterr().err == (
        "error: Nothing was done. What to do: give --yes to go ahead without being asked.\n"
    )


@pytest.mark.parametrize(("yes", "exit_code"), [(True, 0), (False, 130)])
def test_programs_are_not_asked(
    yes: bool, exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch, "y\n", yes=yes, as_json=True) == exit_code
    assert capsys.readouterr().out == ""


def test_ctrl_c_is_told_as_such(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupting:
        def readline(self) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupting())
    command = click.Command("delete", callback=lambda: confirm("Delete it?", yes=False, as_json=False))
    assert run([], command) == 130
    assert "Stopped by the user" in capsys.readouterr().err
