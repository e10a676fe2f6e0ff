"""The closed form against figures measured on Kafka 4.3.1."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from stateflow.compaction.model.closed_form import Prediction, predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.simulate import Simulation, SimulationOptions
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.model.workload import Workload, zipf_weights
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

# segment.ms, dirty ratio → largest log in MB, cleaner CPU in % of a core: one partition, 10,000 Zipf keys,
# 4,000 updates/s of 571 bytes, 40 s, log.cleaner.backoff.ms=100.
MEASURED = {
    (100, 0.01): (6.0, 24.5),
    (100, 0.33): (8.5, 3.3),
    (100, 0.66): (15.6, 1.3),
    (1000, 0.01): (7.9, 3.6),
    (1000, 0.33): (10.3, 2.3),
    (1000, 0.66): (17.1, 1.3),
}
WEIGHTS = zipf_weights(10_000, 0.99)
QUICK_CLEANER = CleanerSettings(backoff_ms=100)


def study(policy: Policy, seconds: float = 40.0) -> Prediction:
    live = math.fsum(
        -math.expm1(-4000 * seconds * weight) for weight in WEIGHTS
    )  # different keys among the draws
    return predict(Workload(1, live, 4000, 571, 571), policy, QUICK_CLEANER, Costs())


@pytest.mark.parametrize("cell", MEASURED)
def test_largest_log_is_within_six_percent_of_what_was_measured(cell: tuple[int, float]) -> None:
    predicted = study(Policy(segment_ms=cell[0], dirty_ratio=cell[1])).size_max_bytes / 1e6
    assert predicted == pytest.approx(MEASURED[cell][0], rel=0.06)


@pytest.mark.parametrize("cell", MEASURED)
def test_cleaner_cpu_is_within_a_quarter_of_what_was_measured(cell: tuple[int, float]) -> None:
    costs = Costs()
    predicted = study(Policy(segment_ms=cell[0], dirty_ratio=cell[1]), seconds=27.5).cleaner_cores
    assert 100 * (predicted + costs.looking_cores(QUICK_CLEANER)) == pytest.approx(
        MEASURED[cell][1], rel=0.25
    )


def test_a_ratio_of_one_is_never_exceeded_so_nothing_is_ever_cleaned() -> None:
    predicted = study(Policy(segment_ms=100, dirty_ratio=1.0))
    assert math.isinf(predicted.size_max_bytes)
    assert predicted.cleaner_cores == 0


def test_max_lag_makes_a_log_eligible_whatever_its_ratio() -> None:
    predicted = study(Policy(segment_ms=100, dirty_ratio=1.0, max_lag_ms=2000))
    assert 1.9 < predicted.cycle_seconds < 2.2


def test_a_long_backoff_hides_the_topic_settings() -> None:
    policy = Policy(segment_ms=1000, dirty_ratio=0.01)
    workload = Workload(1, 9450, 4000, 571, 571)
    slow = predict(workload, policy, CleanerSettings(backoff_ms=15_000), Costs())
    assert slow.size_max_bytes / 1e6 == pytest.approx(40, rel=0.06)  # measured: 7.9 MB became 40 MB


def test_size_rolled_segments_hold_their_bound_when_the_rate_triples() -> None:
    policy = Policy(segment_bytes=2 << 20, dirty_ratio=0.3)
    calm = predict(Workload(1, 9450, 3000, 571, 571), policy, QUICK_CLEANER, Costs())
    busy = predict(Workload(1, 9450, 9000, 571, 571), policy, QUICK_CLEANER, Costs())
    assert busy.size_max_bytes < 1.15 * calm.size_max_bytes
    timed = Policy(segment_ms=1000, dirty_ratio=0.3)
    calm = predict(Workload(1, 9450, 3000, 571, 571), timed, QUICK_CLEANER, Costs())
    busy = predict(Workload(1, 9450, 9000, 571, 571), timed, QUICK_CLEANER, Costs())
    assert busy.size_max_bytes > 1.2 * calm.size_max_bytes


def test_min_lag_keeps_its_time_worth_of_records_uncleaned() -> None:
    policy = Policy(segment_ms=1000, dirty_ratio=0.33)
    without = study(policy)
    with_lag = study(Policy(segment_ms=1000, dirty_ratio=0.33, min_lag_ms=10_000))
    assert with_lag.records_max - without.records_max == pytest.approx(40_000, rel=0.01)


def test_replaced_files_hide_much_more_than_the_log_shows() -> None:
    predicted = study(Policy(segment_ms=100, dirty_ratio=0.01, file_delete_delay_ms=60_000))
    assert predicted.disk_max_bytes > 100 * predicted.size_max_bytes


def test_a_cleaner_that_cannot_keep_up_is_called_saturated() -> None:
    workload = Workload(50, 5_000_000, 200_000, 500, 500)
    predicted = predict(workload, Policy(segment_ms=50, dirty_ratio=0.01), QUICK_CLEANER, Costs())
    assert predicted.saturated


def test_more_keys_than_the_dedupe_buffer_holds_take_several_passes() -> None:
    workload = Workload(1, 4_000_000, 20_000, 100, 100)
    policy = Policy(segment_bytes=1 << 30, segment_index_bytes=10_485_760, dirty_ratio=0.5)
    large = predict(workload, policy, CleanerSettings(backoff_ms=100), Costs())
    small = predict(workload, policy, CleanerSettings(backoff_ms=100, dedupe_buffer_bytes=16 << 20), Costs())
    assert small.cleaner_cores > 1.8 * large.cleaner_cores


@pytest.mark.parametrize("zipf_exponent", [None, 0.99], ids=["uniform", "zipf"])
@pytest.mark.parametrize("overwritten", [0.7, 7.0])
def test_batches_that_lose_all_of_their_records_are_not_rebuilt(
    zipf_exponent: float | None, overwritten: float
) -> None:
    """Where keys are overwritten several times between passes, four times too many batches were counted as rebuilt."""
    keys, rate, linger = 300, 500.0, 0.02
    segment_ms = round(1000 * overwritten * keys / rate)
    stream = Stream(
        keys=keys,
        rates=(RateStep(0.0, rate),),
        seconds=6 * segment_ms / 1000 + 4,
        zipf_exponent=zipf_exponent,
        value_bytes=(500, 500),
    )
    policy = Policy(segment_ms=segment_ms, segment_index_bytes=65_536, dirty_ratio=0.001)
    rebuilding = replace(Costs().scaled(0.0), rebuild_seconds_per_batch=1e-4)
    often = CleanerSettings(backoff_ms=1)
    options = SimulationOptions(linger, 3 * segment_ms / 1000)
    run = Simulation(1, policy, often, rebuilding, options).run(stream.updates())
    load = Workload(1, run.live_end, rate, 522, 522, append_interval_seconds=linger)
    closed = predict(load, policy, often, rebuilding)
    assert 0.5 < closed.cleaner_cores / run.cleaner_cores < 1.6


def test_passes_that_are_never_alike_are_all_counted() -> None:
    """After a sleep of 15 s a pass is long, and the next ones shorter until the thread sleeps: which of them the search
    for a steady state ended on decided whether 0.7 % of a core was predicted, or all of it.
    """
    load = Workload(1, 100_000, 260_000.0, 140.0, 140.0)
    policy = Policy(segment_ms=123, dirty_ratio=0.324)
    found = predict(load, policy, CleanerSettings(), Costs())
    new_records = 260_000 * Costs().dirty_seconds_per_record
    assert found.cleaner_cores > new_records
    assert found.cleaner_cores < 1
    assert found.records_max > 15 * 260_000, "what comes while the thread sleeps"
