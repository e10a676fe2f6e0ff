"""Predictions beside logs that were watched on a live broker: what was expected of them, and what was promised."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from stateflow.compaction.calibration.cell import Cell
from stateflow.compaction.calibration.default_costs import CLIENT_COMPILER
from stateflow.compaction.model.closed_form import SATURATION, Prediction, predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.streams import TOMBSTONE_BYTES, Stream
from stateflow.compaction.model.workload import BATCH_OVERHEAD_BYTES, Bursts, Workload
from stateflow.compaction.settings.topic_settings import CleanerSettings
from stateflow.lab.compaction.live import LiveLog, LiveRun
from stateflow.lab.compaction.stock_result import BrokerFigures, StockCell

_APPEND_SECONDS = 0.02
_SLOWNESS_PROMISED = 30.0
"""A promise that counted more waiting for a core than this would say nothing."""


def broker_figures(name: str, cells: Sequence[Cell], run: LiveRun, calibrated: Costs | None) -> BrokerFigures:
    """All logs of one broker beside what the closed form says of them, and its cleaner's CPU beside theirs together.

    Costs are the defaults for the broker's compiler, for the CPU also those ``calibrated`` on this machine, which hold
    for the small JVM that they were calibrated with.
    """
    uncalibrated = CLIENT_COMPILER if run.client_compiler else Costs()
    use, cleaner = run.use, run.cleaner
    known = calibrated if calibrated is not None and run.client_compiler else None
    slowed = _slowed(known or uncalibrated, min(_SLOWNESS_PROMISED, use.slowness))
    found = []
    for cell, log in zip(cells, run.logs, strict=True):
        load = workload_of(cell.stream, log.live_end)
        expected = predict(load, cell.policy, cleaner, known or uncalibrated)
        worst = predict(load.stressed(1, 1), cell.policy, cleaner, slowed, worst=True)
        found.append((cell, log, load, expected, worst))
    turn = 0.0
    if len(cells) > 1:  # passes wait for those of the other logs
        turn = sum(worst.cleaner_cores * worst.cycle_seconds for *_, worst in found)
        turn += slowed.sync_seconds * sum(cell.stream.partitions for cell in cells)
    wall = _wall_share([worst for *_, worst in found], slowed, cells)

    def figures(
        cell: Cell, log: LiveLog, load: Workload, expected: Prediction, worst: Prediction
    ) -> StockCell:
        per_second = load.updates_per_second * load.record_bytes
        return StockCell(
            name=cell.name,
            policy=cell.policy,
            cleaner=cleaner,
            size_max_bytes=log.size_max_bytes,
            size_mean_bytes=log.size_mean_bytes,
            expected_bytes=expected.size_max_bytes,
            expected_mean_bytes=expected.size_mean_bytes,
            promised_bytes=max(expected.size_max_bytes, worst.size_max_bytes)
            + (run.late_seconds + turn) * per_second,
            cleaner_cores=use.cores if len(cells) == 1 else None,
            uncalibrated_cores=_cores([(cell, load)], cleaner, uncalibrated),
            calibrated_cores=None if known is None else _cores([(cell, load)], cleaner, known),
            late=run.late,
            slowness=use.slowness,
            overloaded=wall > SATURATION * cleaner.threads,
        )

    logs = tuple(figures(*row) for row in found)
    loads = [(cell, load) for cell, _, load, _, _ in found]
    return BrokerFigures(
        name=name,
        cleaner=cleaner,
        production_jvm=not run.client_compiler,
        logs=logs,
        use=use,
        uncalibrated_cores=_cores(loads, cleaner, uncalibrated),
        calibrated_cores=None if known is None else _cores(loads, cleaner, known),
    )


def _wall_share(worst: Sequence[Prediction], slowed: Costs, cells: Sequence[Cell]) -> float:
    """Of the cleaner's time, that all logs together need: more than one thread has, and no bound can be promised."""
    passing = sum(one.cleaner_cores for one in worst)
    passes = sum(cell.stream.partitions / one.cycle_seconds for cell, one in zip(cells, worst, strict=True))
    return passing + slowed.sync_seconds * passes


def _cores(loads: Sequence[tuple[Cell, Workload]], cleaner: CleanerSettings, costs: Costs) -> float:
    """Predicted, with the looks."""
    passes = sum(_predicted(cell, load, cleaner, costs).cleaner_cores for cell, load in loads)
    return passes + costs.looking_cores(cleaner)


def _predicted(cell: Cell, load: Workload, cleaner: CleanerSettings, costs: Costs) -> Prediction:
    return predict(load, cell.policy, cleaner, costs)


def _slowed(costs: Costs, factor: float) -> Costs:
    return replace(costs.scaled(factor), sync_seconds=factor * costs.sync_seconds)


def workload_of(stream: Stream, live: float) -> Workload:
    """What is known of a stream: nothing in its values compresses."""
    rate, bursts = stream.mean_rate(), None
    key_bytes = 12
    if stream.state == "retain-all":
        rate = stream.rates[0].updates_per_second
        live = math.ceil(rate * stream.window_seconds)
        bursts, key_bytes = Bursts(live, stream.window_seconds, live, TOMBSTONE_BYTES), 20
    in_batch = max(1.0, rate / stream.partitions * _APPEND_SECONDS)
    plain = statistics.fmean(stream.value_bytes) + key_bytes + 10
    appended = plain + BATCH_OVERHEAD_BYTES / in_batch
    alone = plain + BATCH_OVERHEAD_BYTES
    return Workload(
        stream.partitions,
        live,
        rate,
        appended,
        (appended + alone) / 2,
        alone,
        append_interval_seconds=max(_APPEND_SECONDS, stream.partitions / rate),
        bursts=bursts,
    )
