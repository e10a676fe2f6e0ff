"""The study's figures and its page, from made-up results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import pytest

from stateflow.cli.main import run
from stateflow.compaction.calibration.fit import Calibration
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.watch import Decision
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.streams import RateStep
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.connectors.broker.filelock import file_lock
from stateflow.errors import SetupError, StateCorrupt
from stateflow.lab.compaction.bench import Bench
from stateflow.lab.compaction.page import study_page
from stateflow.lab.compaction.plan import StudyOptions, grid, loop_stream, quick_options, setups
from stateflow.lab.compaction.result import CellFigures, LoopFigures, ObjectiveFigures, Study, TrimFigures
from stateflow.lab.compaction.trimmed import TrimmedResult
from stateflow.log.base import Cluster

CELL = CellFigures(
    setup="fold-left-1p",
    name="100ms-0.01",
    ours=False,
    policy=Policy(segment_ms=100, dirty_ratio=0.01),
    size_mean_bytes=5e6,
    size_max_bytes=6e6,
    size_max_spread=0.0,
    cleaner_cores=0.6,
    request_cores=0.05,
    broker_cores=0.7,
    cleaner_wait_cores=0.01,
    records_end=10_000,
    live_end=9000,
    record_bytes=571.0,
    restore_seconds=0.3,
    restore_spread=0.1,
    late_seconds=0.0,
    simulated_records_max=10_000,
    simulated_size_mean_bytes=5e6,
    simulated_size_max_bytes=5.7e6,
    simulated_cleaner_cores=0.66,
    simulated_cleaner_cores_uncorrected=0.6,
    slowness=1.1,
    closed_size_max_bytes=5.8e6,
    closed_cleaner_cores=0.7,
    sizes=((0.0, 0), (1.0, 3_000_000), (2.0, 6_000_000)),
)
OURS = replace(CELL, name="tuned for 1.3x live", ours=True, cleaner_cores=0.15, simulated_cleaner_cores=0.15)
OBJECTIVE = ObjectiveFigures(
    setup="fold-left-1p",
    factor=1.3,
    bound_bytes=6.5e6,
    restore_seconds=0.4,
    grid_best="100ms-0.01",
    grid_cleaner_cores=0.6,
    grid_broker_cores=0.7,
    ours_cleaner_cores=0.15,
    ours_broker_cores=0.2,
    ours_size_max_bytes=6e6,
    ours_restore_seconds=0.3,
    ours_restore_predicted_seconds=0.31,
    with_buffer_cleaner_cores=0.06,
    held=True,
)
DECISION = Decision(
    1000, "change", "the bound would <not> hold", 1, 1.0, 3000.0, 1.0, 0.3, {"segment.ms": "23"}
)
LOOP = LoopFigures("loop watched", 9e6, 0.01, 8e6, 0.2, 1, ((0.0, 1), (1.0, 8_000_000)), (DECISION,))


TRIM = TrimFigures(
    "fold-left-1p",
    1.3,
    TrimmedResult("image + trim", 1e6, 2e6, 0.05, 0.004, 0.1, 1.0, 0.2, 2700, ((0.0, 1),)),
    log_records_bound=2700.0,
)


def study(*cells: CellFigures) -> Study:
    return Study(
        options=quick_options(),
        broker="4.3",
        cleaner=CleanerSettings(),
        calibration=Calibration(Costs(), CleanerSettings(), {"mixed": 0.02}, (), 1.0),
        cells=cells,
        objectives=(OBJECTIVE, replace(OBJECTIVE, factor=1.1, grid_best=None, grid_cleaner_cores=None)),
        trims=(),
        loops=(LOOP,),
    )


def test_the_summary_has_ratios_errors_and_the_loop() -> None:
    found = study(CELL, OURS).summary()
    assert found["ratio_at_tightest"] == pytest.approx(0.25)
    assert found["objectives"][0]["ratio_with_fitting_buffer"] == pytest.approx(0.1)
    assert found["loop_share_over_bound"] == 0.01
    assert found["prediction_errors"]["size_mean_abs"] == pytest.approx(0.05)
    assert found["prediction_errors"]["cleaner_cpu_max_abs"] == pytest.approx(0.1)
    json.dumps(found, allow_nan=False)


def test_a_cell_whose_cleaner_waited_for_a_core_counts_apart() -> None:
    held_up = replace(CELL, name="held up", cleaner_wait_cores=0.3, simulated_cleaner_cores=1.2)
    found = study(OURS, held_up).summary()
    assert found["disturbed_cells"] == ["held up"]
    assert found["prediction_errors"]["cells"] == 2
    assert found["prediction_errors_undisturbed"]["cells"] == 1
    assert found["prediction_errors_undisturbed"]["cleaner_cpu_max_abs"] == pytest.approx(0.0)


def test_a_cell_measured_while_the_machine_ran_faster_counts_apart() -> None:
    found = study(OURS, replace(CELL, name="fast", slowness=0.66)).summary()
    assert found["disturbed_cells"] == ["fast"]


def test_a_log_of_many_tombstones_is_not_held_by_its_bytes_alone() -> None:
    assert CELL.holds(bound_bytes=6.5e6, records_max=12_000)
    assert not CELL.holds(bound_bytes=6.5e6, records_max=9500)
    assert not CELL.holds(bound_bytes=5.5e6, records_max=12_000)


def test_the_page_stands_alone_and_escapes_what_it_shows() -> None:
    page = study_page(study(CELL, OURS))
    assert page.startswith("<!doctype html>")
    assert "&lt;not&gt;" in page
    for forbidden in ("<script", "http://", "https://", "<link", "@import"):
        assert forbidden not in page
    assert page.count("<svg") == 4  # trade-off, loop, two saw-teeth


def test_results_survive_a_file() -> None:
    before = study(CELL, OURS)
    assert msgspec.json.decode(msgspec.json.encode(before), type=Study) == before


def test_the_grid_is_the_papers_and_the_full_study_has_every_workload() -> None:
    assert [name for name, _ in grid()] == [
        f"{ms}ms-{ratio}" for ms in (100, 1000) for ratio in (0.01, 0.33, 0.66)
    ]
    assert [setup.name for setup in setups(StudyOptions())] == [
        "fold-left-1p",
        "fold-left-4p",
        "retain-all-1p",
        "retain-all-4p",
    ]
    rates = [step.updates_per_second for step in loop_stream(quick_options()).rates]
    assert rates == [3000, 9000, 3000]


def test_the_ways_of_an_objective_stand_side_by_side_cheapest_for_the_broker_first() -> None:
    objective = replace(OBJECTIVE, with_buffer_broker_cores=0.11, with_buffer_held=True)
    late = replace(TRIM, result=replace(TRIM.result, name="eventual", log_records_max=2701))
    elsewhere = replace(TRIM, factor=2.0)
    found = replace(study(CELL, OURS), objectives=(objective,), trims=(late, elsewhere, TRIM))
    ways = found.summary()["objectives"][0]["ways"]
    assert [way["way"] for way in ways] == [
        "eventual",
        "image + trim",
        "topic settings, fitting buffer",
        "topic settings",
    ]
    assert [way["held"] for way in ways] == [False, True, True, True]
    assert ways[1]["cleaner_ratio"] == pytest.approx(0.004 / 0.6)
    assert ways[2]["broker_ratio"] == pytest.approx(0.11 / 0.7)
    page = study_page(found)
    assert "costs the broker least there: image + trim" in page


def test_a_stopped_study_repeats_nothing_that_is_kept_and_names_a_damaged_file(tmp_path: Path) -> None:
    """What a run left behind when it was killed half-way through writing is no result."""
    admin = cast(ClusterAdmin, None)
    told: list[str] = []
    bench = Bench(cast(Cluster, None), (admin, admin, admin), tmp_path, told.append)
    runs: list[int] = []

    def run() -> RateStep:
        runs.append(1)
        return RateStep(1.0, 2.0)

    for _ in range(2):
        assert bench.kept("a/b run 1", {"seconds": 20}, RateStep, run) == RateStep(1.0, 2.0)
    assert bench.kept("a/b run 1", {"seconds": 40}, RateStep, run) == RateStep(1.0, 2.0)
    assert (len(runs), told) == (2, ["a/b run 1"] * 2)
    (kept, _) = sorted(tmp_path.glob("*.json"))
    kept.with_suffix(".tmp").write_text("{")
    bench.kept("a/b run 1", {"seconds": 20}, RateStep, run)
    assert len(runs) == 2
    for path in tmp_path.glob("*.json"):
        path.write_text("{")
    with pytest.raises(StateCorrupt):
        bench.kept("a/b run 1", {"seconds": 20}, RateStep, run)


def test_a_second_study_in_the_same_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both would measure a machine that the other disturbs, and take the other's runs for their own."""
    with file_lock(tmp_path / ".lock", timeout_seconds=0):
        code = run(["study", "compaction", "--quick", "--folder", str(tmp_path), "--json"])
    assert code == SetupError.exit_code
    assert "Another process holds" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
