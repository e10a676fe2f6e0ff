"""Which of the two is in use, and why; no library is believed before it has been checked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stateflow.native import building
from stateflow.native.library import Unusable
from stateflow.native.loading import VARIABLE, loaded, native_state

SCRIPT = (
    "import json; from stateflow.native.loading import native_state; state = native_state();"
    " print(json.dumps([state.in_use, state.why]))"
)


def told(choice: str | None) -> tuple[int, str]:
    """What another process says with this choice."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if choice is not None:
        environment[VARIABLE] = choice
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout or done.stderr


def test_it_can_be_switched_off() -> None:
    code, output = told("0")
    assert code == 0
    assert json.loads(output) == [False, "STATEFLOW_NATIVE is 0"]


def test_another_choice_is_an_error() -> None:
    code, output = told("perhaps")
    assert code == 1
    assert "set it to one of auto, 0, 1" in output


def test_who_must_have_it_has_it_or_an_error() -> None:
    code, output = told("1")
    if building.library_path().exists():
        assert (code, json.loads(output)[0]) == (0, True)
    else:
        assert code == 1
        assert "python -m stateflow.native" in output


def test_why_is_told() -> None:
    state = native_state()
    assert state.in_use == (state.core is not None)
    assert state.why


def test_a_library_that_is_none_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="was not built"):
        loaded(tmp_path / "missing.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(Unusable, match="cannot be loaded"):
        loaded(tmp_path / "text.so")


def test_a_library_of_other_sources_has_another_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = building.library_path()
    shutil.copytree(building.SOURCE, tmp_path / "source")
    monkeypatch.setattr(building, "SOURCE", tmp_path / "source")
    assert building.library_path() == before
    with (tmp_path / "source" / "core.c").open("a") as file:
        file.write("/* changed */\n")
    assert building.library_path() != before


def test_without_a_compiler_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "LIBRARIES", tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(building.NotBuilt, match="no C compiler"):
        building.build()
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "LIBRARIES", tmp_path)
    failing = [sys.executable, "-c", "import sys; sys.exit('what is wrong')"]
    monkeypatch.setattr(building, "compiler", lambda target="": failing)
    with pytest.raises(building.NotBuilt, match="what is wrong"):
        building.build()
    assert list(tmp_path.iterdir()) == []
