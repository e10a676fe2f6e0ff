"""The study's stock brokers: the cleaner's backoff of 15 s and its buffer of 128 MiB, which most people never change.

At each of two loads one broker runs under the best setting by hand, one under ours, one with ours and dynamic cleaner
settings, which are put back. Others have random logs that must keep their bounds, and an application of ours with
images and a trimmed changelog. Some run side by side, as each of them mostly sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from stateflow.compaction.advice.fitting import fitting_cleaner
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.recommendation import Outcome
from stateflow.compaction.advice.search import (
    Bounds,
    Candidate,
    SearchSpace,
    cheapest,
    hand_points,
    predicted,
)
from stateflow.compaction.calibration.broker_settings import cleaner_settings
from stateflow.compaction.calibration.cell import Cell
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import knobs_for
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.lab.compaction.disk_use import DiskSampler
from stateflow.lab.compaction.live import run_live
from stateflow.lab.compaction.live_cells import LiveOptions, measured, stock_broker
from stateflow.lab.compaction.live_result import broker_figures, workload_of
from stateflow.lab.compaction.own_app import OwnRun, run_own
from stateflow.lab.compaction.stock_result import (
    STOCK,
    BrokerFigures,
    OwnApplication,
    StockFigures,
    StockLoad,
    StockObjective,
)

_ROOM_SECONDS = 24.0
"""Of updates that the objective leaves beside the live records: time for one backoff, not for two."""
_KEYS, _VALUE_BYTES = 1000, (300, 700)
_MARGIN = 0.02
"""Kept free by hand and by ours alike."""
_LOOSER_RESTORE, _LOOSER_DISK, _LOOSER_CPU = 1.6, 1.15, 1.2
"""Bounds on disk and CPU, in terms of what the tuned policy is predicted to take; the restore may then take longer."""
_TURNS = 8
"""Brokers that run side by side start one after the other within a backoff: else their cleaners, which all look every
15 s, would look at once, and wait for a core of each other."""
_IMAGE_SHARE = 0.4
"""Of the time that the bound leaves: an image is begun so often, and made, read back and trimmed for in the rest."""


@dataclass(frozen=True, slots=True)
class StockOptions:
    """How much runs on stock brokers."""

    loads: tuple[float, ...] = (60.0, 500.0)
    """Updates per second: one where passes cost mostly their buffer, one where records count, too."""
    seconds: float = 130.0
    warm_seconds: float = 25.0
    live: LiveOptions = field(default_factory=LiveOptions)
    own: bool = True
    """Whether an application of ours runs, too."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A load, what is asked of it, and the policies that are compared."""

    stream: Stream
    known: Measurement
    objective: Objective
    costs: Costs

    @property
    def bound_bytes(self) -> float:
        """The largest log that the objective allows."""
        records = self.known.restore.records_within(self.objective.restore_within_seconds)
        return records * self.known.record_bytes

    @property
    def by_hand(self) -> Candidate:
        """The cheapest of the points that people choose, of those that keep the same bound."""
        space = SearchSpace(self.known.policy, knobs_for(), self.known.cleaner, self.costs, 1.0, 1.0)
        records = self.known.restore.records_within(self.objective.restore_within_seconds)
        points = predicted(self.known.workload(), space, hand_points(space))
        found = cheapest(points, Bounds(records * (1 - self.objective.margin)))
        assert found is not None, "no point by hand keeps the bound"
        return found

    @property
    def fitting(self) -> CleanerSettings:
        """Cleaner settings for it."""
        return fitting_cleaner(self.known, self.objective, self.costs)

    def tuned(self, cleaner: CleanerSettings = STOCK, objective: Objective | None = None) -> Outcome:
        """What is recommended under such cleaner settings."""
        known = replace(self.known, cleaner=cleaner)
        wanted = objective or self.objective
        return recommend(known, objective=wanted, costs=self.costs, with_alternatives=False).best


