"""Live logs that were watched in November 2026, and what the model says of them: 40 random ones, on two brokers.

Twenty share a broker of Kafka 4.3 for 75 s: with a backoff of 15 s, a buffer of 128 MiB and both compilers, and with
5 s, 4 MiB and the client compiler only. The machine was busy, so that cleaner threads waited twice as long as they ran.
Terms that the model lacked were found with these logs; what they are worth comes from calibrations, not from here.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from stateflow.compaction.calibration.default_costs import CLIENT_COMPILER
from stateflow.compaction.calibration.pace import at_pace
from stateflow.compaction.model.costs import Costs, Pace
from stateflow.lab.compaction.cycles import CleanerUse
from stateflow.lab.compaction.live_cells import LiveOptions
from stateflow.lab.compaction.live_result import expected_of, seen_by_passes

RECORDED = Path(__file__).parent / "live_logs"


@pytest.mark.parametrize("part", [1, 2])
def test_what_live_logs_showed_is_expected_of_them(part: int) -> None:
    seen = json.loads((RECORDED / f"part-{part}.json").read_text())
    batch = LiveOptions(cells=60, seed=7).batches(stock=False)[part - 1]
    costs = CLIENT_COMPILER if seen["client_compiler"] else Costs()
    loop = seen["pace_seconds"]  # memory was not timed then
    costs = at_pace(costs, Pace(loop, loop, costs.pace.memory_seconds))
    use = CleanerUse(**seen["use"])
    loads = [seen_by_passes(cell, batch.cleaner, costs) for cell in batch.cells]
    seconds = seen["seconds"] - seen["warm_seconds"]
    expected = expected_of(batch.cells, loads, batch.cleaner, costs, seconds, use)
    largest, mean = zip(*seen["logs"], strict=True)
    pairs = zip(expected, largest, strict=True)
    assert statistics.fmean(abs(one.shown.size_max_bytes / size - 1) for one, size in pairs) <= 0.05
    pairs = zip(expected, mean, strict=True)
    assert statistics.fmean(abs(one.shown.size_mean_bytes / size - 1) for one, size in pairs) <= 0.08
    cores = sum(one.cores for one in expected) + costs.looking_cores(batch.cleaner)
    assert cores == pytest.approx(use.cores, rel=0.25)
