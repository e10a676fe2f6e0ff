"""Results depend on the log alone: random logs in any batches and through crashes give what record by record gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateflow.cli.main import run
from stateflow.lab.time.study import run_cases

pytestmark = pytest.mark.slow


@given(seed=st.integers(0, 1_000_000), number=st.integers(0, 6))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_batches_and_any_crashes_give_what_record_by_record_gives(seed: int, number: int) -> None:
    report = run_cases(seed, [number], None)
    assert report.different == 0, report.failed


def test_without_jars_the_study_says_what_it_left_out(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STATEFLOW_CACHE", str(tmp_path))
    monkeypatch.setenv("STATEFLOW_OFFLINE", "1")
    code = run(["study", "time", "--json", "--logs", "3", "--seed", "3", "--processes", "1"])
    shown = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert code == 0
    assert (shown["logs"], shown["compared_with_kafka_streams"]) == (3, 0)
    assert "TopologyTestDriver" in shown["left_out"][0]
    assert "STATEFLOW_OFFLINE" in shown["left_out"][0]
