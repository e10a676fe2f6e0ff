"""The study's stock brokers: the cleaner's backoff of 15 s and its buffer of 128 MiB, which most people never change.

At each of two loads one broker runs under the best setting by hand, one under ours, one with ours and dynamic cleaner
settings, which are put back. Others have random logs that must keep their bounds, and an application of ours with
images and a trimmed changelog. All run side by side, as each of them mostly sleeps: so a run is long enough for the
cycles, one each 15 s, of which single ones differ by chance more than policies do. All have cleaned for a while
before, as brokers that run for weeks have: in a JVM that has just started a pass takes several times its CPU.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

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
from stateflow.lab.compaction.live import run_live, warm_up
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
_OBJECTIVES = "--disk", "--cpu"
_KEYS, _VALUE_BYTES = 1000, (300, 700)
_MARGIN = 0.02
"""Kept free by hand and by ours alike."""
_LOOSER_RESTORE, _LOOSER_DISK, _LOOSER_CPU = 1.6, 1.15, 1.2
"""Bounds on disk and CPU, in terms of what the tuned policy is predicted to take; the restore may then take longer."""
_SAMPLE_SECONDS = 0.3
"""Many are looked at side by side, and a log grows here by a percent or two in that time."""
_STARTING, _WARMING_SECONDS = 4, 8.0
"""Brokers that start and warm up at a time, and for how long each cleans."""
_IMAGE_SHARE = 0.4
"""Of the time that the bound leaves: an image is begun so often, and made, read back and trimmed for in the rest."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StockOptions:
    """How much runs on stock brokers."""

    loads: tuple[float, ...] = (60.0, 500.0)
    """Updates per second: one where passes cost mostly their buffer, one where records count, too."""
    seconds: float = 325.0
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
    needed = 3 * len(loads) + (2 if options.own else 0) + len(_OBJECTIVES)
    progress(f"stock brokers: {needed} start, and warm up")
    with _warm_brokers(needed) as brokers, ThreadPoolExecutor(2 + len(loads)) as pool:
        rates = " and ".join(f"{load.stream.mean_rate():g}" for load in loads)
        progress(f"stock brokers: {rates} updates/s, by hand, tuned, with broker settings")
        live = pool.submit(live_figures, options.live, costs, folder, progress, stock=True)
        objectives = pool.submit(_objectives, first, options, brokers)
        compared = [
            pool.submit(_load, load, options, brokers, with_own=options.own and load is loads[-1])
            for load in loads
        ]
        return StockFigures(tuple(one.result() for one in compared), live.result(), objectives.result())


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


def _load(load: Asked, options: StockOptions, brokers: _WarmBrokers, *, with_own: bool) -> StockLoad:
    hand, tuned, better = load.by_hand, load.tuned(), load.fitting
    with_broker = load.tuned(better)

    def watching(name: str, policy: Policy, cleaner: CleanerSettings = STOCK) -> Future[_Watched]:
        return brokers.submit(lambda kafka: _watched(kafka, name, policy, load, options, cleaner))

    hand_run = watching("best by hand", hand.policy)
    tuned_run = hand_run if tuned.policy == hand.policy else watching("tuned", tuned.policy)
    broker_run = watching("tuned, broker settings", with_broker.policy, better)
    by_hand_and_trimmed = (False, True) if with_own else ()
    own = [
        brokers.submit(lambda kafka, trimmed=trimmed: _own(kafka, load, options, trimmed=trimmed))  # type: ignore[misc]
        for trimmed in by_hand_and_trimmed
    ]
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


_Watched = tuple[BrokerFigures, float, bool]
"""What a log and its broker showed, the most bytes that its files took, and whether the settings came back."""


def _watched(
    kafka: EmbeddedKafka,
    name: str,
    policy: Policy,
    load: Asked,
    options: StockOptions,
    cleaner: CleanerSettings = STOCK,
) -> _Watched:
    """One policy on a broker of its own."""
    cell = Cell(name, policy, load.stream, options.warm_seconds, 0)
    with closing(ClusterAdmin(kafka.bootstrap)) as admin, DiskSampler(kafka.data_dir) as disk:
        with cleaner_settings(admin, cleaner) if cleaner != STOCK else nullcontext():
            run = run_live(
                kafka,
                [cell],
                started=lambda topics: disk.watch(topics[0]),
                sample_seconds=_SAMPLE_SECONDS,
            )
        after = admin.cleaner_settings(next(iter(admin.broker_addresses())))
        return broker_figures(name, [cell], run, load.costs), disk.most_bytes, _same(after, STOCK)


