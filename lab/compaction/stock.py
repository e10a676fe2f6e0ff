"""The study's stock broker: the cleaner's backoff of 15 s and its buffer of 128 MiB, which most people never change.

Several such brokers run side by side, as each of them mostly sleeps: one under the best setting by hand, one under
ours, one with ours and dynamic cleaner settings, which are put back, and one with many topics that keep their bounds.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from stateflow.compaction.advice.alternatives import fitting_cleaner
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.search import SearchSpace, hand_points, predicted
from stateflow.compaction.calibration.broker_settings import cleaner_settings
from stateflow.compaction.calibration.cell import Cell, CellResult, run_cell
from stateflow.compaction.calibration.default_costs import default_costs
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.closed_form import Prediction, predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.simulate import Simulation, SimulationOptions
from stateflow.compaction.model.streams import TOMBSTONE_BYTES, RateStep, Stream
from stateflow.compaction.model.workload import BATCH_OVERHEAD_BYTES, Bursts, RestoreRate, Workload
from stateflow.compaction.sensing.measure import local_broker
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import knobs_for
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.lab.compaction.random_cells import KINDS
from stateflow.log.kafka import connect

STOCK = CleanerSettings()
_SETTINGS = {
    "log.cleaner.backoff.ms": STOCK.backoff_ms,
    "log.cleaner.dedupe.buffer.size": STOCK.dedupe_buffer_bytes,
}
_ROOM_SECONDS = 24.0
"""Of updates that the objective leaves beside the live records: time for one backoff, not for two."""
_RATE, _KEYS, _VALUE_BYTES = 60.0, 3000, (300, 700)
_APPEND_SECONDS = 0.02
_SLOWNESS_MAX = 1.5


@dataclass(frozen=True, slots=True)
class StockOptions:
    """How much runs on stock brokers."""

    seconds: float = 100.0
    warm_seconds: float = 25.0
    cells: int = 200
    """Topics whose bound is checked."""
    together: int = 20
    """So many of them at a time, on one broker."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class StockCell:
    """One log over time, and what was promised of it."""

    name: str
    policy: Policy
    cleaner: CleanerSettings
    size_max_bytes: float
    size_mean_bytes: float
    expected_bytes: float
    """Predicted largest log."""
    promised_bytes: float
    """The most that it may be, in any phase of segments to looks."""
    cleaner_cores: float | None
    """None where other topics shared the cleaner."""
    uncalibrated_cores: float
    calibrated_cores: float
    late: bool
    """The producer was late, so the load was another."""
    slowness: float
    """Time that the cleaner took for its passes, in terms of their CPU: more than 1 where it waited for a core."""

    @property
    def disturbed(self) -> bool:
        """True when the machine was too busy for a prediction. A promise counts the waiting, and holds all the same."""
        return self.late or self.slowness > _SLOWNESS_MAX

    @property
    def broken(self) -> bool:
        """True when the log was larger than promised."""
        return self.size_max_bytes > self.promised_bytes


@dataclass(frozen=True, slots=True)
class StockFigures:
    """What the stock brokers showed."""

    cells: tuple[StockCell, ...]
    bound_bytes: float
    """Of the objective that hand and tuner were given."""
    hand: StockCell
    tuned: StockCell
    with_broker_settings: StockCell
    put_back: bool
    """True when the broker's settings afterwards were those before."""

    def summary(self) -> dict[str, Any]:
        """As plain data for JSON."""
        counted = [cell for cell in self.cells if not cell.late]
        return {
            "backoff_ms": STOCK.backoff_ms,
            "dedupe_buffer_bytes": STOCK.dedupe_buffer_bytes,
            "cells": len(self.cells),
            "late_cells": len(self.cells) - len(counted),
            "bound_broken": sum(cell.broken for cell in counted),
            "promised_to_largest_mean": _mean_abs(
                cell.promised_bytes / cell.size_max_bytes for cell in counted
            ),
            "cpu_ratio_to_hand": _ratio(self.tuned, self.hand),
            "cpu_ratio_to_hand_with_broker_settings": _ratio(self.with_broker_settings, self.hand),
            "broker_settings_put_back": self.put_back,
            "errors": _errors(self.cells),
            "errors_undisturbed": _errors([cell for cell in self.cells if not cell.disturbed]),
            "hand": _cell_summary(self.hand, self.bound_bytes),
            "tuned": _cell_summary(self.tuned, self.bound_bytes),
            "with_broker_settings": _cell_summary(self.with_broker_settings, self.bound_bytes),
        }