def asked(updates_per_second: float, options: StockOptions, costs: Costs) -> Asked:
    """The load at so many updates, with room for one backoff beside its live records."""
    stream = Stream(
        keys=_KEYS,
        rates=(RateStep(0.0, updates_per_second),),
        seconds=options.seconds,
        zipf_exponent=None,
        value_bytes=_VALUE_BYTES,
    )
    load = workload_of(stream, stream.keys)
    known = Measurement.known(
        "stock",
        live_keys=stream.keys,
        updates_per_second=stream.mean_rate(),
        record_bytes=load.record_bytes,
        restore=RestoreRate(100_000),
        cleaner=STOCK,
        policy=Policy(file_delete_delay_ms=1000),
    )
    records = stream.keys + _ROOM_SECONDS * stream.mean_rate()
    objective = Objective(
        known.restore.seconds(records), margin=_MARGIN, rate_headroom=1.0, live_headroom=1.0
    )
    return Asked(stream, known, objective, costs)


def run_stock(
    options: StockOptions, costs: Costs, folder: Path, progress: Callable[[str], None]
) -> StockFigures:
    """All of it; ``costs`` are those calibrated on an embedded broker of this machine."""
    first, *_ = loads = [asked(rate, options, costs) for rate in options.loads]
    with ThreadPoolExecutor(2) as pool:
        live = pool.submit(live_figures, options.live, costs, folder, progress, stock=True)
        objectives = pool.submit(_objectives, first, options)
        found = []
        for load in loads:
            progress(
                f"stock brokers: {load.stream.mean_rate():g} updates/s, by hand, tuned, with broker settings"
            )
            found.append(_load(load, options, with_own=options.own and load is loads[-1]))
        return StockFigures(tuple(found), live.result(), objectives.result())


def live_figures(
    options: LiveOptions,
    costs: Costs | None,
    folder: Path,
    progress: Callable[[str], None],
    *,
    stock: bool,
) -> tuple[BrokerFigures, ...]:
    """Random logs whose bounds are checked, one broker after another; those that ran before are not run again."""
    batches = options.batches(stock=stock)
    return tuple(
        broker_figures(
            f"part {batch.number}", batch.cells, measured(folder, progress, batch, len(batches)), costs
        )
        for batch in batches
    )


def _load(load: Asked, options: StockOptions, *, with_own: bool) -> StockLoad:
    hand, tuned, better = load.by_hand, load.tuned(), load.fitting
    with_broker = load.tuned(better)
    with ThreadPoolExecutor(5) as pool:
        hand_run = pool.submit(_watched, "best by hand", hand.policy, load, options, turn=1)
        policy = tuned.policy
        tuned_run = (
            hand_run
            if policy == hand.policy
            else pool.submit(_watched, "tuned", policy, load, options, turn=2)
        )
        broker_run = pool.submit(
            _watched, "tuned, broker settings", with_broker.policy, load, options, better, turn=3
        )
        own_turns = ((False, 4), (True, 5)) if with_own else ()
        own = [pool.submit(_own, load, options, trimmed=one, turn=turn) for one, turn in own_turns]
        (by_hand, *_), (ours, *_), (theirs, _, put_back) = (
            one.result() for one in (hand_run, tuned_run, broker_run)
        )
        owned = [one.result() for one in own]
    looking = load.costs.looking_cores
    hand_cores = hand.expected.cleaner_cores + looking(STOCK)
    return StockLoad(
        updates_per_second=load.stream.mean_rate(),
        bound_bytes=load.bound_bytes,
        hand=by_hand,
        tuned=ours,
        with_broker_settings=theirs,
        put_back=put_back,
        floor=_each_record(load) / hand_cores,
        predicted_tuned=(tuned.cleaner_cores + looking(STOCK)) / hand_cores,
        predicted=(with_broker.cleaner_cores + looking(better)) / hand_cores,
        own=None
        if not owned
        else OwnApplication(owned[0], owned[1], load.stream.mean_rate() * _ROOM_SECONDS),
    )


