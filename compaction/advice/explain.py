"""Why a policy was chosen, what keeps it safe, and what would change the choice, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.search import (
    Bounds,
    Candidate,
    SearchSpace,
    busiest,
    cheapest,
    hand_points,
)
from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import Knob
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

CHEAPER_THAN_HAND = 0.95
"""Less than this share of what a setting by hand costs is worth telling as a saving."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that stays fixed during one search."""

    measurement: Measurement
    objective: Objective
    costs: Costs
    knobs: Mapping[str, Knob]

    @property
    def records_max(self) -> float:
        """The record budget: what the restorers can restore in time, less the margin."""
        objective = self.objective
        within = self.measurement.restore.records_within(objective.restore_within_seconds)
        return within * objective.parallelism(self.measurement.partitions) * (1 - objective.margin)

    @property
    def bounds(self) -> Bounds:
        """All that a policy must keep."""
        return bounds_of(self.objective, self.records_max, self.costs, self.measurement.cleaner)

    def restore_seconds(self, records: float) -> float:
        """How long the objective's restorers take for a log of so many records."""
        return self.measurement.restore.seconds(
            records / self.objective.parallelism(self.measurement.partitions)
        )


def bounds_of(objective: Objective, records_max: float, costs: Costs, cleaner: CleanerSettings) -> Bounds:
    """What a policy must keep for an objective: of the CPU, what looks leave; both at the most that they may cost."""
    cores_max = objective.cpu_cores_max
    if cores_max is None:
        return Bounds(records_max, objective.disk_bytes_max)
    factor = costs.uncertainty_factor
    left = cores_max - factor * costs.looking_cores(cleaner)
    return Bounds(records_max, objective.disk_bytes_max, left, factor)


def guarded(
    measurement: Measurement, objective: Objective, knobs: Mapping[str, Knob]
) -> tuple[Policy, tuple[str, ...]]:
    """The policy in force with the settings that keep data safe, and a sentence about each."""
    policy, guards = measurement.policy, []
    floor_ms = objective.tombstone_guard_ms
    # Where tombstones come in bursts, those that are kept make much of the log; the slowest reader, if it was named,
    # says for how long they must be.
    longer_than_needed = measurement.bursts is not None and objective.replay_seconds_max is not None
    if policy.delete_retention_ms < floor_ms or longer_than_needed:
        policy = replace(policy, delete_retention_ms=int(knobs["delete.retention.ms"].clamp(floor_ms)))
    guards.append(
        f"delete.retention.ms is {policy.delete_retention_ms} (at least {floor_ms}), so that even a "
        f"replay of "
        f"{floor_ms / 1000:.0f} s sees every tombstone: no deleted key returns."
    )
    if measurement.transactional:
        lag_ms = objective.transaction_timeout_ms + 1000
        policy = replace(policy, min_lag_ms=max(policy.min_lag_ms, lag_ms))
        guards.append(
            f"min.compaction.lag.ms is {policy.min_lag_ms}, above the producers' transaction timeout of "
            f"{objective.transaction_timeout_ms} ms: what a dangling transaction could still touch is "
            f"never cleaned."
        )
    else:
        guards.append("The log carries no transaction markers, so min.compaction.lag.ms stays as it is.")
    if policy.max_lag_ms < policy.min_lag_ms:
        policy = replace(policy, max_lag_ms=policy.min_lag_ms)
        guards.append("max.compaction.lag.ms is raised to min.compaction.lag.ms: Kafka refuses less.")
    return policy, tuple(guards)


def reasons(setting: Setting, chosen: Candidate, reachable: bool) -> tuple[str, ...]:
    """From the objective to the policy, step by step."""
    measurement, objective = setting.measurement, setting.objective
    budget, live = setting.records_max, measurement.records_floor * objective.live_headroom
    told = [_sum(setting)]
    if budget <= live:
        told.append(
            f"The {live:,.0f} live records alone exceed that: no compaction, however hard, can meet the "
            f"objective."
        )
    elif not reachable and chosen.busiest and not setting.bounds.allows_cores(chosen.busiest):
        told.append(_too_dear(setting, chosen))
    elif not reachable:
        told.append(
            f"The live records leave room for {budget - live:,.0f} superseded ones, but the smallest peak "
            f"within the "
            f"legal ranges is {chosen.stressed.records_max - live:,.0f}: legal segment lengths, the "
            f"cleaner's backoff "
            "or the lag guard stand in the way."
        )
    else:
        told.append(
            f"The live records leave room for {budget - live:,.0f} superseded ones; the policy lets them "
            f"grow to "
            f"{chosen.stressed.records_max - live:,.0f} before a pass, because every pass costs the same "
            f"whether it "
            "removes few or many."
        )
        how = (
            "size, which holds at any update rate"
            if chosen.rolling == "size"
            else "time, as they are too small for segment.bytes"
        )
        told.append(
            f"Segments are closed by {how}; {chosen.expected.segments_per_cycle} of them start a pass."
        )
    return tuple(told)


