"""Random loads on random brokers: what the closed form promises of them must hold, however unusual they are.

Times are drawn over three orders of magnitude, so that any of them may be the longest: what closes a segment, the
cleaner's backoff, a pass, the lag guards. The update rate follows from how many updates a cell may take.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from stateflow.compaction.model.closed_form import Prediction, predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.simulate import (
    RECORD_OVERHEAD_BYTES,
    SimulatedRun,
    Simulation,
    SimulationOptions,
)
from stateflow.compaction.model.streams import TOMBSTONE_BYTES, RateStep, Stream
from stateflow.compaction.model.workload import BATCH_OVERHEAD_BYTES, Bursts, Workload
from stateflow.compaction.sensing.record_sizes import estimate
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

Kind = Literal["zipf", "uniform", "bursts"]
KINDS: tuple[Kind, ...] = ("zipf", "uniform", "bursts")
_WARM_CYCLES = 2
_WINDOWS = 6
_BATCHES_PER_SEGMENT, _BATCHES_PER_CYCLE = 8, 60


@dataclass(frozen=True, slots=True)
class RandomCell:
    """One load under one policy on one broker."""

    kind: Kind
    stream: Stream
    policy: Policy
    cleaner: CleanerSettings
    costs: Costs
    linger_seconds: float
    warm_seconds: float


@dataclass(frozen=True, slots=True)
class Checked:
    """A cell, what the closed form says of it, and what the simulator showed."""

    cell: RandomCell
    expected: Prediction
    worst: Prediction
    run: SimulatedRun

    @property
    def broken(self) -> bool:
        """True when the log grew beyond what a recommendation relies on: both predictions."""
        return self.run.records_max > max(self.expected.records_max, self.worst.records_max)

    @property
    def size_error(self) -> float:
        """Predicted largest log / simulated − 1."""
        return self.expected.size_max_bytes / self.run.size_max_bytes - 1

    @property
    def mean_size_error(self) -> float:
        """Predicted mean size / simulated − 1."""
        return self.expected.size_mean_bytes / self.run.size_mean_bytes - 1

    @property
    def cpu_error(self) -> float:
        """Predicted cleaner CPU / simulated − 1."""
        return self.expected.cleaner_cores / max(self.run.cleaner_cores, 1e-12) - 1


def random_cells(seed: int, count: int, updates: int = 400, cycles: int = 10) -> Iterator[RandomCell]:
    """So many cells that compact at all and do not overload their cleaner threads, of so many updates and cycles each.

    The phase of segments to the looks of a cleaner drifts from cycle to cycle: few cycles may not show the worst.
    """
    source = random.Random(seed)  # noqa: S311 - repeatable on purpose
    found = 0
    while found < count:
        cell = _random_cell(source, updates, cycles)
        if cell is not None:
            found += 1
            yield cell


def check(cell: RandomCell) -> Checked:
    """Simulate a cell, and put beside it what the closed form says of its load."""
    options = SimulationOptions(cell.linger_seconds, cell.warm_seconds)
    simulation = Simulation(cell.stream.partitions, cell.policy, cell.cleaner, cell.costs, options)
    run = simulation.run(cell.stream.updates())
    load = workload(cell, run.live_end)
    return Checked(
        cell,
        predict(load, cell.policy, cell.cleaner, cell.costs),
        predict(load.stressed(1, 1), cell.policy, cell.cleaner, cell.costs, worst=True),
        run,
    )


def workload(cell: RandomCell, live: float) -> Workload:
    """The cell's load as it would be measured."""
    stream, rate = cell.stream, cell.stream.mean_rate()
    bursts = None
    key_bytes = 12
    if cell.kind == "bursts":
        elements = math.ceil(rate * stream.window_seconds)
        bursts, live, key_bytes = (
            Bursts(elements, stream.window_seconds, elements, TOMBSTONE_BYTES),
            elements,
            20,
        )
    in_batch = max(1.0, rate / stream.partitions * cell.linger_seconds)
    value_bytes = sum(stream.value_bytes) / 2
    appended = value_bytes + key_bytes + RECORD_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES / in_batch
    sizes = estimate([], [], average=appended, uncompressed=value_bytes + key_bytes, live_records=live)
    return Workload(
        stream.partitions,
        live,
        rate,
        sizes.appended,
        sizes.live,
        sizes.live_high,
        append_interval_seconds=max(cell.linger_seconds, stream.partitions / rate),
        bursts=bursts,
    )


