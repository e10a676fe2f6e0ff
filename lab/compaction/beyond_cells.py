"""What a study runs beside its cells: policies without the cleaner, and the live loop through a rate step."""

from __future__ import annotations

import statistics
from dataclasses import asdict

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.calibration.cell import Cell
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.sensing.restore_probe import RestoreProbe, fit_rate
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.lab.compaction.bench import Bench
from stateflow.lab.compaction.loop import LoopResult, run_loop
from stateflow.lab.compaction.plan import Setup, StudyOptions, loop_stream, study_settings
from stateflow.lab.compaction.result import CellFigures, LoopFigures, TrimFigures
from stateflow.lab.compaction.trimmed import LOOK_SECONDS, TrimmedResult, run_trimmed

_LOOP_FACTOR = 1.8
"""The live loop has to keep the log at so many times the live records, through three times the update rate."""


def trims_of(
    bench: Bench, options: StudyOptions, setup: Setup, measured: list[CellFigures]
) -> list[TrimFigures]:
    """Image + trim and eventual re-emission, bounded as the objectives are."""
    return [
        found
        for factor in options.trim_factors
        for found in _trims_at(bench, options, setup, measured, factor)
    ]


def _trims_at(
    bench: Bench, options: StudyOptions, setup: Setup, measured: list[CellFigures], factor: float
) -> list[TrimFigures]:
    live = max(cell.live_end for cell in measured)
    room = factor * live
    # An image is begun at the first look after it is due, and the log behind it goes when it is written.
    image_seconds = max(0.1, (room - live) / options.updates_per_second - 2 * LOOK_SECONDS)
    found = []
    for name, bounds, bound in (
        ("image + trim", {"image_seconds": image_seconds}, room - live),
        ("eventual", {"log_records_max": room}, room),
    ):
        if name not in options.trims:
            continue
        result = bench.kept(
            f"{setup.name} {name} at {factor:g}x live",
            [asdict(setup.stream), bounds, options.warm_seconds],
            TrimmedResult,
            lambda bounds=bounds: run_trimmed(  # type: ignore[misc]
                bench.cluster, bench.admins[0], setup.stream, options.warm_seconds, **bounds
            ),
        )
        found.append(TrimFigures(setup.name, factor, result, bound))
    return found


def loops_of(
    bench: Bench, options: StudyOptions, costs: Costs, cells: list[CellFigures]
) -> list[LoopFigures]:
    """The live loop through a rate that triples and falls back, beside two fixed policies of the grid."""
    stream = loop_stream(options)
    single = [cell for cell in cells if cell.setup == "fold-left-1p" and not cell.ours]
    if not single:
        return []
    rate = fit_rate([RestoreProbe(cell.restore_seconds, cell.records_end, 0) for cell in single])
    record_bytes = statistics.median(cell.record_bytes for cell in single)
    # The loop has a stream of its own, and runs for longer than a cell: more of its keys are live in the end.
    bound_records = _LOOP_FACTOR * len({update.key for update in stream.updates()})
    objective = Objective(rate.seconds(bound_records), margin=0.1)
    relaxed = Policy(segment_ms=1000, dirty_ratio=0.33, **study_settings())
    tight = Policy(segment_ms=100, dirty_ratio=0.01, **study_settings())
    journal = Journal("study", bench.folder / "journal")
    found = []
    for name, policy, goal in (
        ("watched", relaxed, objective),
        ("fixed 1000ms-0.33", relaxed, None),
        ("fixed 100ms-0.01", tight, None),
    ):
        if name not in options.loops:
            continue
        cell = Cell(f"loop {name}", policy, stream, options.warm_seconds, 1)
        result = bench.kept(
            f"loop {name}",
            [cell, goal, bound_records],
            LoopResult,
            lambda cell=cell, goal=goal: run_loop(  # type: ignore[misc]
                bench.cluster, bench.admins, cell, goal, rate, bound_records * record_bytes, journal, costs
            ),
        )
        found.append(LoopFigures.of(result))
    return found