def run_stock(options: StockOptions, costs: Costs, progress: Callable[[str], None]) -> StockFigures:
    """All of it; ``costs`` are those calibrated on a broker of this machine. Takes a little more than a run's time for
    every ``together`` cells.
    """
    stream = Stream(
        keys=_KEYS,
        rates=(RateStep(0.0, _RATE),),
        seconds=options.seconds,
        zipf_exponent=None,
        value_bytes=_VALUE_BYTES,
    )
    known, objective = _asked(stream)
    by_hand = best_by_hand(known, objective, costs)
    tuned = recommend(known, objective=objective, costs=costs, with_alternatives=False).best.policy
    better = replace(known, cleaner=fitting_cleaner(known))
    with_broker = recommend(better, objective=objective, costs=costs, with_alternatives=False).best.policy

    def alone(name: str, policy: Policy, cleaner: CleanerSettings) -> StockCell:
        with _stock_broker() as (bootstrap, admin):
            if cleaner == STOCK:
                return _run(
                    bootstrap, options, Cell(name, policy, stream, options.warm_seconds, 0), cleaner, costs
                )
            with cleaner_settings(admin, cleaner):
                found = _run(
                    bootstrap, options, Cell(name, policy, stream, options.warm_seconds, 0), cleaner, costs
                )
            put_back.append(admin.cleaner_settings(next(iter(admin.broker_addresses()))) == STOCK)
            return found

    put_back: list[bool] = []
    batches = _batches(options)
    progress(f"stock brokers: 3 policies and {len(batches[0])} cells")
    with ThreadPoolExecutor(4) as pool:
        three = [
            pool.submit(alone, "best by hand", by_hand, STOCK),
            pool.submit(alone, "tuned", tuned, STOCK),
            pool.submit(alone, "tuned, broker settings", with_broker, better.cleaner),
        ]
        first = pool.submit(_together, batches[0], costs)
        hand_cell, tuned_cell, broker_cell = (one.result() for one in three)
        cells = list(first.result())
    for number, batch in enumerate(batches[1:], start=2):
        progress(f"stock broker: cells, part {number} of {len(batches)}")
        cells += _together(batch, costs)
    return StockFigures(
        (*cells, hand_cell, tuned_cell, broker_cell),
        known.restore.records_within(objective.restore_within_seconds) * known.record_bytes,
        hand_cell,
        tuned_cell,
        broker_cell,
        all(put_back),
    )


def best_by_hand(known: Measurement, objective: Objective, costs: Costs) -> Policy:
    """The cheapest of the points that people choose, of those that keep the bound with nothing kept free."""
    space = SearchSpace(known.policy, knobs_for(), known.cleaner, costs, 1.0, 1.0)
    bound = known.restore.records_within(objective.restore_within_seconds)
    points = predicted(known.workload(), space, hand_points(space))
    holding = [point for point in points if point.holds(bound)]
    return min(holding, key=lambda point: point.expected.cores).policy


