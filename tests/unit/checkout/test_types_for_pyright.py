"""What mypy is shown to infer and to refuse, pyright infers and refuses, too: one run over all of these scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.unit.checkout import (
    test_types_of_calls,
    test_types_of_joins,
    test_types_of_records,
    test_types_of_windows,
)

ROOT = Path(__file__).resolve().parents[3]
PAGES = {
    "calls": test_types_of_calls,
    "joins": test_types_of_joins,
    "records": test_types_of_records,
    "windows": test_types_of_windows,
}

pytestmark = pytest.mark.slow


def test_types_are_inferred_and_misuse_is_an_error(tmp_path: Path) -> None:
    for name, page in PAGES.items():
        (tmp_path / f"{name}.py").write_text(page.SCRIPT)
    config = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    variables = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    wrong: dict[str, set[int]] = defaultdict(set)
    shown: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in json.loads(done.stdout)["generalDiagnostics"]:
        name, line = Path(row["file"]).stem, row["range"]["start"]["line"] + 1
        if row["severity"] == "error":
            wrong[name].add(line)
        else:
            shown[name].append((line, row["message"].partition('" is "')[2].rstrip('"')))
    for name, page in PAGES.items():
        lines = page.SCRIPT.count("\n")
        assert wrong[name] == set(range(lines - page.MISUSES + 1, lines + 1)), done.stdout
        assert [type_ for _, type_ in sorted(shown[name])] == [_as_shown(type_) for type_ in page.REVEALED]


def _as_shown(type_: str) -> str:
    """A type that mypy writes with modules, and a named tuple with its fields, as pyright writes it."""
    type_ = re.sub(r"tuple\[[^\[]*, fallback=(.*\])\]", r"\1", type_)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", type_)
