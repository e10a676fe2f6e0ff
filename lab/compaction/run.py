"""The compaction study: every cell measured beside its prediction, our recommendation checked by measuring it.

Runs one after another on one local broker; every finished run is a JSON file in the folder, so a study that was
stopped goes on where it was.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from stateflow.compaction.advice.fitting import fitting_cleaner
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.calibration.broker_settings import cleaner_settings
from stateflow.compaction.calibration.calibrate import calibrate
from stateflow.compaction.calibration.cell import Cell, CellResult, run_cell
from stateflow.compaction.calibration.fit import Calibration
from stateflow.compaction.calibration.pace import at_pace, usual
from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.simulate import SimulatedRun, Simulation, SimulationOptions
from stateflow.compaction.model.workload import RestoreRate, Workload
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.sensing.restore_probe import RestoreProbe, fit_rate
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.lab.compaction.bench import Bench
from stateflow.lab.compaction.beyond_cells import loops_of, trims_of
from stateflow.lab.compaction.plan import Setup, StudyOptions, grid, setups, study_settings
from stateflow.lab.compaction.result import CellFigures, ObjectiveFigures, Study, TrimFigures
from stateflow.lab.compaction.stock import run_stock
from stateflow.lab.compaction.stock_result import StockFigures

_MARGIN = 0.045
"""Kept free in the study's recommendations: the load is known exactly, the model is off by up to this much."""


def run_study(bench: Bench, options: StudyOptions) -> Study:
    """Everything: calibration, the grid, our points at every objective, trimming policies, the live loop."""
    cleaner = bench.cleaner
    seconds = options.calibration_seconds
    calibration = bench.kept(
        "calibration",
        [asdict(cleaner), seconds],
        Calibration,
        lambda: calibrate(
            bench.cluster,
            bench.admins[0],
            bench.admins[1],
            seconds=seconds,
            vary_buffer=True,
            progress=bench.progress,
        ),
    )
    cells: list[CellFigures] = []
    objectives: list[ObjectiveFigures] = []
    trims: list[TrimFigures] = []
    for setup in setups(options):
        measured = _grid(bench, options, setup, calibration, cleaner)
        cells += measured
        tuned = _objectives(bench, options, setup, calibration, cleaner, measured)
        objectives += [objective for objective, _ in tuned]
        cells += [cell for _, measured_ours in tuned for cell in measured_ours]
        if setup.state == "fold-left":
            trims += trims_of(bench, options, setup, measured)
    loops = loops_of(bench, options, calibration.costs, cells)
    stock = bench.kept(
        "stock brokers",
        [options.stock, calibration.costs.pace],
        StockFigures,
        lambda: run_stock(options.stock, calibration.costs, bench.folder, bench.progress),
    )
    return Study(
        options=options,
        broker=".".join(map(str, bench.admins[0].version()[0])),
        cleaner=cleaner,
        calibration=calibration,
        cells=tuple(cells),
        objectives=tuple(objectives),
        trims=tuple(trims),
        loops=tuple(loops),
        stock=stock,
    )


def kept_costs(folder: Path) -> Costs | None:
    """Those that a study has calibrated and left in its folder; None when there are none."""
    found = sorted(folder.glob("calibration-*.json"))
    return msgspec.json.decode(found[-1].read_bytes(), type=Calibration).costs if found else None


# --- cells ------------------------------------------------------------------------------------------


def _grid(
    bench: Bench, options: StudyOptions, setup: Setup, calibration: Calibration, cleaner: CleanerSettings
) -> list[CellFigures]:
    return [
        _cell(bench, options, setup, name, policy, calibration, cleaner, ours=False)
        for name, policy in grid()
    ]