def live_cells(seed: int, count: int, seconds: float, warm_seconds: float) -> Iterator[Cell]:
    """Random loads of all kinds under random policies that are legal on a broker, slow enough to run side by side."""
    source = random.Random(seed)  # noqa: S311 - repeatable on purpose
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        stream = Stream(
            keys=source.choice((200, 1000, 3000)),
            partitions=source.choice((1, 1, 2)),
            rates=(RateStep(0.0, source.choice((60.0, 120.0, 200.0))),),
            seconds=seconds,
            zipf_exponent=0.99 if kind == "zipf" else None,
            value_bytes=_VALUE_BYTES,
            state="retain-all" if kind == "bursts" else "fold-left",
            window_seconds=source.choice((5.0, 10.0)),
            seed=source.randrange(1 << 30),
        )
        policy = Policy(
            segment_ms=round(math.exp(source.uniform(math.log(500), math.log(16_000)))),
            segment_index_bytes=65_536,
            dirty_ratio=source.choice((0.01, 0.1, 0.33, 0.5)),
            delete_retention_ms=5000,
            file_delete_delay_ms=1000,
        )
        yield Cell(f"{kind} {number + 1}", policy, stream, warm_seconds, 0)


def _asked(stream: Stream) -> tuple[Measurement, Objective]:
    record_bytes = _workload(stream, stream.keys).record_bytes
    known = Measurement.known(
        "stock",
        live_keys=stream.keys,
        updates_per_second=stream.mean_rate(),
        record_bytes=record_bytes,
        restore=RestoreRate(100_000),
        cleaner=STOCK,
        policy=Policy(file_delete_delay_ms=1000),
    )
    records = stream.keys + _ROOM_SECONDS * stream.mean_rate()
    return known, Objective(known.restore.seconds(records), margin=0.02, rate_headroom=1.0, live_headroom=1.0)


def _batches(options: StockOptions) -> list[list[Cell]]:
    cells = list(live_cells(options.seed, options.cells, options.seconds, options.warm_seconds))
    return [cells[at : at + options.together] for at in range(0, len(cells), options.together)]


@contextmanager
def _stock_broker() -> Iterator[tuple[str, ClusterAdmin]]:
    with EmbeddedKafka(overrides=_SETTINGS) as kafka:
        admin = ClusterAdmin(kafka.bootstrap)
        try:
            yield kafka.bootstrap, admin
        finally:
            admin.close()


def _run_cell(bootstrap: str, cell: Cell) -> CellResult:
    cluster, admin, sampler = connect(bootstrap), ClusterAdmin(bootstrap), ClusterAdmin(bootstrap)
    try:
        return run_cell(cluster, admin, sampler, cell)
    finally:
        for one in (admin, sampler):
            one.close()
        cluster.close()


def _run(
    bootstrap: str, options: StockOptions, cell: Cell, cleaner: CleanerSettings, costs: Costs
) -> StockCell:
    admin = ClusterAdmin(bootstrap)
    try:
        uncalibrated = default_costs(local_broker(admin))
    finally:
        admin.close()
    result = _run_cell(bootstrap, cell)

    def simulated(with_costs: Costs) -> float:
        warm = SimulationOptions(_APPEND_SECONDS, options.warm_seconds)
        simulation = Simulation(cell.stream.partitions, cell.policy, cleaner, with_costs, warm)
        return simulation.run(cell.stream.updates()).cleaner_cores + with_costs.looking_cores(cleaner)

    found = _figures(cell, cleaner, result, costs, 0.0)
    return replace(
        found,
        cleaner_cores=result.cleaner_cores,
        uncalibrated_cores=simulated(uncalibrated),
        calibrated_cores=simulated(costs),
    )


def _together(cells: Sequence[Cell], costs: Costs) -> list[StockCell]:
    """Many topics on one broker: their passes wait for one another."""
    with _stock_broker() as (bootstrap, _), ThreadPoolExecutor(len(cells)) as pool:
        results = list(pool.map(lambda cell: _run_cell(bootstrap, cell), cells))
    slowed = _slowed(costs, _slowness(results))
    turns = [
        _predict(cell, result, STOCK, slowed, worst=False)
        for cell, result in zip(cells, results, strict=True)
    ]
    busy = sum(one.cleaner_cores * one.cycle_seconds for one in turns)
    syncs = sum(cell.stream.partitions for cell in cells) * slowed.sync_seconds
    return [
        _figures(cell, STOCK, result, slowed, busy + syncs)
        for cell, result in zip(cells, results, strict=True)
    ]


