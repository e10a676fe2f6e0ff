"""The recommendation: the policy that holds a restore time at the least broker CPU, and why.

It searches the closed form (:mod:`stateflow.compaction.model.closed_form`), states its uncertainty, the
trade-off around it, what would change its mind, and, when compaction alone cannot meet the objective, what can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stateflow.compaction.advice.alternatives import BROKER_SETTINGS, alternatives
from stateflow.compaction.advice.explain import (
    CHEAPER_THAN_HAND,
    Setting,
    beside_hand,
    best_by_hand,
    guarded,
    limits,
    reasons,
    share_of_hand,
)
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommendation import CurvePoint, Outcome, Recommendation
from stateflow.compaction.advice.search import (
    Candidate,
    SearchSpace,
    candidates,
    cheapest,
    frontier,
    predicted,
)
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.knobs import knobs_for
from stateflow.errors import ConfigError

_CURVE_POINTS = 12
SAVING_MIN_CORES, SAVING_MIN_SHARE = 0.0005, 0.05
"""A change of settings is not worth a saving of less CPU than this."""
_KEPT = "The settings in force hold the objective, and no others would save CPU worth a change."
_HARDLY_LARGER = 1.02
_SMALLER = 1.05
"""With the CPU bounded, a log that is so much larger than it could be is worth a change."""
SIZE_RELATIVE_ERROR = 0.05
"""Of the predicted largest size: the closed form was 4.5 % off on average against 28 measured runs."""


def recommend(
    measurement: Measurement,
    restore_within_seconds: float | None = None,
    *,
    objective: Objective | None = None,
    costs: Costs | None = None,
    provider: str = "apache",
    fixed: frozenset[str] = frozenset(),
    with_alternatives: bool = True,
) -> Recommendation:
    """The policy that restores the measured topic within the time, at the least broker CPU.

    Give ``restore_within_seconds`` or a full ``objective``; settings named in ``fixed`` stay as they are. Never
    raises because nothing meets the objective: then ``reachable`` is False, and ``alternatives`` says what would.
    """
    if objective is None:
        if restore_within_seconds is None:
            raise ConfigError("There is no objective.", action="Give restore_within_seconds or an Objective.")
        objective = Objective(restore_within_seconds)
    version = (5, 0) if measurement.broker_newer_than_known else measurement.broker_version
    knobs = {
        name: replace(knob, tunable=False) if name in fixed else knob
        for name, knob in knobs_for(version, provider).items()
    }
    setting = Setting(measurement, objective, costs or Costs(), knobs)
    base, guards = guarded(setting.measurement, objective, setting.knobs)
    space = SearchSpace(
        base,
        setting.knobs,
        measurement.cleaner,
        setting.costs,
        objective.rate_headroom,
        objective.live_headroom,
        objective.parallelism(measurement.partitions),
        cores_bounded=objective.cpu_cores_max is not None,
    )
    found = candidates(measurement.workload(), space)
    (current,) = predicted(measurement.workload(), space, {measurement.policy: "time"})
    hand = best_by_hand(setting, space, found)
    chosen = _or_by_hand(cheapest(found, setting.bounds), hand)
    kept = chosen is not None and base == measurement.policy and _worth_keeping(setting, current, chosen)
    chosen = current if kept else chosen
    closest = chosen or _closest(found, setting.records_max)
    best = _outcome(setting, closest)
    changes = best.policy.changes_from(measurement.policy)
    others = alternatives(measurement, objective, setting.costs, base) if with_alternatives else ()
    with_broker_settings = next((one.share for one in others if one.name == BROKER_SETTINGS), None)
    return Recommendation(
        topic=measurement.topic,
        objective=objective,
        reachable=chosen is not None,
        current=_outcome(setting, current),
        best=best,
        runner_up=_runner_up(setting, found, closest),
        changes=changes,
        before={name: measurement.overrides.get(name) for name in changes},
        curve=_curve(setting, found),
        guards=guards,
        reasons=((_KEPT,) if kept else reasons(setting, closest, chosen is not None))
        + beside_hand(setting, hand, chosen, with_broker_settings),
        limits=limits(setting, closest) if chosen is not None else (),
        alternatives=others,
        unknown=measurement.unknown,
        hand_share=share_of_hand(hand, chosen),
        ranges={name: (knob.low, knob.high) for name, knob in setting.knobs.items() if knob.tunable},
    )


def _or_by_hand(chosen: Candidate | None, hand: Candidate | None) -> Candidate | None:
    """The best setting by hand instead, where the cheapest is hardly cheaper: predictions are not that exact, and plain
    numbers are easier to live with.
    """
    share = share_of_hand(hand, chosen)
    return chosen if share is None or share < CHEAPER_THAN_HAND else hand


def _closest(found: Sequence[Candidate], records_max: float) -> Candidate:
    """Where nothing holds the objective: a log that is hardly larger than the smallest one, at the least CPU; where the
    CPU is bounded, what surely costs least of all that are restored in time, if any is.

    Where cleaners do not keep up a size is a lower bound only, so that such a policy is the closest of its kind only.
    """
    keeping_up = [one for one in found if not one.stressed.saturated] or found
    in_time = [one for one in keeping_up if one.busiest and one.stressed.records_max <= records_max]
    if in_time:
        return min(in_time, key=lambda one: max(busy.cores for busy in one.busiest))
    smallest = min(one.stressed.records_max for one in keeping_up)
    nearly = [one for one in keeping_up if one.stressed.records_max <= _HARDLY_LARGER * smallest]
    return min(nearly, key=lambda one: one.expected.cores)


def _worth_keeping(setting: Setting, current: Candidate, chosen: Candidate) -> bool:
    """True when the settings in force hold the objective, and the cheapest ones hardly cost less."""
    if setting.measurement.records > setting.records_max:
        return False  # what lies there now takes too long already, whatever the steady state will be
    if (
        setting.bounds.cores_max is not None
        and current.stressed.records_max > _SMALLER * chosen.stressed.records_max
    ):
        return False
    if cheapest([current], setting.bounds) is None:
        return False
    return current.expected.cores - chosen.expected.cores <= resolution_cores(current.expected.cores)


def resolution_cores(cores: float) -> float:
    """How far above the cheapest policy settings in force may lie and still be recommended: CPU in cores.

    Recommendations are ordered only up to this: a longer restore time never costs more CPU than a shorter one,
    except that it may keep settings in force which cost so much more than the cheapest.
    """
    return max(SAVING_MIN_CORES, SAVING_MIN_SHARE * cores)


def _outcome(setting: Setting, candidate: Candidate) -> Outcome:
    expected, stressed = candidate.expected, candidate.stressed
    seconds = setting.restore_seconds(expected.records_max)
    error = math.hypot(SIZE_RELATIVE_ERROR, setting.measurement.restore.relative_error)
    error = math.hypot(error, setting.measurement.distinct_relative_error)
    factor = setting.costs.uncertainty_factor
    return Outcome(
        policy=candidate.policy,
        size_mean_bytes=expected.size_mean_bytes,
        size_max_bytes=expected.size_max_bytes,
        size_max_stressed_bytes=stressed.size_max_bytes,
        disk_max_bytes=expected.disk_max_bytes,
        records_max=expected.records_max,
        restore_seconds=seconds,
        restore_seconds_stressed=setting.restore_seconds(stressed.records_max),
        restore_seconds_low=seconds * (1 - error),
        restore_seconds_high=seconds * (1 + error),
        cleaner_cores=expected.cleaner_cores,
        cleaner_cores_low=expected.cleaner_cores / factor,
        cleaner_cores_high=expected.cleaner_cores * factor,
        roll_cores=expected.roll_cores,
        cycle_seconds=expected.cycle_seconds,
        segments_per_cycle=expected.segments_per_cycle,
        saturated=stressed.saturated,
        meets=candidate.holds(setting.bounds),
        cores_at_most=_cores_at_most(setting, candidate),
    )


def _cores_at_most(setting: Setting, candidate: Candidate) -> float | None:
    if not candidate.busiest:
        return None
    looking = setting.costs.looking_cores(setting.measurement.cleaner)
    return setting.costs.uncertainty_factor * (max(one.cores for one in candidate.busiest) + looking)


def _runner_up(setting: Setting, found: list[Candidate], chosen: Candidate) -> Outcome | None:
    """The cheapest candidate that closes its segments in the other way, else one clearly different in length."""
    others = [one for one in found if one.rolling != chosen.rolling]
    others = others or [
        one
        for one in found
        if abs(math.log(one.expected.segment_records / chosen.expected.segment_records)) > math.log(1.5)
    ]
    second = cheapest(others, setting.bounds)
    return None if second is None else _outcome(setting, second)


def _curve(setting: Setting, found: list[Candidate]) -> tuple[CurvePoint, ...]:
    points = frontier(found)
    step = max(1, len(points) / _CURVE_POINTS)
    chosen = {int(index * step) for index in range(_CURVE_POINTS)} | {len(points) - 1}
    return tuple(
        CurvePoint(
            restore_seconds=setting.restore_seconds(points[index].stressed.records_max),
            cores=points[index].expected.cores,
            segment_ms=points[index].policy.segment_ms,
            segment_bytes=points[index].policy.segment_bytes,
            dirty_ratio=points[index].policy.dirty_ratio,
        )
        for index in sorted(chosen)
        if 0 <= index < len(points)
    )
