"""The study of Linear Road with real worker processes: a small load in real time, one of them killed."""

from __future__ import annotations

import pytest

from stateflow.lab.linear_road.generator import Load
from stateflow.lab.linear_road.study import Drive, run_drive


@pytest.mark.broker
@pytest.mark.slow
def test_a_small_load_is_answered_exactly_though_a_worker_is_killed() -> None:
    result = run_drive(Drive(Load(0.03, minutes=3), pace=30, disturbances=((0.33, None),)))
    assert result.comparison.is_exact, result.comparison
    assert result.comparison.right > 2_000
    assert len(result.latencies) == result.comparison.right
    assert [what for what, _ in result.events] == ["kill -9"]
    assert result.latency_seconds(50) > 0
    assert result.cpu_seconds > 0