def _random_cell(source: random.Random, updates: int, cycles: int) -> RandomCell | None:
    kind = source.choice(KINDS)
    partitions = source.choice((1, 1, 1, 2, 4, 8))
    cleaner = CleanerSettings(
        threads=source.choice((1, 1, 1, 2)),
        backoff_ms=source.choice((100, 1000, 15_000, 15_000, round(_spread(source, 50, 30_000)))),
    )
    costs = Costs().scaled(_spread(source, 0.3, 10))
    policy = Policy(
        segment_ms=round(_spread(source, 300, 60_000)),
        dirty_ratio=source.choice((0.01, 0.1, 0.33, 0.5, 0.66, round(source.uniform(0.0, 0.8), 3))),
        segment_index_bytes=65_536,
        min_lag_ms=source.choice((0, 0, 0, round(_spread(source, 500, 20_000)))),
        delete_retention_ms=60_000,
    )
    if source.random() < 0.2:
        policy = replace(policy, max_lag_ms=max(policy.min_lag_ms, round(_spread(source, 1000, 60_000))))
    cell = RandomCell(kind, Stream(partitions=partitions), policy, cleaner, costs, 0, 0)
    return _with_load(source, updates, cycles, cell)


def _with_load(source: random.Random, updates: int, cycles: int, cell: RandomCell) -> RandomCell | None:
    """The cell with a rate and a length that make several cycles of so many updates."""
    policy, cleaner = cell.policy, cell.cleaner
    least = (min(policy.segment_ms, policy.max_lag_ms) + cleaner.backoff_ms + policy.min_lag_ms) / 1000
    window = _spread(source, 0.5, 4) * least
    if cell.kind == "bursts":
        policy = replace(policy, delete_retention_ms=round(1000 * window * _spread(source, 0.1, 3)))
        cell = replace(cell, policy=policy)
    keys_share = _spread(source, 0.05, 1)
    cycle = least
    for _ in range(8):  # a lower rate makes fewer dirty bytes, and so a longer cycle: settle on both
        seconds, warm = cycles * cycle, _WARM_CYCLES * cycle
        if cell.kind == "bursts":  # tombstones come and go, too
            warm += window + policy.delete_retention_ms / 1000
            seconds = max(seconds, warm + _WINDOWS * window)
        rate = updates / seconds
        stream = replace(
            cell.stream,
            keys=max(20, round(keys_share * updates / 8)),
            rates=(RateStep(0.0, rate),),
            seconds=seconds,
            zipf_exponent=0.99 if cell.kind == "zipf" else None,
            value_bytes=(500, 500),
            state="retain-all" if cell.kind == "bursts" else "fold-left",
            window_seconds=window,
            seed=source.randrange(1 << 30),
        )
        linger = min(policy.segment_ms / 1000 / _BATCHES_PER_SEGMENT, cleaner.backoff_ms / 1000)
        linger = max(linger, cycle / _BATCHES_PER_CYCLE, 0.02)
        found = replace(cell, stream=stream, linger_seconds=linger, warm_seconds=warm)
        live = stream.keys
        expected = predict(workload(found, live), policy, cleaner, cell.costs)
        if not math.isfinite(expected.size_max_bytes) or expected.saturated:
            return None
        before, cycle = cycle, max(least, expected.cycle_seconds)
        if cycle <= 1.05 * before:
            return found
    return None


def _spread(source: random.Random, low: float, high: float) -> float:
    return math.exp(source.uniform(math.log(low), math.log(high)))