def _own(kafka: EmbeddedKafka, load: Asked, options: StockOptions, *, trimmed: bool) -> OwnRun:
    if trimmed:
        return run_own(kafka, load.stream, options.warm_seconds, image_seconds=_IMAGE_SHARE * _ROOM_SECONDS)
    return run_own(kafka, load.stream, options.warm_seconds, by_hand=load.by_hand.policy)


def _objectives(load: Asked, options: StockOptions, brokers: _WarmBrokers) -> tuple[StockObjective, ...]:
    """Recommendations with a bound on disk and one on CPU, both with time enough for the restore."""

    def measured_one(kafka: EmbeddedKafka, name: str, wanted: Objective) -> StockObjective:
        policy = load.tuned(objective=wanted).policy
        figures, disk_bytes, _ = _watched(kafka, name, policy, load, options)
        if wanted.disk_bytes_max is not None:
            return StockObjective("disk bytes", wanted.disk_bytes_max, disk_bytes, figures)
        assert wanted.cpu_cores_max is not None
        return StockObjective("CPU cores", wanted.cpu_cores_max, figures.use.cores, figures)

    running = [
        brokers.submit(lambda kafka, name=name, wanted=wanted: measured_one(kafka, name, wanted))  # type: ignore[misc]
        for name, wanted in bounded(load)
    ]
    return tuple(one.result() for one in running)


def bounded(load: Asked) -> Iterator[tuple[str, Objective]]:
    """Objectives with a bound on disk and one on CPU that can be met."""
    loose = replace(
        load.objective, restore_within_seconds=_LOOSER_RESTORE * load.objective.restore_within_seconds
    )
    tuned = load.tuned()
    cores = load.costs.uncertainty_factor * (tuned.cleaner_cores + tuned.roll_cores)
    disk, cpu = _OBJECTIVES
    for name, wanted in (
        (disk, replace(loose, disk_bytes_max=_LOOSER_DISK * tuned.disk_max_bytes)),
        (cpu, replace(loose, cpu_cores_max=_LOOSER_CPU * cores)),
    ):
        if recommend(load.known, objective=wanted, costs=load.costs, with_alternatives=False).reachable:
            yield name, wanted


def _same(found: CleanerSettings, wanted: CleanerSettings) -> bool:
    now = found.backoff_ms, found.dedupe_buffer_bytes
    return now == (wanted.backoff_ms, wanted.dedupe_buffer_bytes)


class _WarmBrokers:
    """Brokers that have cleaned for a while, one for each run. Runs begin one after another within a backoff: else
    cleaners, which all look every 15 s, would look at once, and wait for a core of each other.
    """

    def __init__(self, brokers: Sequence[EmbeddedKafka], pool: ThreadPoolExecutor) -> None:
        self._brokers, self._pool = brokers, pool
        self._turns = itertools.count()

    def submit(self, run: Callable[[EmbeddedKafka], _T]) -> Future[_T]:
        """Begin a run on the next of them."""
        turn = next(self._turns)
        return self._pool.submit(self._in_turn, turn, run)

    def _in_turn(self, turn: int, run: Callable[[EmbeddedKafka], _T]) -> _T:
        time.sleep(turn * STOCK.backoff_ms / 1000 / len(self._brokers))
        return run(self._brokers[turn])


@contextmanager
def _warm_brokers(count: int) -> Iterator[_WarmBrokers]:
    brokers = [stock_broker() for _ in range(count)]
    with ExitStack() as stack:
        for kafka in brokers:
            stack.callback(kafka.stop)

        def ready(kafka: EmbeddedKafka) -> None:
            kafka.start()
            warm_up(kafka, _WARMING_SECONDS)

        with ThreadPoolExecutor(_STARTING) as starting:
            for one in [starting.submit(ready, kafka) for kafka in brokers]:
                one.result()
        yield _WarmBrokers(brokers, stack.enter_context(ThreadPoolExecutor(count)))
