"""Beside settings by hand, with cleaner settings that fit, and with a bound on CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateflow.compaction.advice.fitting import fitting_cleaner, fitting_for_all
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.advice.search import HAND_DIRTY_RATIOS, HAND_SEGMENT_MS
from stateflow.compaction.calibration.default_costs import CLIENT_COMPILER
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measurement import Measurement
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
        assert costs.uncertainty_factor * cores + costs.looking_cores(load.cleaner) <= 0.01
    sure = recommend(load, objective=bounded, costs=known, with_alternatives=False)
    unsure = recommend(load, objective=bounded, costs=Costs(), with_alternatives=False)
    assert sure.best.records_max <= unsure.best.records_max