def _too_dear(setting: Setting, chosen: Candidate) -> str:
    most, factor = setting.objective.cpu_cores_max, setting.costs.uncertainty_factor
    assert most is not None, "only a bound can be too tight"
    looking = setting.costs.looking_cores(setting.measurement.cleaner)
    cores = max(one.cores for one in chosen.busiest) + looking
    return (
        f"No policy surely costs less than {most:.2%} of a core and holds the restore time: the closest takes up to "
        f"{cores:.2%} where the machine is busy and passes follow one another, and costs are known to a factor of "
        f"{factor:g} ({setting.costs.source})."
    )


def best_by_hand(setting: Setting, space: SearchSpace, found: Sequence[Candidate]) -> Candidate | None:
    """The cheapest setting that people choose by hand among those that hold the bounds; None when none does, or when
    CPU is what is bounded.
    """
    if setting.bounds.cores_max is not None:
        return None
    by_hand = hand_points(space)
    return cheapest([one for one in found if one.policy in by_hand], setting.bounds)


def share_of_hand(hand: Candidate | None, chosen: Candidate | None) -> float | None:
    """CPU of the policy chosen as a share of that of the best one by hand; None where there is no such comparison."""
    if chosen is None or hand is None:
        return None
    return chosen.expected.cores / max(hand.expected.cores, 1e-12)


def beside_hand(
    setting: Setting, hand: Candidate | None, chosen: Candidate | None, with_broker_settings: float | None
) -> tuple[str, ...]:
    """What the policy saves beside the best one that people choose by hand; plainly, where nothing is cheaper.

    ``with_broker_settings`` is the share of its CPU that it takes with cleaner settings that fit; None where these
    hardly save anything, or are in force.
    """
    share = share_of_hand(hand, chosen)
    if hand is None or share is None:
        return ()
    cleaner = setting.measurement.cleaner
    point = f"segment.ms={hand.policy.segment_ms} with min.cleanable.dirty.ratio={hand.policy.dirty_ratio:g}"
    if share < CHEAPER_THAN_HAND:
        return (
            f"It takes {share:.0%} of the CPU of the best setting by hand that holds the same bound, {point}.",
        )
    left = (
        "No cleaner settings of the broker are known to save much, either."
        if with_broker_settings is None
        else f"With cleaner settings of the broker that fit it takes {with_broker_settings:.0%} of it "
        "(--broker-settings)."
    )
    return (
        f"No topic setting is predicted to be {1 - CHEAPER_THAN_HAND:.0%} cheaper than one chosen by hand, {point}: "
        f"passes come when a cleaner thread looks, every {cleaner.backoff_ms / 1000:g} s, and cost the same. {left}",
    )


def _sum(setting: Setting) -> str:
    """From the restore time to the record budget: figures that add up."""
    objective, restore = setting.objective, setting.measurement.restore
    shared = objective.parallelism(setting.measurement.partitions)
    within = restore.records_within(objective.restore_within_seconds)
    one = f"In {objective.restore_within_seconds:g} s one restorer reads {within:,.0f} records: {restore.told(within)}"
    several = "" if shared == 1 else f" {objective.restorers} restorers read {within * shared:,.0f}."
    return (
        f"{one} ({restore.source}).{several} With {objective.margin:.0%} kept free the log may have "
        f"{setting.records_max:,.0f}."
    )


def limits(setting: Setting, chosen: Candidate) -> tuple[str, ...]:
    """The update rate and the number of keys at which this policy stops holding the objective."""
    workload = setting.measurement.workload()
    cleaner, costs = setting.measurement.cleaner, setting.costs
    shared = setting.objective.parallelism(setting.measurement.partitions)

    bounds = setting.bounds

    def holds(rate: float = 1.0, live: float = 1.0) -> bool:
        load = workload.stressed(rate, live)
        outcome = predict(load, chosen.policy, cleaner, costs, worst=True, parallelism=shared)
        if outcome.records_max > setting.records_max or outcome.saturated:
            return False
        if bounds.disk_bytes_max is not None and outcome.disk_max_bytes > bounds.disk_bytes_max:
            return False
        return bounds.cores_max is None or bounds.allows_cores(busiest([load], chosen.policy, cleaner, costs))

    rate = _largest(lambda factor: holds(rate=factor))
    live = _largest(lambda factor: holds(live=factor))
    if not workload.updates_per_second or not workload.live_records:
        return ()  # so many times nothing says nothing
    updates, keys = rate * workload.updates_per_second, live * workload.live_records
    return (
        f"The policy holds up to {rate:.1f} times the measured update rate ({updates:,.0f}/s).",
        f"It holds up to {live:.2f} times the measured number of keys ({keys:,.0f}).",
    )


def _largest(holds: Callable[[float], bool], ceiling: float = 1000.0) -> float:
    """The largest factor from 1 up that still holds, by bisection; 1 when even that does not."""
    low, high = 1.0, ceiling
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