def _slowness(results: Sequence[CellResult]) -> float:
    """How many times longer passes took than their CPU, as the machine was busy: measured at the cleaner's thread."""
    ran = sum(result.cleaner_cores for result in results)
    return 1 + sum(result.cleaner_wait_cores for result in results) / max(ran, 1e-9)


def _slowed(costs: Costs, factor: float) -> Costs:
    return replace(costs.scaled(factor), sync_seconds=factor * costs.sync_seconds)


def _figures(
    cell: Cell, cleaner: CleanerSettings, result: CellResult, costs: Costs, others_seconds: float
) -> StockCell:
    """``others_seconds`` is how long a pass may wait for those of other topics."""
    slowed = _slowed(costs, _slowness([result]))
    expected = _predict(cell, result, cleaner, costs, worst=False)
    worst = _predict(cell, result, cleaner, slowed, worst=True)
    load = _workload(cell.stream, result.live_end)
    waiting = others_seconds * load.updates_per_second * load.record_bytes
    return StockCell(
        name=cell.name,
        policy=cell.policy,
        cleaner=cleaner,
        size_max_bytes=result.size_max_bytes,
        size_mean_bytes=result.size_mean_bytes,
        expected_bytes=expected.size_max_bytes,
        promised_bytes=max(expected.size_max_bytes, worst.size_max_bytes) + waiting,
        cleaner_cores=None,
        uncalibrated_cores=0.0,
        calibrated_cores=expected.cleaner_cores,
        late=result.late_seconds > 1.0,
        slowness=_slowness([result]),
    )


def _predict(
    cell: Cell, result: CellResult, cleaner: CleanerSettings, costs: Costs, *, worst: bool
) -> Prediction:
    load = _workload(cell.stream, result.live_end)
    return predict(load.stressed(1, 1) if worst else load, cell.policy, cleaner, costs, worst=worst)


def _workload(stream: Stream, live: float) -> Workload:
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


def _errors(cells: Sequence[StockCell]) -> dict[str, float | int | None]:
    """Mean absolute errors of the predictions; None of no cells."""
    alone = [(cell, cell.cleaner_cores) for cell in cells if cell.cleaner_cores]
    return {
        "cells": len(cells),
        "size_mean_abs": _mean_abs(cell.expected_bytes / cell.size_max_bytes - 1 for cell in cells),
        "cpu_uncalibrated_mean_abs": _mean_abs(cell.uncalibrated_cores / cores - 1 for cell, cores in alone),
        "cpu_calibrated_mean_abs": _mean_abs(cell.calibrated_cores / cores - 1 for cell, cores in alone),
    }


def _ratio(cell: StockCell, hand: StockCell) -> float | None:
    if not cell.cleaner_cores or not hand.cleaner_cores:
        return None
    return cell.cleaner_cores / hand.cleaner_cores


def _mean_abs(values: Iterator[float]) -> float | None:
    found = [abs(value) for value in values]
    return statistics.fmean(found) if found else None


def _cell_summary(cell: StockCell, bound_bytes: float) -> dict[str, Any]:
    return {
        "policy": cell.policy.to_config(),
        "backoff_ms": cell.cleaner.backoff_ms,
        "dedupe_buffer_bytes": cell.cleaner.dedupe_buffer_bytes,
        "size_max_bytes": cell.size_max_bytes,
        "size_max_predicted_bytes": cell.expected_bytes,
        "slowness": cell.slowness,
        "held": cell.size_max_bytes <= bound_bytes,
        "cleaner_cores": cell.cleaner_cores,
        "cleaner_cores_predicted_uncalibrated": cell.uncalibrated_cores,
        "cleaner_cores_predicted": cell.calibrated_cores,
    }
