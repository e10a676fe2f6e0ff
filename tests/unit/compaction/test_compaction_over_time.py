"""What so long a time shows of a log, averaged over all phases: against the looks, and against the simulator."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from stateflow.compaction.calibration.cell import Cell, mean_over_time
from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.flow import Flow
from stateflow.compaction.model.looks import Looks
from stateflow.compaction.model.over_time import shown_within
from stateflow.compaction.model.rebuilt import ALIKE, ZIPF, holding, holding_of, of_keys, rebuilt
from stateflow.compaction.model.simulate import Simulation, SimulationOptions, Work
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.model.workload import Workload
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.lab.compaction.live_result import live_mean, seen_by_passes, workload_of
from stateflow.lab.compaction.random_cells import check, random_cells, workload

STOCK = CleanerSettings()


def flow(looks: Looks, others_seconds: float = 0.0) -> Flow:
    return Flow(looks, 0.0, 0.0, 100.0, 1.0, lambda _clean: looks.due, others_seconds=others_seconds)


@pytest.mark.parametrize(
    "looks",
    [
        Looks(segment=1.0, due=1.0, backoff=15.0, turn=0.0),
        Looks(segment=9.7, due=9.7, backoff=15.0, turn=0.1),
        Looks(segment=4.1, due=20.5, backoff=15.0, turn=0.1),
        Looks(segment=10.0, due=30.0, backoff=1.0, turn=0.0),
    ],
)
def test_a_long_time_shows_the_largest_log_of_all_phases_and_the_mean_one(looks: Looks) -> None:
    shown = flow(looks).shown(1e6)
    assert shown.size_max_bytes == pytest.approx(100 + looks.reach_max, rel=0.01)
    mean = 100 + looks.left_mean + looks.period / 2
    assert shown.size_mean_bytes == pytest.approx(mean, rel=0.03)


def test_a_short_time_shows_less_and_no_less_than_a_mean_tooth() -> None:
    looks = Looks(segment=9.7, due=9.7, backoff=15.0, turn=0.0)
    short, longer, long = (flow(looks).shown(seconds).size_max_bytes for seconds in (30.0, 75.0, 1e6))
    assert 100 + looks.left_mean + looks.period < short < longer < long <= 100 + looks.reach_max


def test_a_phase_that_does_not_move_is_not_the_largest_of_all() -> None:
    """Segments that fit into a backoff a whole number of times leave the same part of one at every pass."""
    looks = Looks(segment=5.0, due=5.0, backoff=15.0, turn=0.0)
    assert flow(looks).shown(1e6).size_max_bytes == pytest.approx(100 + 15 + 2.5, rel=0.01)
    assert looks.reach_max == 20.0


def test_other_topics_make_looks_rarer_and_a_log_may_be_due_again_when_they_are_done() -> None:
    looks = Looks(segment=5.0, due=5.0, backoff=15.0, turn=0.0)
    assert looks.until_next(1.0, 5.0) == (15.0, True)
    assert looks.until_next(1.0, 5.0, others=2.0) == (17.0, True)
    assert looks.until_next(1.0, 20.0, others=2.0) == (34.0, True)
    assert looks.until_next(4.0, 5.0, others=2.0) == (2.0, False)
    assert flow(looks, 1.0).shown(1e5).size_max_bytes == pytest.approx(100 + 16 + 3.5)


def test_a_policy_that_never_cleans_shows_no_bound() -> None:
    load = Workload(1, 1000, 100.0, 500.0, 500.0)
    assert math.isinf(shown_within(load, Policy(dirty_ratio=1.0), STOCK, Costs(), 60.0).size_max_bytes)


def test_what_a_simulated_run_shows_is_expected_of_it() -> None:
    """Each run is in one phase only, so that single ones are off by what phases differ in, and all of them by less."""
    errors, steady, means = [], [], []
    for cell in random_cells(seed=31, count=60, updates=1500, cycles=12):
        found = check(cell)
        load = workload(cell, found.run.live_end)
        seconds = cell.stream.seconds - cell.warm_seconds
        shown = shown_within(load, cell.policy, cell.cleaner, cell.costs, seconds)
        errors.append(shown.size_max_bytes / found.run.size_max_bytes - 1)
        if cell.kind != "bursts":
            steady.append(errors[-1])
        means.append(shown.size_mean_bytes / found.run.size_mean_bytes - 1)
    assert statistics.fmean(map(abs, steady)) <= 0.06
    assert statistics.fmean(map(abs, errors)) <= 0.08
    assert statistics.fmean(map(abs, means)) <= 0.07


# --- batches -----------------------------------------------------------------------------------------


def simulated(in_batch: float, new: float, exponent: float | None) -> tuple[Work, float]:
    keys = 400
    rate = in_batch / 0.02
    updates = keys * (4 + 12 * new)
    stream = Stream(
        keys=keys,
        rates=(RateStep(0.0, rate),),
        seconds=updates / rate,
        zipf_exponent=exponent,
        value_bytes=(500, 500),
    )
    policy = Policy(segment_ms=max(1, round(1000 * new * keys / rate)), dirty_ratio=0.0)
    options = SimulationOptions(warm_seconds=0.4 * stream.seconds)
    often = CleanerSettings(backoff_ms=1)
    run = Simulation(1, policy, often, Costs().scaled(0.001), options).run(stream.updates())
    return run.work, run.work.read / run.work.passes


@pytest.mark.parametrize("exponent", [None, 0.99])
@pytest.mark.parametrize("new", [0.2, 0.5, 1.5])
@pytest.mark.parametrize("in_batch", [1.2, 4.0, 16.0])
def test_batches_rebuilt_are_those_of_the_simulator(
    in_batch: float, new: float, exponent: float | None
) -> None:
    work, live = simulated(in_batch, new, exponent)
    keys = ALIKE if exponent is None else ZIPF
    ratio = work.dirty / work.passes / live
    least = math.floor(in_batch)
    share = in_batch - least
    few, more = of_keys(keys, least, ratio), of_keys(keys, least + 1, ratio)
    batches = ((1 - share) * few.batches + share * more.batches) * live / in_batch
    assert batches == pytest.approx(work.rebuilt / work.passes, rel=0.15)
    either = rebuilt(in_batch, live, ratio * live)
    assert either.batches == pytest.approx(work.rebuilt / work.passes, rel=0.3)
    assert either.records * 530 == pytest.approx(work.rebuilt_bytes / work.passes, rel=0.35)


@pytest.mark.parametrize("exponent", [None, 0.99])
@pytest.mark.parametrize("in_batch", [1.2, 4.0, 16.0])
def test_batches_gone_through_are_those_of_the_simulator(in_batch: float, exponent: float | None) -> None:
    work, live = simulated(in_batch, 0.5, exponent)
    keys, least = ALIKE if exponent is None else ZIPF, math.floor(in_batch)
    share = in_batch - least
    held = ((1 - share) * holding_of(keys, least) + share * holding_of(keys, least + 1)) * live / in_batch
    new = 2 * work.dirty / work.passes / in_batch
    # By Zipf's law rare keys live on for longer than the run takes.
    assert work.batches / work.passes == pytest.approx(new + held, rel=0.05 if exponent is None else 0.25)
    assert holding(in_batch, live) == pytest.approx(held, rel=0.7)


def test_batches_of_one_record_are_copied_or_go() -> None:
    assert rebuilt(1.0, 1000, 500) == (0.0, 0.0)
    assert holding(1.0, 1000) == 1000


def test_the_mean_size_counts_each_sample_for_as_long_as_it_was_seen() -> None:
    assert mean_over_time([(0.0, 10), (1.0, 10), (9.0, 30), (10.0, 30)]) == pytest.approx(
        (10 + 8 * 20 + 30) / 10
    )
    assert mean_over_time([(3.0, 7)]) == 7


# --- streams that are watched --------------------------------------------------------------------------


def test_live_keys_are_those_of_the_time_that_is_watched() -> None:
    stream = Stream(keys=1000, rates=(RateStep(0.0, 60.0),), seconds=100.0, zipf_exponent=None)
    mean = live_mean(stream, 25.0)
    assert 750 < mean < 997
    assert live_mean(stream, 99.0) == pytest.approx(997, abs=3)
    earlier = live_mean(stream, 25.0, behind_seconds=15.0)
    assert 0.85 * mean < earlier < 0.96 * mean


@pytest.mark.parametrize("dirty_ratio", [0.01, 0.4])
def test_a_slow_stream_is_as_large_as_the_keys_that_passes_have_seen(dirty_ratio: float) -> None:
    """With the keys of the time watched the mean was 4 to 6 % too large: those since a pass counted twice."""
    stream = Stream(
        keys=1000, rates=(RateStep(0.0, 60.0),), seconds=125.0, zipf_exponent=None, value_bytes=(300, 700)
    )
    updates, source = list(stream.updates()), random.Random(5)
    simulated, predicted = [], []
    for segment_ms in (source.randrange(3000, 12_000) for _ in range(14)):
        cell = Cell("slow", Policy(segment_ms=segment_ms, dirty_ratio=dirty_ratio), stream, 18.0, 0)
        run = Simulation(1, cell.policy, STOCK, Costs(), SimulationOptions(warm_seconds=18.0))
        simulated.append(run.run(updates).size_mean_bytes)
        load = seen_by_passes(cell, STOCK, Costs())
        predicted.append(shown_within(load, cell.policy, STOCK, Costs(), 107.0).size_mean_bytes)
    assert statistics.fmean(predicted) == pytest.approx(statistics.fmean(simulated), rel=0.02)


def test_a_partition_that_a_tick_seldom_brings_something_is_appended_to_less_often() -> None:
    slow = Stream(partitions=2, rates=(RateStep(0.0, 60.0),), seconds=10.0)
    load = workload_of(slow, 300)
    # Four ticks of five bring one record, one brings two: a partition gets some in 0.8 / 2 + 0.2 * 3 / 4 of them.
    assert load.append_interval_seconds == pytest.approx(0.02 / 0.55)
    quick = workload_of(Stream(rates=(RateStep(0.0, 1000.0),), seconds=10.0), 300)
    assert quick.append_interval_seconds == pytest.approx(0.02)


def test_deletions_are_counted_by_the_time_between_passes_however_soon_one_is_due() -> None:
    """On a stock broker a pass is due after half a second, and comes after fifteen."""
    stream = Stream(
        rates=(RateStep(0.0, 100.0),),
        seconds=200.0,
        state="retain-all",
        window_seconds=4.1,
        value_bytes=(500, 500),
    )
    policy = Policy(segment_ms=500, segment_index_bytes=65_536, dirty_ratio=0.01, delete_retention_ms=5000)
    load = workload_of(stream, 0)
    run = Simulation(1, policy, STOCK, Costs(), SimulationOptions(warm_seconds=50.0)).run(stream.updates())
    closed = predict(load, policy, STOCK, Costs())
    assert closed.size_mean_bytes == pytest.approx(run.size_mean_bytes, rel=0.1)
    assert closed.cleaner_cores == pytest.approx(run.cleaner_cores, rel=0.1)
