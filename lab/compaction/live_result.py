"""Predictions beside logs that were watched on a live broker: what was expected of them, and what was promised."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from stateflow.compaction.calibration.cell import Cell
from stateflow.compaction.calibration.default_costs import CLIENT_COMPILER
from stateflow.compaction.calibration.pace import at_pace
from stateflow.compaction.model.closed_form import SATURATION, Prediction, predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.flow import Shown
from stateflow.compaction.model.over_time import shown_within
from stateflow.compaction.model.rebuilt import holding
from stateflow.compaction.model.streams import TOMBSTONE_BYTES, Stream
from stateflow.compaction.model.workload import BATCH_OVERHEAD_BYTES, Bursts, Workload
from stateflow.compaction.settings.topic_settings import CleanerSettings
from stateflow.lab.compaction.cycles import CleanerUse
from stateflow.lab.compaction.live import LiveLog, LiveRun
from stateflow.lab.compaction.stock_result import BrokerFigures, StockCell

_APPEND_SECONDS = 0.02
_SLOWNESS_PROMISED = 30.0
"""A promise that counted more waiting for a core than this would say nothing."""


def broker_figures(name: str, cells: Sequence[Cell], run: LiveRun, calibrated: Costs | None) -> BrokerFigures:
    """All logs of one broker beside what the closed form says of them, and its cleaner's CPU beside theirs together.

    Costs are the defaults for the broker's compiler, for the CPU also those ``calibrated`` on this machine, which hold
    for the small JVM that they were calibrated with, both at the pace that the machine had during the run.
    """
    use, cleaner = run.use, run.cleaner
    uncalibrated = at_pace(CLIENT_COMPILER if run.client_compiler else Costs(), run.pace)
    known = None
    if calibrated is not None and run.client_compiler:
        known = at_pace(calibrated, run.pace)
    costs = known or uncalibrated
    slowed = _slowed(costs, min(_SLOWNESS_PROMISED, use.slowness))
    loads = [seen_by_passes(cell, cleaner, costs) for cell in cells]
    expected = expected_of(cells, loads, cleaner, costs, run.seconds - run.warm_seconds, use)
    found = []
    for cell, log, one in zip(cells, run.logs, expected, strict=True):
        load = workload_of(cell.stream, log.live_end)
        any_phase = predict(load, cell.policy, cleaner, costs)
        worst = predict(load.stressed(1, 1), cell.policy, cleaner, slowed, worst=True)
        found.append((cell, log, load, one, any_phase, worst))
    turn = 0.0
    if len(cells) > 1:  # passes wait for those of the other logs
        turn = sum(worst.cleaner_cores * worst.cycle_seconds for *_, worst in found)
        turn += slowed.sync_seconds * sum(cell.stream.partitions for cell in cells)
    wall = _wall_share([worst for *_, worst in found], slowed, cells)

    def figures(
        cell: Cell, log: LiveLog, load: Workload, one: Expected, any_phase: Prediction, worst: Prediction
    ) -> StockCell:
        per_second = load.updates_per_second * load.record_bytes
        return StockCell(
            name=cell.name,
            policy=cell.policy,
            cleaner=cleaner,
            size_max_bytes=log.size_max_bytes,
            size_mean_bytes=log.size_mean_bytes,
            expected_bytes=one.shown.size_max_bytes,
            expected_mean_bytes=one.shown.size_mean_bytes,
            expected_in_any_phase_bytes=any_phase.size_max_bytes,
            promised_bytes=max(any_phase.size_max_bytes, worst.size_max_bytes)
            + (run.late_seconds + turn) * per_second,
            cleaner_cores=use.cores if len(cells) == 1 else None,
            uncalibrated_cores=cores(uncalibrated, [cell], [load]),
            calibrated_cores=None if known is None else cores(known, [cell], [load]),
            late=run.late,
            slowness=use.slowness,
            overloaded=wall > SATURATION * cleaner.threads,
        )

    def cores(costs: Costs, cells: Sequence[Cell], loads: Sequence[Workload]) -> float:
        seconds = run.seconds - run.warm_seconds
        passes = sum(one.cores for one in expected_of(cells, loads, cleaner, costs, seconds, use))
        return passes + costs.looking_cores(cleaner)

    logs = tuple(figures(*row) for row in found)
    return BrokerFigures(
        name=name,
        cleaner=cleaner,
        production_jvm=not run.client_compiler,
        logs=logs,
        use=use,
        uncalibrated_cores=cores(uncalibrated, cells, loads),
        calibrated_cores=None if known is None else cores(known, cells, loads),
    )


def _wall_share(worst: Sequence[Prediction], slowed: Costs, cells: Sequence[Cell]) -> float:
    """Of the cleaner's time, that all logs together need: more than one thread has, and no bound can be promised."""
    passing = sum(one.cleaner_cores for one in worst)
    passes = sum(cell.stream.partitions / one.cycle_seconds for cell, one in zip(cells, worst, strict=True))
    return passing + slowed.sync_seconds * passes