def _cell(
    bench: Bench,
    options: StudyOptions,
    setup: Setup,
    name: str,
    policy: Policy,
    calibration: Calibration,
    cleaner: CleanerSettings,
    *,
    ours: bool,
) -> CellFigures:
    """Measure one policy under one workload, with repeats, and put the two predictions beside it."""
    runs = []
    for repeat in range(options.repeats):
        stream = replace(setup.stream, seed=setup.stream.seed + repeat)
        cell = Cell(f"{setup.name} {name}", policy, stream, options.warm_seconds, options.restores)
        label = f"{setup.name} {name} run {repeat + 1}"
        runs.append(bench.kept(label, cell, CellResult, lambda cell=cell: _run(bench, cell)))  # type: ignore[misc]
    pace = usual([run.pace for run in runs])
    slowness = pace.loop_seconds / calibration.costs.pace.loop_seconds
    costs = at_pace(calibration.costs, pace)

    def simulated(costs: Costs) -> SimulatedRun:
        warm = SimulationOptions(warm_seconds=options.warm_seconds)
        return Simulation(setup.partitions, policy, cleaner, costs, warm).run(setup.stream.updates())

    simulation, uncorrected = simulated(costs), simulated(calibration.costs)
    mean_live = statistics.fmean(run.live_end for run in runs)
    closed = predict(_workload(setup, runs[0], mean_live), policy, cleaner, costs)
    size_max = [run.size_max_bytes for run in runs]
    return CellFigures(
        setup=setup.name,
        name=name,
        ours=ours,
        policy=policy,
        size_mean_bytes=statistics.fmean(run.size_mean_bytes for run in runs),
        size_max_bytes=statistics.fmean(size_max),
        size_max_spread=(max(size_max) - min(size_max)) / statistics.fmean(size_max),
        cleaner_cores=statistics.fmean(run.cleaner_cores for run in runs),
        request_cores=statistics.fmean(run.request_cores for run in runs),
        broker_cores=statistics.fmean(run.broker_cores for run in runs),
        cleaner_wait_cores=statistics.fmean(run.cleaner_wait_cores for run in runs),
        records_end=round(statistics.fmean(run.records_end for run in runs)),
        live_end=round(mean_live),
        record_bytes=_record_bytes(setup, runs[0]),
        restore_seconds=statistics.median(second for run in runs for second in run.restore_seconds),
        restore_spread=_spread([second for run in runs for second in run.restore_seconds]),
        late_seconds=max(run.late_seconds for run in runs),
        simulated_records_max=simulation.records_max,
        simulated_size_mean_bytes=simulation.size_mean_bytes,
        simulated_size_max_bytes=simulation.size_max_bytes,
        simulated_cleaner_cores=simulation.cleaner_cores + costs.looking_cores(cleaner),
        simulated_cleaner_cores_uncorrected=uncorrected.cleaner_cores + costs.looking_cores(cleaner),
        slowness=slowness,
        closed_size_max_bytes=closed.size_max_bytes if math.isfinite(closed.size_max_bytes) else None,
        closed_cleaner_cores=closed.cleaner_cores + costs.looking_cores(cleaner),
        sizes=tuple((sample.seconds, sample.size_bytes) for sample in runs[0].sizes),
    )


def _run(bench: Bench, cell: Cell) -> CellResult:
    return run_cell(bench.cluster, bench.admins[0], bench.admins[1], cell)


def _record_bytes(setup: Setup, run: CellResult) -> float:
    """On disk, of a record with a value: nothing in it compresses."""
    if setup.bursts is None:
        return run.size_end_bytes / max(1, run.records_end)
    return statistics.fmean(setup.stream.value_bytes) + setup.bursts.tombstone_bytes


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def _workload(setup: Setup, run: CellResult, live: float) -> Workload:
    bursts = setup.bursts
    live = live if bursts is None else bursts.keys_max
    each = _record_bytes(setup, run)
    return Workload(setup.partitions, live, setup.stream.mean_rate(), each, each, bursts=bursts)


# --- objectives -------------------------------------------------------------------------------------


def _objectives(
    bench: Bench,
    options: StudyOptions,
    setup: Setup,
    calibration: Calibration,
    cleaner: CleanerSettings,
    measured: list[CellFigures],
) -> list[tuple[ObjectiveFigures, list[CellFigures]]]:
    """For every objective: the grid's cheapest cell that holds it, and ours, recommended and then measured."""
    rate = fit_rate([RestoreProbe(cell.restore_seconds, cell.records_end, 0) for cell in measured])
    return [
        _objective(bench, options, setup, calibration, cleaner, measured, rate, factor)
        for factor in options.log_factors
    ]


