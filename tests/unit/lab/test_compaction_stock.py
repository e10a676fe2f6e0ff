"""The stock broker's part of the study: what runs, and what its figures say."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace

import pytest

from stateflow.compaction.advice.alternatives import fitting_cleaner
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.calibration.default_costs import CLIENT_COMPILER, default_costs
from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.settings.knobs import knobs_for
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.lab.compaction.plan import StudyOptions, quick_options
from stateflow.lab.compaction.random_cells import KINDS
from stateflow.lab.compaction.stock import _asked, _bounded, best_by_hand, live_cells
from stateflow.lab.compaction.stock_page import stock_section
from stateflow.lab.compaction.stock_result import STOCK, StockCell, StockFigures, StockObjective

CELL = StockCell(
    name="best by hand",
    policy=Policy(segment_ms=1000, dirty_ratio=0.01),
    cleaner=STOCK,
    size_max_bytes=9e6,
    size_mean_bytes=6e6,
    expected_bytes=9.9e6,
    promised_bytes=10e6,
    cleaner_cores=0.012,
    uncalibrated_cores=0.015,
    calibrated_cores=0.0132,
    late=False,
    slowness=1.1,
)


def figures(*cells: StockCell) -> StockFigures:
    tuned, better = replace(CELL, cleaner_cores=0.012), replace(CELL, cleaner_cores=0.003)
    disk = StockObjective("disk bytes", 20e6, 19e6, CELL)
    return StockFigures(cells, 12e6, CELL, tuned, better, True, (disk,))


def test_the_summary_counts_broken_bounds_ratios_and_errors() -> None:
    broken = replace(CELL, name="zipf 1", cleaner_cores=None, size_max_bytes=10.1e6)
    late = replace(broken, name="zipf 2", late=True)
    found = figures(CELL, broken, late).summary()
    assert (found["cells"], found["late_cells"], found["bound_broken"]) == (3, 1, 1)
    assert found["cpu_ratio_to_hand"] == pytest.approx(1.0)
    assert found["cpu_ratio_to_hand_with_broker_settings"] == pytest.approx(0.25)
    assert found["errors_undisturbed"]["cells"] == 2
    assert found["errors"]["cpu_uncalibrated_mean_abs"] == pytest.approx(0.25)
    assert found["errors"]["cpu_calibrated_mean_abs"] == pytest.approx(0.1)
    assert found["errors_undisturbed"]["size_mean_abs"] == pytest.approx((0.1 + abs(9.9 / 10.1 - 1)) / 2)
    assert found["hand"]["held"]
    assert found["objectives"] == [{"objective": "disk bytes", "bound": 20e6, "measured": 19e6, "held": True}]
    json.dumps(found, allow_nan=False)


def test_the_page_shows_policies_and_logs() -> None:
    shown = stock_section(figures(CELL, replace(CELL, name="zipf <1>")))
    assert "zipf &lt;1&gt;" in shown
    assert "15 s, 128 MiB" in shown
    assert stock_section(None) == ""


def test_the_full_study_checks_two_hundred_logs_and_the_quick_one_a_handful() -> None:
    assert StudyOptions().stock.cells >= 200
    assert 1 <= quick_options().stock.cells <= 10
    knobs = knobs_for()
    cells = list(live_cells(1, 200, 100.0, 25.0))
    assert all(knobs["segment.ms"].allows(cell.policy.segment_ms) for cell in cells)
    assert len({cell.policy for cell in cells}) > 150
    assert set(Counter(cell.name.split()[0] for cell in cells)) == set(KINDS)


def test_the_policies_compared_are_given_the_same_bound() -> None:
    stream = Stream(keys=1000, rates=(RateStep(0.0, 60.0),), zipf_exponent=None, value_bytes=(300, 700))
    known, objective = _asked(stream)
    bound = known.restore.records_within(objective.restore_within_seconds)
    by_hand = best_by_hand(known, objective, CLIENT_COMPILER)
    hand = predict(known.workload(), by_hand, STOCK, CLIENT_COMPILER, worst=True)
    assert hand.records_max <= bound
    tuned = recommend(known, objective=objective, costs=CLIENT_COMPILER, with_alternatives=False)
    assert tuned.reachable
    assert tuned.best.cleaner_cores + tuned.best.roll_cores <= 1.02 * hand.cores
    better = replace(known, cleaner=fitting_cleaner(known))
    with_broker = recommend(better, objective=objective, costs=CLIENT_COMPILER, with_alternatives=False)
    looking = CLIENT_COMPILER.looking_cores(better.cleaner)
    assert with_broker.best.cleaner_cores + with_broker.best.roll_cores + looking < hand.cores / 3


def test_costs_by_default_follow_the_compiler_of_a_local_broker() -> None:
    assert default_costs(None) == Costs()
    assert default_costs(os.getpid()) == Costs()
    stock = CleanerSettings()
    assert CLIENT_COMPILER.fixed_seconds(stock) > 3 * Costs().fixed_seconds(stock)


def test_a_bound_on_cpu_buys_the_smallest_log_and_one_on_disk_is_kept() -> None:
    stream = Stream(keys=1000, rates=(RateStep(0.0, 60.0),), zipf_exponent=None, value_bytes=(300, 700))
    known, objective = _asked(stream)
    bounded = {name: (wanted, policy) for name, wanted, policy in _bounded(known, objective, CLIENT_COMPILER)}
    assert set(bounded) == {"--disk", "--cpu"}
    wanted, policy = bounded["--cpu"]
    outcome = predict(known.workload(), policy, STOCK, CLIENT_COMPILER)
    assert wanted.cpu_cores_max is not None
    assert outcome.cores <= wanted.cpu_cores_max
    cheapest = recommend(known, objective=replace(wanted, cpu_cores_max=None), costs=CLIENT_COMPILER).best
    assert outcome.records_max <= cheapest.records_max
    wanted, policy = bounded["--disk"]
    assert wanted.disk_bytes_max is not None
    assert predict(known.workload(), policy, STOCK, CLIENT_COMPILER).disk_max_bytes <= wanted.disk_bytes_max
