"""The closed form of log compaction: how large a log grows, and what its cleaning costs.

With live records L, and a pass due after m segments (:mod:`stateflow.compaction.model.passes`), the log peaks at
L + m segments + what arrives while the cleaner sleeps (backoff) and works, also where it sleeps for longer than a
segment takes (:mod:`stateflow.compaction.model.looks`). Partitions that wait for one another do not add to the peak of
all together: while one waits, others shrink.

Where keys are deleted in bursts of B tombstones every T seconds, the log peaks within a cycle C of a burst, before the
pass that drops what it deleted: L + what C brings + B for the last burst, and for older ones. A tombstone stays for
``delete.retention.ms`` after the pass that found it, until the next: for that time + 2C; where every closed segment
brings a pass, and so passes come evenly, for C and as many whole C as that time needs. The mean pass finds B/2 fewer
keys than L, and as many tombstones as the retention holds.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.passes import Cycle, due_records, steady_state
from stateflow.compaction.model.workload import Bursts, Workload
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

_SURELY_ONE_SEGMENT = 1.5
"""The ratio asks for less than half a segment, so that every closed segment brings a pass, whatever keys do."""
_SAME = 1e-9
"""Of an interval: times that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a policy leads to in the steady state, over all partitions of the topic."""

    size_mean_bytes: float
    size_max_bytes: float
    records_max: float
    """Where several restore at a time: the most that one of them may have to read, times how many they are."""
    disk_max_bytes: float
    """With the cleaner's copy, and with replaced files that ``file.delete.delay.ms`` keeps."""
    cleaner_cores: float
    """CPU seconds per second spent by cleaner threads on this topic, on each broker that holds a replica."""
    roll_cores: float
    """CPU seconds per second spent in the append path closing segments."""
    cycle_seconds: float
    """From one pass over a partition to the next."""
    segment_records: float
    segments_per_cycle: int
    saturated: bool
    """True when the cleaner threads cannot keep up; sizes are then only a lower bound."""
    turn_seconds: float = 0.0
    """From the start of a pass until its thread has served the partitions that are due with it."""

    @property
    def cores(self) -> float:
        """All CPU that the policy costs the broker."""
        return self.cleaner_cores + self.roll_cores


NEVER_CLEANED = math.inf
SATURATION = 0.9
"""Busier than this, a cleaner thread has no room for a peak."""
_KNOWN_MAX = 4096
"""Predictions that are remembered: those of a search, and of the one that it is compared with; a kilobyte each."""


def predict(
    workload: Workload,
    policy: Policy,
    cleaner: CleanerSettings,
    costs: Costs,
    *,
    worst: bool = False,
    parallelism: float = 1.0,
    others_seconds: float = 0.0,
) -> Prediction:
    """The steady state under a policy. Sizes are infinite when the policy never compacts this load.

    ``worst`` does not rely on where segments happen to end: a pass then starts a whole segment after the ratio was
    reached. A bound that must hold while load drifts is checked so. ``parallelism`` is how many restorers share the
    partitions: each has a part of them, which may be the part that the cleaner comes to last. ``others_seconds`` is how
    long passes over other topics keep the cleaner thread from its next look.
    """
    return _predict(workload, policy, cleaner, costs, worst, parallelism, others_seconds)


