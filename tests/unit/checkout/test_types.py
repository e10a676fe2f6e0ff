"""What type checkers infer of each verb, and what they refuse: mypy and pyright over the scripts in `typed/`.

A page has a script, the type of each of its ``reveal_type``, and how many of its last lines are misuses: these, and no
other lines, are errors.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.checkout.typed import calls, joins, operators, records, streams, windows

ROOT = Path(__file__).resolve().parents[3]
PAGES = {
    "calls": calls,
    "joins": joins,
    "operators": operators,
    "records": records,
    "streams": streams,
    "windows": windows,
}

pytestmark = pytest.mark.slow


class Told(NamedTuple):
    """What a type checker said of a script: lines with errors, and what it revealed, by line."""

    wrong: set[int]
    shown: list[tuple[int, str]]

    @property
    def revealed(self) -> list[str]:
        """The types in the order of the script."""
        return [type_ for _, type_ in sorted(self.shown)]


def test_mypy_infers_types_and_refuses_misuse(tmp_path: Path) -> None:
    write_pages(tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json"]
    command += ["--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), *scripts()]
    done = run(command, tmp_path, {"MYPYPATH": str(ROOT), "PATH": ""})
    told: dict[str, Told] = defaultdict(lambda: Told(set(), []))
    for row in map(json.loads, done.stdout.splitlines()):
        of_page = told[Path(row["file"]).stem]
        if row["severity"] == "error":
            of_page.wrong.add(row["line"])
        elif row["message"].startswith("Revealed type"):
            of_page.shown.append((row["line"], row["message"].partition('"')[2].rstrip('"')))
    assert set(told) == set(PAGES), done.stderr
    for name, page in PAGES.items():
        assert told[name].wrong == misuses(page.SCRIPT, page.MISUSES), (name, done.stdout)
        assert told[name].revealed == list(page.REVEALED), name


def test_pyright_infers_and_refuses_the_same(tmp_path: Path) -> None:
    write_pages(tmp_path)
    config = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = run(command, tmp_path, {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    told: dict[str, Told] = defaultdict(lambda: Told(set(), []))
    for row in json.loads(done.stdout)["generalDiagnostics"]:
        of_page, line = told[Path(row["file"]).stem], row["range"]["start"]["line"] + 1
        if row["severity"] == "error":
            of_page.wrong.add(line)
        else:
            of_page.shown.append((line, row["message"].partition('" is "')[2].rstrip('"')))
    for name, page in PAGES.items():
        assert told[name].wrong == misuses(page.SCRIPT, page.MISUSES), (name, done.stdout)
        assert told[name].revealed == [as_pyright_writes(type_) for type_ in page.REVEALED], name


def write_pages(folder: Path) -> None:
    for name, page in PAGES.items():
        (folder / f"{name}.py").write_text(page.SCRIPT)


def scripts() -> list[str]:
    return [f"{name}.py" for name in PAGES]


def run(command: list[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=280, check=False
    )


def misuses(script: str, count: int) -> set[int]:
    lines = script.count("\n")
    return set(range(lines - count + 1, lines + 1))


def as_pyright_writes(type_: str) -> str:
    """A type that mypy writes with modules, and a named tuple with its fields."""
    type_ = re.sub(r"tuple\[[^\[]*, fallback=(.*\])\]", r"\1", type_)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", type_)
