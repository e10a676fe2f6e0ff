"""The study of chaos as the gate runs it: few rounds, with real worker processes on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateflow.cli.main import run
from stateflow.testing.broker import TestBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(420)]  # most of it is waiting


def test_a_quick_study_finds_nothing(
    broker: TestBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--quick", "--seed", "0", "--at", broker.bootstrap, "--folder", str(tmp_path), "--json"]
    code = run(["study", "chaos", *arguments])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["findings"] == []
    bad = ("different", "lost", "duplicated", "ended", "stuck", "refused", "crashed")
    assert {found[name] for name in bad} == {0}
    assert code == 0
    assert found["events"] == {"kill-worker": 1, "scale": 1}
    assert found["exit_codes"]["scale start"]["0"] == 1
    assert found["results"] > 0
    (place,) = tmp_path.iterdir()
    assert "is process" in (place / "application.log").read_text()