# A recommendation comes back to most of its policies for each alternative.
@functools.lru_cache(maxsize=_KNOWN_MAX)
def _predict(
    workload: Workload,
    policy: Policy,
    cleaner: CleanerSettings,
    costs: Costs,
    worst: bool,
    parallelism: float,
    others_seconds: float,
) -> Prediction:
    steady = steady_state(workload, policy, cleaner, costs, worst=worst, others_seconds=others_seconds)
    if isinstance(steady, float):
        return _never(steady)
    rate, live, segment, due, cycle, mean = steady
    lag = policy.min_lag_ms / 1000
    batch = rate * workload.append_interval_seconds
    reach = cycle.looks.reach_worst if worst else mean.looks.reach_max
    dirty_max = rate * (lag + reach + cycle.pass_wall) + (max(1.0, batch) if worst else 0.0)
    asleep_mean = mean.looks.left_mean + mean.queue_max / 2 + mean.pass_wall
    dirty_mean = rate * (lag + asleep_mean + mean.period / 2)
    dirty_bytes = workload.record_bytes + mean.deleted_bytes / (rate * mean.period)
    queued_max = rate * cycle.queue_max * _last_share(parallelism, workload.partitions)
    tombstones_max = 0.0
    if workload.bursts is not None:
        evenly = (
            due_records(workload, policy, live, segment, rate, worst=True) <= _SURELY_ONE_SEGMENT * segment
        )
        stay = _stay_seconds(policy, cycle, dirty_max / rate + cycle.queue_max, evenly=evenly)
        if worst:  # a window's tombstones come with the first update after it, and in the batch of that
            stay += max(workload.append_interval_seconds, 1 / rate)
        each = workload.bursts.scaled(1 / workload.partitions)
        tombstones_max = _tombstones_max(each, dirty_max / rate, stay)
    count = workload.partitions
    clean_bytes = cycle.clean_bytes
    size_max = live * workload.live_record_bytes + dirty_max * workload.record_bytes
    if workload.bursts is not None:
        size_max += tombstones_max * workload.bursts.tombstone_bytes
    replaced = clean_bytes + cycle.dirty * workload.record_bytes
    hidden = replaced * (policy.file_delete_delay_ms / 1000 / cycle.period)
    return Prediction(
        size_mean_bytes=count * (mean.clean_bytes + dirty_mean * dirty_bytes),
        size_max_bytes=count * size_max,
        records_max=count * (live + dirty_max + queued_max + tombstones_max),
        disk_max_bytes=count * (size_max + hidden) + min(count, cleaner.threads) * clean_bytes,
        cleaner_cores=count * mean.pass_cpu / mean.period,
        roll_cores=count * costs.segment_seconds(policy) * rate / segment,
        cycle_seconds=mean.period,
        segment_records=segment,
        segments_per_cycle=math.ceil(due / segment),
        saturated=count * cycle.pass_wall / cycle.period / cleaner.threads > SATURATION,
        turn_seconds=cycle.looks.turn,
    )


def _last_share(parallelism: float, partitions: int) -> float:
    """Of the queue before the last partition, what those of one restorer wait for: nothing when it has them all."""
    return (1 - 1 / parallelism) / (1 - 1 / partitions) if partitions > 1 else 0.0


def _stay_seconds(policy: Policy, cycle: Cycle, cycle_seconds: float, *, evenly: bool) -> float:
    """How long a tombstone is in the log at most: until the pass that finds it, for its retention, until the next."""
    retention = policy.delete_retention_ms / 1000
    if not evenly or cycle.looks.backoff > cycle.looks.segment:
        return retention + 2 * cycle_seconds
    late = cycle_seconds - cycle.period
    return cycle_seconds + cycle.period * math.ceil((retention + late) / cycle.period) + late


def _tombstones_max(bursts: Bursts, cycle_seconds: float, stay_seconds: float) -> float:
    """Tombstones in the log at its fullest, less the keys that are then missing from the open window.

    Just before a pass ends, what is new goes back a cycle, and tombstones are there of every burst of ``stay_seconds``.
    The window that was open where the cleaned part ends was then ``age`` old. The log is fullest where that window was
    about to close, or where the oldest burst is about to go.
    """
    interval = bursts.interval_seconds

    def excess(age: float) -> float:
        new = math.floor((cycle_seconds + age) / interval + _SAME)
        kept = math.floor((stay_seconds - cycle_seconds - age) / interval + _SAME) + 1
        return bursts.records * (new + max(0, kept) - (1 - age / interval))

    return max(excess(interval), excess(math.fmod(max(0.0, stay_seconds - cycle_seconds), interval)))


def _never(segment: float) -> Prediction:
    return Prediction(
        size_mean_bytes=NEVER_CLEANED,
        size_max_bytes=NEVER_CLEANED,
        records_max=NEVER_CLEANED,
        disk_max_bytes=NEVER_CLEANED,
        cleaner_cores=0.0,
        roll_cores=0.0,
        cycle_seconds=math.inf,
        segment_records=segment,
        segments_per_cycle=0,
        saturated=False,
    )
