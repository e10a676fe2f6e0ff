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
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from stateflow.compaction.advice.alternatives import fitting_cleaner
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.search import Bounds, SearchSpace, hand_points, predicted
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
from stateflow.lab.compaction.disk_use import DiskSampler
from stateflow.lab.compaction.random_cells import KINDS
from stateflow.lab.compaction.stock_result import STOCK, StockCell, StockFigures, StockObjective
from stateflow.log.kafka import connect

_SETTINGS = {
    "log.cleaner.backoff.ms": STOCK.backoff_ms,
    "log.cleaner.dedupe.buffer.size": STOCK.dedupe_buffer_bytes,
}
_ROOM_SECONDS = 24.0
"""Of updates that the objective leaves beside the live records: time for one backoff, not for two."""
_RATE, _KEYS, _VALUE_BYTES = 60.0, 1000, (300, 700)
_APPEND_SECONDS = 0.02
_LOOSER_RESTORE, _LOOSER_DISK, _LOOSER_CPU = 1.6, 1.15, 1.2
"""Bounds on disk and CPU, in terms of what the tuned policy is predicted to take; the restore may then take longer."""
_SLOWNESS_PROMISED = 30.0
"""A promise that counted more waiting for a core than this would say nothing."""


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

    def alone(name: str, policy: Policy, cleaner: CleanerSettings = STOCK) -> tuple[StockCell, float, bool]:
        """One policy on a broker of its own; the most bytes its files took, and whether its settings came back."""
        cell = Cell(name, policy, stream, options.warm_seconds, 0)
        with _stock_broker() as (kafka, admin), DiskSampler(kafka.data_dir) as disk:
            with cleaner_settings(admin, cleaner) if cleaner != STOCK else nullcontext():
                found = _run(kafka.bootstrap, options, cell, cleaner, costs, disk)
            after = admin.cleaner_settings(next(iter(admin.broker_addresses())))
            return found, disk.most_bytes, _same(after, STOCK)

    batches = _batches(options)
    progress(f"stock brokers: 5 policies and {len(batches[0])} cells")
    bounded = _bounded(known, objective, costs)
    with ThreadPoolExecutor(6) as pool:
        three = [
            pool.submit(alone, "best by hand", by_hand),
            pool.submit(alone, "tuned", tuned),
            pool.submit(alone, "tuned, broker settings", with_broker, better.cleaner),
        ]
        others = [(one, pool.submit(alone, name, policy)) for name, one, policy in bounded]
        first = pool.submit(_together, batches[0], costs)
        (hand_cell, _, _), (tuned_cell, _, _), (broker_cell, _, put_back) = (one.result() for one in three)
        objectives = [_objective(one, *run.result()[:2]) for one, run in others]
        cells = list(first.result())
    for number, batch in enumerate(batches[1:], start=2):
        progress(f"stock broker: cells, part {number} of {len(batches)}")
        cells += _together(batch, costs)
    return StockFigures(
        (*cells, hand_cell, tuned_cell, broker_cell, *(one.cell for one in objectives)),
        known.restore.records_within(objective.restore_within_seconds) * known.record_bytes,
        hand_cell,
        tuned_cell,
        broker_cell,
        put_back,
        tuple(objectives),
    )


def _bounded(
    known: Measurement, objective: Objective, costs: Costs
) -> Iterator[tuple[str, Objective, Policy]]:
    """Recommendations with a bound on disk and one on CPU, both with time enough for the restore."""
    loose = replace(objective, restore_within_seconds=_LOOSER_RESTORE * objective.restore_within_seconds)
    tuned = recommend(known, objective=objective, costs=costs, with_alternatives=False).best
    for name, wanted in (
        ("--disk", replace(loose, disk_bytes_max=_LOOSER_DISK * tuned.disk_max_bytes)),
        ("--cpu", replace(loose, cpu_cores_max=_LOOSER_CPU * (tuned.cleaner_cores + tuned.roll_cores))),
    ):
        found = recommend(known, objective=wanted, costs=costs, with_alternatives=False)
        if found.reachable:
            yield name, wanted, found.best.policy