def _each_record(load: Asked) -> float:
    """CPU per second for what every new record costs once, whatever cleans it."""
    costs, known = load.costs, load.known
    each = costs.dirty_seconds_per_record + known.record_bytes * costs.dirty_seconds_per_byte
    return known.updates_per_second * each


def _watched(
    name: str,
    policy: Policy,
    load: Asked,
    options: StockOptions,
    cleaner: CleanerSettings = STOCK,
    *,
    turn: int,
) -> tuple[BrokerFigures, float, bool]:
    """One policy on a broker of its own, the most bytes that its files took, and whether its settings came back."""
    cell = Cell(name, policy, load.stream, options.warm_seconds, 0)
    with _running(turn) as (kafka, admin), DiskSampler(kafka.data_dir) as disk:
        with cleaner_settings(admin, cleaner) if cleaner != STOCK else nullcontext():
            run = run_live(kafka, [cell], started=lambda topics: disk.watch(topics[0]))
        after = admin.cleaner_settings(next(iter(admin.broker_addresses())))
        return broker_figures(name, [cell], run, load.costs), disk.most_bytes, _same(after, STOCK)


def _own(load: Asked, options: StockOptions, *, trimmed: bool, turn: int) -> OwnRun:
    with _running(turn) as (kafka, _):
        if trimmed:
            return run_own(
                kafka, load.stream, options.warm_seconds, image_seconds=_IMAGE_SHARE * _ROOM_SECONDS
            )
        return run_own(kafka, load.stream, options.warm_seconds, by_hand=load.by_hand.policy)


def _objectives(load: Asked, options: StockOptions) -> tuple[StockObjective, ...]:
    """Recommendations with a bound on disk and one on CPU, both with time enough for the restore."""

    def measured_one(turn: int, name: str, wanted: Objective) -> StockObjective:
        policy = load.tuned(objective=wanted).policy
        figures, disk_bytes, _ = _watched(name, policy, load, options, turn=turn)
        if wanted.disk_bytes_max is not None:
            return StockObjective("disk bytes", wanted.disk_bytes_max, disk_bytes, figures)
        assert wanted.cpu_cores_max is not None
        return StockObjective("CPU cores", wanted.cpu_cores_max, figures.use.cores, figures)

    with ThreadPoolExecutor(2) as pool:
        wanted = [(turn, *one) for turn, one in enumerate(bounded(load), 6)]
        return tuple(pool.map(lambda one: measured_one(*one), wanted))


def bounded(load: Asked) -> Iterator[tuple[str, Objective]]:
    """Objectives with a bound on disk and one on CPU that can be met."""
    loose = replace(
        load.objective, restore_within_seconds=_LOOSER_RESTORE * load.objective.restore_within_seconds
    )
    tuned = load.tuned()
    cores = load.costs.uncertainty_factor * (tuned.cleaner_cores + tuned.roll_cores)
    for name, wanted in (
        ("--disk", replace(loose, disk_bytes_max=_LOOSER_DISK * tuned.disk_max_bytes)),
        ("--cpu", replace(loose, cpu_cores_max=_LOOSER_CPU * cores)),
    ):
        if recommend(load.known, objective=wanted, costs=load.costs, with_alternatives=False).reachable:
            yield name, wanted


def _same(found: CleanerSettings, wanted: CleanerSettings) -> bool:
    now = found.backoff_ms, found.dedupe_buffer_bytes
    return now == (wanted.backoff_ms, wanted.dedupe_buffer_bytes)


@contextmanager
def _running(turn: int) -> Iterator[tuple[EmbeddedKafka, ClusterAdmin]]:
    time.sleep(turn * STOCK.backoff_ms / 1000 / _TURNS)
    with stock_broker() as kafka, closing(ClusterAdmin(kafka.bootstrap)) as admin:
        yield kafka, admin
