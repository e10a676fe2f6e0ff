"""Typing `stateflow compaction` commands, and reading what they print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stateflow.cli.main import run


def invoke(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, the JSON objects on stdout, and stdout as it is."""
    code = run(["compaction", *arguments])
    out = capsys.readouterr().out
    return code, [json.loads(line) for line in out.splitlines() if line.startswith("{")], out
