"""Beside settings by hand, with cleaner settings that fit, and with a bound on CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateflow.compaction.advice.fitting import fitting_cleaner, fitting_for_all
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.recommendation import Recommendation
from stateflow.compaction.advice.search import (
    HAND_DIRTY_RATIOS,
    HAND_SEGMENT_MS,
    Bounds,
    SearchSpace,
    candidates,
    cheapest,
    least_cores,
)
from stateflow.compaction.calibration.default_costs import CLIENT_COMPILER
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import knobs_for
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

STOCK = Measurement.known(
    "t",
    live_keys=1000,
    updates_per_second=500.0,
    record_bytes=571.0,
    restore=RestoreRate(250_000, 0.02, "given", 0.1),
    cleaner=CleanerSettings(),
)


def with_fitting_cleaner(load: Measurement, objective: Objective, costs: Costs, backoff_ms: int) -> float:
    """CPU of the best policy with the buffer that fits and this backoff, looks included."""
    cleaner = replace(fitting_cleaner(load, objective, costs), backoff_ms=backoff_ms)
    found = recommend(
        replace(load, cleaner=cleaner), objective=objective, costs=costs, with_alternatives=False
    )
    if not found.reachable:
        return float("inf")
    return found.best.cleaner_cores + found.best.roll_cores + costs.looking_cores(cleaner)


@pytest.mark.parametrize("costs", [Costs(), CLIENT_COMPILER], ids=["both compilers", "client compiler"])
@pytest.mark.parametrize("updates_per_second", [60.0, 500.0])
def test_the_backoff_chosen_costs_hardly_more_than_any_other(costs: Costs, updates_per_second: float) -> None:
    """Every look at all logs costs, and what a long sleep adds to the log has to be cleaned for sooner."""
    load = replace(STOCK, live_keys=1000, updates_per_second=updates_per_second)
    seconds = load.restore.seconds(1000 + 24 * updates_per_second)
    objective = Objective(seconds, margin=0.02, rate_headroom=1.0, live_headroom=1.0)
    chosen = fitting_cleaner(load, objective, costs).backoff_ms
    cores = with_fitting_cleaner(load, objective, costs, chosen)
    others = [250, 1000, 4000, 15_000]
    assert cores <= 1.1 * min(with_fitting_cleaner(load, objective, costs, one) for one in others)


def test_a_cleaner_for_several_topics_has_the_larger_buffer_and_the_shorter_sleep() -> None:
    small, large = CleanerSettings(1, 4000, 2 << 20), CleanerSettings(1, 9000, 16 << 20)
    assert fitting_for_all([small, large]) == CleanerSettings(1, 4000, 16 << 20)


def test_a_point_by_hand_is_taken_where_nothing_is_much_cheaper() -> None:
    """Predictions are not so exact that a few percent were worth odd numbers: then nothing costs more than by hand."""
    load = replace(STOCK, live_keys=1000, records=1500, updates_per_second=60.0)
    objective = Objective(
        load.restore.seconds(1000 + 24 * 60), margin=0.02, rate_headroom=1.0, live_headroom=1.0
    )
    free = replace(load, policy=Policy(segment_index_bytes=65_536))
    found = recommend(free, objective=objective, with_alternatives=False)
    assert found.hand_share == 1.0
    assert found.best.policy.segment_ms in HAND_SEGMENT_MS
    assert found.best.policy.dirty_ratio in HAND_DIRTY_RATIOS


def test_the_closest_policy_costs_no_core_for_the_last_percent() -> None:
    load = replace(STOCK, live_keys=200_000, updates_per_second=500.0)
    found = recommend(load, load.restore.seconds(100_000), with_alternatives=False)
    assert not found.reachable
    assert found.best.cleaner_cores < 0.1


def test_a_bound_on_cpu_counts_what_is_not_known_of_the_costs() -> None:
    load = replace(STOCK, live_keys=1000, updates_per_second=60.0)
    known = replace(Costs(), uncertainty_factor=1.2)
    bounded = Objective(load.restore.seconds(30_000), cpu_cores_max=0.01)
    for costs in (Costs(), known):
        found = recommend(load, objective=bounded, costs=costs, with_alternatives=False)
        assert found.reachable
        cores = found.best.cleaner_cores + found.best.roll_cores
        assert costs.uncertainty_factor * (cores + costs.looking_cores(load.cleaner)) <= 0.01
        assert found.best.cores_at_most is not None
        assert costs.uncertainty_factor * cores <= found.best.cores_at_most <= 0.01
    sure = recommend(load, objective=bounded, costs=known, with_alternatives=False)
    unsure = recommend(load, objective=bounded, costs=Costs(), with_alternatives=False)
    assert sure.best.records_max <= unsure.best.records_max


def test_a_bound_on_cpu_that_nothing_surely_keeps_is_said_to_be_too_tight() -> None:
    load = replace(STOCK, live_keys=1000, updates_per_second=60.0)
    found = recommend(load, objective=Objective(load.restore.seconds(30_000), cpu_cores_max=0.0001))
    assert not found.reachable
    assert any("No policy surely costs less than 0.01% of a core" in reason for reason in found.reasons)
    loose = recommend(load, objective=Objective(load.restore.seconds(30_000)), with_alternatives=False)
    assert found.best.cleaner_cores <= 1.5 * loose.best.cleaner_cores, (
        "the closest is the one that costs least"
    )
    assert found.best.restore_seconds_stressed <= found.objective.restore_within_seconds


def test_load_may_grow_as_far_as_cpu_and_disk_keep_their_bounds_too() -> None:
    """A rate was said to be held at which the disk would be full, or the CPU spent."""
    load = replace(STOCK, live_keys=1000, updates_per_second=60.0)
    free = Objective(load.restore.seconds(30_000))
    loose = recommend(load, objective=free, with_alternatives=False)
    tight = recommend(
        load, objective=replace(free, disk_bytes_max=1.3 * loose.best.disk_max_bytes), with_alternatives=False
    )

    def rate_times(found: Recommendation) -> float:
        (text, _) = found.limits
        return float(text.split("up to ")[1].split(" times")[0])

    assert rate_times(tight) < rate_times(loose)


@pytest.mark.parametrize("rate", [60.0, 4000.0])
@pytest.mark.parametrize("disk", [None, 1.5e6, 1e5])
def test_the_least_cpu_is_that_of_the_cheapest_candidate(rate: float, disk: float | None) -> None:
    load = replace(STOCK, live_keys=1000, updates_per_second=rate).workload()
    space = SearchSpace(Policy(), knobs_for(), CleanerSettings(), CLIENT_COMPILER, 1.25, 1.05)
    for records in (1500.0, 1000 + 40 * rate):
        bounds = Bounds(records, disk)
        chosen = cheapest(candidates(load, space), bounds)
        assert least_cores(load, space, bounds) == (None if chosen is None else chosen.expected.cores)