def _objective(wanted: Objective, cell: StockCell, disk_bytes: float) -> StockObjective:
    if wanted.disk_bytes_max is not None:
        return StockObjective("disk bytes", wanted.disk_bytes_max, disk_bytes, cell)
    assert wanted.cpu_cores_max is not None
    return StockObjective("CPU cores", wanted.cpu_cores_max, cell.cleaner_cores or 0.0, cell)


def _same(found: CleanerSettings, wanted: CleanerSettings) -> bool:
    now = found.backoff_ms, found.dedupe_buffer_bytes
    return now == (wanted.backoff_ms, wanted.dedupe_buffer_bytes)


def best_by_hand(known: Measurement, objective: Objective, costs: Costs) -> Policy:
    """The cheapest of the points that people choose, of those that keep the bound with nothing kept free."""
    space = SearchSpace(known.policy, knobs_for(), known.cleaner, costs, 1.0, 1.0)
    bound = known.restore.records_within(objective.restore_within_seconds)
    points = predicted(known.workload(), space, hand_points(space))
    holding = [point for point in points if point.holds(Bounds(bound))]
    return min(holding, key=lambda point: point.expected.cores).policy


def live_cells(seed: int, count: int, seconds: float, warm_seconds: float) -> Iterator[Cell]:
    """Random loads of all kinds under random policies that are legal on a broker, slow enough to run side by side."""
    source = random.Random(seed)  # noqa: S311 - repeatable on purpose
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        stream = Stream(
            keys=source.choice((100, 300, 1000)),
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
def _stock_broker() -> Iterator[tuple[EmbeddedKafka, ClusterAdmin]]:
    with EmbeddedKafka(overrides=_SETTINGS) as kafka:
        admin = ClusterAdmin(kafka.bootstrap)
        try:
            yield kafka, admin
        finally:
            admin.close()


def _run_cell(bootstrap: str, cell: Cell, started: Callable[[str], None] = lambda _topic: None) -> CellResult:
    cluster, admin, sampler = connect(bootstrap), ClusterAdmin(bootstrap), ClusterAdmin(bootstrap)
    try:
        return run_cell(cluster, admin, sampler, cell, started=started)
    finally:
        for one in (admin, sampler):
            one.close()
        cluster.close()


def _run(
    bootstrap: str,
    options: StockOptions,
    cell: Cell,
    cleaner: CleanerSettings,
    costs: Costs,
    disk: DiskSampler,
) -> StockCell:
    admin = ClusterAdmin(bootstrap)
    try:
        uncalibrated = default_costs(local_broker(admin))
    finally:
        admin.close()
    result = _run_cell(bootstrap, cell, disk.watch)

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
    with _stock_broker() as (kafka, _), ThreadPoolExecutor(len(cells)) as pool:
        results = list(pool.map(lambda cell: _run_cell(kafka.bootstrap, cell), cells))
    slowed = _slowed(costs, _slowness(results))
    turns = [
        _predict(cell, result, STOCK, slowed, worst=False)
        for cell, result in zip(cells, results, strict=True)
    ]
    busy = sum(one.cleaner_cores * one.cycle_seconds for one in turns)
    syncs = sum(cell.stream.partitions for cell in cells) * slowed.sync_seconds
    return [
        _figures(cell, STOCK, result, costs, busy + syncs)
        for cell, result in zip(cells, results, strict=True)
    ]


def _slowness(results: Sequence[CellResult]) -> float:
    """How many times longer passes took than their CPU, as the machine was busy: measured at the cleaner's thread."""
    ran = sum(result.cleaner_cores for result in results)
    return min(_SLOWNESS_PROMISED, 1 + sum(result.cleaner_wait_cores for result in results) / max(ran, 1e-9))


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