class Expected(NamedTuple):
    """What the model says of one of several logs that share a cleaner thread."""

    shown: Shown
    """Sizes, over the time that the log was watched."""
    cores: float


def expected_of(
    cells: Sequence[Cell],
    loads: Sequence[Workload],
    cleaner: CleanerSettings,
    costs: Costs,
    seconds: float,
    use: CleanerUse,
) -> list[Expected]:
    """Of logs that were watched for so long. Passes over one keep the thread from its next look at the others. What it
    waited for a core no model knows: that is taken as it was, and makes its turns longer. Where a segment closes during
    one, the next pass follows at once.
    """
    costs = replace(costs, wall_per_cpu=use.slowness)
    alone = [predict(load, cell.policy, cleaner, costs) for cell, load in zip(cells, loads, strict=True)]
    look = cleaner.backoff_ms / 1000 + math.fsum(one.turn_seconds for one in alone)
    turns = [one.turn_seconds * min(1.0, look / one.cycle_seconds) for one in alone]
    expected = []
    for cell, load, turn in zip(cells, loads, turns, strict=True):
        others = math.fsum(turns) - turn
        shown = shown_within(load, cell.policy, cleaner, costs, seconds, others_seconds=others)
        cores = predict(load, cell.policy, cleaner, costs, others_seconds=others).cleaner_cores
        expected.append(Expected(shown, cores))
    return expected


def _slowed(costs: Costs, factor: float) -> Costs:
    return replace(costs.scaled(factor), sync_seconds=factor * costs.sync_seconds)


def seen_by_passes(cell: Cell, cleaner: CleanerSettings, costs: Costs) -> Workload:
    """The load of a log that is watched from its first minute on, with the keys that its cleaned part has on average.

    In a slow stream keys still come that were never written. Until the next pass they are counted as what is new, so
    what is cleaned has the keys of half a cycle and half a segment ago.
    """
    stream, warm = cell.stream, cell.warm_seconds
    load = workload_of(stream, live_mean(stream, warm))
    cycle = predict(load, cell.policy, cleaner, costs).cycle_seconds
    if not math.isfinite(cycle):
        return load
    behind = min(warm, (cycle + min(cycle, cell.policy.segment_ms / 1000)) / 2)
    return workload_of(stream, live_mean(stream, warm, behind))


def live_mean(stream: Stream, from_seconds: float, behind_seconds: float = 0.0) -> float:
    """Live keys from a moment on, on average: in a minute of a slow stream not every key was written yet. With
    ``behind_seconds``, those of so long ago.
    """
    begin, end = from_seconds - behind_seconds, stream.seconds - behind_seconds
    live, total, before = set[bytes](), 0.0, begin
    for update in stream.updates():
        if update.seconds >= end:
            break
        if update.seconds > before:
            total += len(live) * (update.seconds - before)
            before = update.seconds
        (live.discard if update.value_bytes is None else live.add)(update.key)
    total += len(live) * max(0.0, end - before)
    return total / (end - begin)


def workload_of(stream: Stream, live: float) -> Workload:
    """What is known of a stream: nothing in its values compresses, and every tick brings one batch to a partition, if
    it brings anything.
    """
    rate, bursts = stream.mean_rate(), None
    key_bytes = 12
    if stream.state == "retain-all":
        rate = stream.rates[0].updates_per_second
        live = math.ceil(rate * stream.window_seconds)
        bursts, key_bytes = Bursts(live, stream.window_seconds, live, TOMBSTONE_BYTES), 20
    interval = _APPEND_SECONDS / _brought(rate * _APPEND_SECONDS, stream.partitions)
    in_batch = max(1.0, rate / stream.partitions * interval)
    plain = statistics.fmean(stream.value_bytes) + key_bytes + 10
    return Workload(
        stream.partitions,
        live,
        rate,
        plain + BATCH_OVERHEAD_BYTES / in_batch,
        plain + BATCH_OVERHEAD_BYTES * holding(in_batch, live) / max(1.0, live),
        plain + BATCH_OVERHEAD_BYTES,
        append_interval_seconds=interval,
        bursts=bursts,
    )


def _brought(updates: float, partitions: int) -> float:
    """Share of ticks of so many updates that bring a partition something: these are spaced evenly."""
    least = math.floor(updates)
    more, elsewhere = updates - least, 1 - 1 / partitions
    return 1 - (1 - more) * math.pow(elsewhere, least) - more * math.pow(elsewhere, least + 1)
