"""The search: every policy worth a look, what it is predicted to do, and the cheapest that holds a bound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stateflow.compaction.model.closed_form import Prediction, predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import Workload
from stateflow.compaction.settings.knobs import Knob
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

SEGMENTS_PER_CYCLE = (1, 2, 3, 4, 6, 8, 12, 16)
_SEGMENT_STEP = 1.15
_INDEX_BYTES_MIN = 65_536
"""Smallest index worth having: it covers segments up to about 20 MiB and is never what rolling costs."""
_GUARD_MS_MIN = 60_000
_SEGMENTS_MAX = 100
"""Closed segments that the live records may fill: each keeps three files open, and costs the cleaner a flush."""
_ROUND_BYTES = 65_536

HAND_SEGMENT_MS = (100, 1000, 5000, 10_000, 30_000, 60_000, 300_000, 3_600_000)
HAND_DIRTY_RATIOS = (0.01, 0.1, 0.33, 0.5, 0.66)
"""What people set by hand. The search tries these, too: what it finds never costs more."""

Rolling = Literal["size", "time"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a policy must keep."""

    records_max: float
    disk_bytes_max: float | None = None
    cores_max: float | None = None
    """CPU of the broker: then the smallest log for it is looked for, and not the least CPU for a log."""
    cores_factor: float = 1.0
    """Passes may take so many times the CPU that is predicted for them, where CPU is bounded."""

    def allows_cores(self, busiest: Sequence[Prediction]) -> bool:
        """True when the CPU keeps its bound even where passes follow one another as soon as they are due."""
        most = self.cores_max
        return most is None or all(self.cores_factor * one.cores <= most for one in busiest)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy, what closes its segments, and what it leads to at the measured and at the highest load."""

    policy: Policy
    rolling: Rolling
    expected: Prediction
    stressed: Prediction
    busiest: tuple[Prediction, ...] = ()
    """At both loads, under a cleaner that never sleeps: no machine makes passes come more often. Where a thread waits
    for a core and a segment closes meanwhile, the next pass follows at once. Empty where no CPU is bounded.
    """

    def holds(self, bounds: Bounds) -> bool:
        """True when it keeps the bounds at the measured load and at the highest, and the cleaner keeps up.

        A higher load alone would not do: closing segments by size, it makes passes come sooner, and so may drop the
        tombstones of a burst before the next burst.
        """
        peak = max(self.expected.records_max, self.stressed.records_max)
        disk = max(self.expected.disk_max_bytes, self.stressed.disk_max_bytes)
        within = bounds.disk_bytes_max is None or disk <= bounds.disk_bytes_max
        cheap = bounds.allows_cores(self.busiest)
        return peak <= bounds.records_max and within and cheap and not self.stressed.saturated


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """What the search may turn, starting from the policy in force."""

    base: Policy
    knobs: Mapping[str, Knob]
    cleaner: CleanerSettings
    costs: Costs
    rate_headroom: float
    live_headroom: float
    parallelism: float = 1.0
    """Restorers that share the partitions."""
    cores_bounded: bool = False
    """Whether what a policy may cost at the most is asked for, too."""


def candidates(workload: Workload, space: SearchSpace) -> list[Candidate]:
    """All candidates, predicted. A few thousand at most."""
    return predicted(workload, space, _all_policies(workload, space))


def hand_points(space: SearchSpace) -> dict[Policy, Rolling]:
    """Policies as people choose them, and the one in force, as far as they are legal here."""
    time, ratio = space.knobs["segment.ms"], space.knobs["min.cleanable.dirty.ratio"]
    lengths = (
        [one for one in HAND_SEGMENT_MS if time.allows(one)] if time.tunable else [space.base.segment_ms]
    )
    ratios = HAND_DIRTY_RATIOS if ratio.tunable else (space.base.dirty_ratio,)
    found: dict[Policy, Rolling] = {space.base: "time"}
    found |= {
        replace(space.base, segment_ms=segment_ms, dirty_ratio=dirty_ratio): "time"
        for segment_ms in lengths
        for dirty_ratio in ratios
    }
    return found


def predicted(workload: Workload, space: SearchSpace, policies: Mapping[Policy, Rolling]) -> list[Candidate]:
    """These policies, predicted at this load and at the highest."""
    stressed = workload.stressed(space.rate_headroom, space.live_headroom)
    cleaner, costs, shared = space.cleaner, space.costs, space.parallelism
    return [
        Candidate(
            policy,
            rolling,
            predict(workload, policy, cleaner, costs, parallelism=shared),
            predict(stressed, policy, cleaner, costs, worst=True, parallelism=shared),
            busiest((workload, stressed), policy, cleaner, costs) if space.cores_bounded else (),
        )
        for policy, rolling in policies.items()
    ]


def busiest(
    loads: Sequence[Workload], policy: Policy, cleaner: CleanerSettings, costs: Costs
) -> tuple[Prediction, ...]:
    """These loads under a cleaner that never sleeps. Just after a window has closed hardly a key lives, so that any
    closed segment exceeds a ratio.
    """
    awake = replace(cleaner, backoff_ms=0)
    return tuple(
        predict(load, policy if load.bursts is None else replace(policy, dirty_ratio=0.0), awake, costs)
        for load in loads
    )


def cheapest(found: Sequence[Candidate], bounds: Bounds) -> Candidate | None:
    """The candidate with the least broker CPU that keeps the bounds at the highest load, or with the smallest log where
    the CPU is bounded; None when none does.
    """

    def cost(candidate: Candidate) -> tuple[float, float]:
        cores, records = candidate.expected.cores, candidate.stressed.records_max
        return (cores, records) if bounds.cores_max is None else (records, cores)

    return min((one for one in found if one.holds(bounds)), key=cost, default=None)


def least_cores(workload: Workload, space: SearchSpace, bounds: Bounds) -> float | None:
    """CPU of the cheapest policy that keeps the bounds, None where none does, without predicting all of them at the
    highest load, too.
    """
    if bounds.cores_max is not None:  # then the smallest log is the best
        chosen = cheapest(candidates(workload, space), bounds)
        return None if chosen is None else chosen.expected.cores
    policies, shared = _all_policies(workload, space), space.parallelism
    usual = [
        (predict(workload, policy, space.cleaner, space.costs, parallelism=shared), policy)
        for policy in policies
    ]
    for one, policy in sorted(usual, key=lambda row: row[0].cores):
        if one.records_max > bounds.records_max:
            continue
        (candidate,) = predicted(workload, space, {policy: policies[policy]})
        if candidate.holds(bounds):
            return one.cores
    return None


def _all_policies(workload: Workload, space: SearchSpace) -> dict[Policy, Rolling]:
    return {**hand_points(space), **dict(_policies(workload, space))}


def frontier(found: Sequence[Candidate]) -> list[Candidate]:
    """The trade-off: candidates that no other beats in both records at the peak and CPU, smallest log first."""
    best: list[Candidate] = []
    cores = math.inf
    for candidate in sorted(found, key=lambda one: (one.stressed.records_max, one.expected.cores)):
        if candidate.expected.cores < cores and not candidate.stressed.saturated:
            best.append(candidate)
            cores = candidate.expected.cores
    return best


def _policies(workload: Workload, space: SearchSpace) -> Iterator[tuple[Policy, Rolling]]:
    rate = max(workload.updates_per_second / workload.partitions, 1e-9)
    live_bytes = workload.live_records * workload.live_record_bytes / workload.partitions
    for policy, segment_bytes, rolling in _segments(workload, space, rate, live_bytes):
        if not space.knobs["min.cleanable.dirty.ratio"].tunable:
            yield policy, rolling
            continue
        for count in SEGMENTS_PER_CYCLE:
            # One segment: a ratio that any closed segment exceeds, so that the bound does not move with the
            # keys. More: half a segment from either neighbour, so that noise does not change the count.
            need = 0.02 * segment_bytes if count == 1 else (count - 0.5) * segment_bytes
            ratio = math.floor(1000 * need / (need + live_bytes)) / 1000
            yield replace(policy, dirty_ratio=space.knobs["min.cleanable.dirty.ratio"].clamp(ratio)), rolling


def _segments(
    workload: Workload, space: SearchSpace, rate: float, live_bytes: float
) -> Iterator[tuple[Policy, float, Rolling]]:
    """Segment lengths to try: closed by size (holds at any rate), or by time (for logs under a few MiB)."""
    size, time = space.knobs["segment.bytes"], space.knobs["segment.ms"]
    largest_bytes = max(64 * live_bytes, 64e6)
    floor_bytes = max(size.low, live_bytes / _SEGMENTS_MAX)
    segment_bytes = floor_bytes if size.tunable else float(space.base.segment_bytes)
    while segment_bytes <= min(max(largest_bytes, floor_bytes), size.high):
        guard_ms = time.clamp(max(_GUARD_MS_MIN, 10_000 * segment_bytes / workload.record_bytes / rate))
        policy = replace(
            space.base, segment_bytes=_rounded(segment_bytes) if size.tunable else space.base.segment_bytes
        )
        if time.tunable:
            policy = replace(policy, segment_ms=min(round(guard_ms), 604_800_000))
        yield _with_index(policy, space, segment_bytes), segment_bytes, "size"
        segment_bytes *= _SEGMENT_STEP
        if not size.tunable:
            break
    if not time.tunable:
        return
    segment_ms = max(time.low, 20.0)
    while (
        rate * segment_ms / 1000 * workload.record_bytes <= min(largest_bytes, 64e6)
        and segment_ms < 604_800_000
    ):
        long_bytes = rate * segment_ms / 1000 * workload.record_bytes
        policy = replace(space.base, segment_ms=int(segment_ms))
        yield _with_index(policy, space, long_bytes), long_bytes, "time"
        segment_ms *= _SEGMENT_STEP


def _with_index(policy: Policy, space: SearchSpace, segment_bytes: float) -> Policy:
    """The smallest index that a segment of this length cannot fill, twice over."""
    knob = space.knobs["segment.index.bytes"]
    if not knob.tunable:
        return policy
    wanted = max(_INDEX_BYTES_MIN, 24 * segment_bytes / space.cleaner.index_interval_bytes)
    power = 2 ** math.ceil(math.log2(wanted))
    return replace(
        policy, segment_index_bytes=int(min(knob.clamp(power), max(policy.segment_index_bytes, power)))
    )


def _rounded(segment_bytes: float) -> int:
    return math.ceil(segment_bytes / _ROUND_BYTES) * _ROUND_BYTES
