"""A script under mypy: what is inferred in it, and that its last lines are errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def check_script(tmp_path: Path, script: str, revealed: Sequence[str], misuses: int) -> None:
    """Every ``reveal_type`` of the script shows what is given; its last lines, and no others, are errors."""
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json"]
    command += ["--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), "script.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    told = [row for row in told if row["file"] == "script.py"]
    assert told, done.stderr
    shown = [row["message"] for row in told if row["message"].startswith("Revealed type")]
    assert [message.partition('"')[2].rstrip('"') for message in shown] == list(revealed)
    lines = script.count("\n")
    wrong = {row["line"] for row in told if row["severity"] == "error"}
    assert wrong == set(range(lines - misuses + 1, lines + 1)), done.stdout