def _objective(
    bench: Bench,
    options: StudyOptions,
    setup: Setup,
    calibration: Calibration,
    cleaner: CleanerSettings,
    measured: list[CellFigures],
    rate: RestoreRate,
    factor: float,
) -> tuple[ObjectiveFigures, list[CellFigures]]:
    record_bytes = statistics.median(cell.record_bytes for cell in measured)
    known = measurement_of(setup, cleaner, rate, max(cell.live_end for cell in measured), record_bytes)
    records_max = factor * known.records_floor
    seconds = rate.seconds(records_max)
    bound_bytes = factor * _floor_bytes(known)
    holding = [cell for cell in measured if cell.holds(bound_bytes, records_max)]
    best = min(holding, key=lambda cell: cell.cleaner_cores, default=None)
    kept_free = 1 - _MARGIN
    with_margin = [cell for cell in measured if cell.holds(kept_free * bound_bytes, kept_free * records_max)]
    objective = Objective(
        seconds,
        margin=_margin(rate, seconds, records_max),
        rate_headroom=1.0,
        live_headroom=1.0,
        replay_seconds_max=study_settings()["delete_retention_ms"] / 1000,
    )
    found = recommend(known, objective=objective, costs=calibration.costs)
    ours = with_buffer = None
    if found.reachable:
        policy, name = found.best.policy, f"tuned for {factor:g}x live"
        ours = _cell(bench, options, setup, name, policy, calibration, cleaner, ours=True)
        better = fitting_cleaner(known, objective, calibration.costs)
        with cleaner_settings(bench.admins[0], better):
            with_buffer = _cell(
                bench, options, setup, f"{name}, small buffer", policy, calibration, better, ours=True
            )
    figures = ObjectiveFigures(
        setup=setup.name,
        factor=factor,
        bound_bytes=bound_bytes,
        restore_seconds=seconds,
        grid_best=best.name if best else None,
        grid_cleaner_cores=best.cleaner_cores if best else None,
        grid_broker_cores=best.broker_cores if best else None,
        ours_cleaner_cores=ours.cleaner_cores if ours else None,
        ours_broker_cores=ours.broker_cores if ours else None,
        ours_size_max_bytes=ours.size_max_bytes if ours else None,
        ours_restore_seconds=ours.restore_seconds if ours else None,
        ours_restore_predicted_seconds=rate.seconds(ours.records_end) if ours else None,
        with_buffer_cleaner_cores=with_buffer.cleaner_cores if with_buffer else None,
        with_buffer_broker_cores=with_buffer.broker_cores if with_buffer else None,
        with_buffer_held=with_buffer is not None and with_buffer.holds(bound_bytes, records_max),
        held=ours is not None and ours.holds(bound_bytes, records_max),
        grid_cleaner_cores_with_margin=min((cell.cleaner_cores for cell in with_margin), default=None),
    )
    return figures, [cell for cell in (ours, with_buffer) if cell is not None]


def _margin(rate: RestoreRate, seconds: float, records_max: float) -> float:
    """The margin that leaves the study's share of the record budget free."""
    return max(0.0, 1 - (1 - _MARGIN) * records_max / max(rate.records_within(seconds), 1e-9))


def measurement_of(
    setup: Setup, cleaner: CleanerSettings, rate: RestoreRate, live: int, record_bytes: float
) -> Measurement:
    """The workload of a setup as a measurement, known instead of sensed."""
    bursts = setup.bursts
    return Measurement.known(
        setup.name,
        live_keys=live,
        updates_per_second=setup.stream.mean_rate() + (bursts.per_second if bursts else 0.0),
        record_bytes=record_bytes,
        restore=rate,
        cleaner=cleaner,
        policy=Policy(**study_settings()),
        partitions=setup.partitions,
        bursts=bursts,
    )


def _floor_bytes(known: Measurement) -> float:
    """What the log takes when it holds no more than it must."""
    if known.bursts is None:
        return known.records_floor * known.record_bytes
    return known.bursts.keys_max * known.record_bytes + known.bursts.records * known.bursts.tombstone_bytes
