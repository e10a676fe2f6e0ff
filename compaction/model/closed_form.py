"""The closed form of log compaction: how large a log grows, and what its cleaning costs.

With live records L and dirty ratio r, the cleaner takes a partition once its closed segments hold strictly more
dirty bytes than L·r/(1−r), so after a whole number m of segments. A pass zero-fills the dedupe buffer, reads the
whole log (read amplification 1/r) and writes the live records anew (write amplification (1−r)/r). The log peaks at
L + m segments + what arrives while the cleaner sleeps (backoff) and works. The rules are those of
``LogCleanerManager`` and ``Cleaner`` in Kafka 4.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stateflow.compaction.model.workload import Workload
from stateflow.compaction.settings.policy import CleanerSettings, Policy

_INDEX_ENTRY_BYTES = 12  # a time index entry; the offset index has 8, so the time index fills first
_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds that compaction costs on a broker; the defaults were fitted to 28 measured runs of Kafka 4.3."""

    pass_seconds: float = 0.0037
    """Per pass: choosing the partition, opening segments, swapping files."""
    fill_seconds_per_byte: float = 0.0174 / 134_217_728
    """Per pass and byte of one thread's dedupe buffer, which is zero-filled first."""
    read_seconds_per_record: float = 0.165e-6
    write_seconds_per_record: float = 1.086e-6
    roll_seconds: float = 0.00084
    """Per segment closed in the append path, indexes apart."""
    index_seconds_per_byte: float = 0.00476 / 10_485_760
    """Per byte of ``segment.index.bytes``, at every roll."""
    sync_seconds: float = 0.025
    """Wall time per segment that a pass writes which is not CPU: flushing it to disk."""
    idle_share: float = 0.0036
    """Of one core, spent by a cleaner thread that only looks."""
    source: str = "defaults"
    uncertainty_factor: float = 4.0
    """Predicted CPU is right to within this factor either way. The defaults were fitted with the server compiler of
    the JVM; with only the client compiler (small and embedded brokers) the same pass takes three times as long.
    """


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a policy leads to in the steady state, over all partitions of the topic."""

    size_mean_bytes: float
    size_max_bytes: float
    records_max: float
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

    @property
    def cores(self) -> float:
        """All CPU that the policy costs the broker."""
        return self.cleaner_cores + self.roll_cores


NEVER_CLEANED = math.inf
SATURATION = 0.9
"""Busier than this, a cleaner thread has no room for a peak."""


def predict(
    workload: Workload,
    policy: Policy,
    cleaner: CleanerSettings,
    costs: Costs,
    *,
    worst: bool = False,
) -> Prediction:
    """The steady state under a policy. Sizes are infinite when the policy never compacts this load.

    ``worst`` does not rely on where segments happen to end: a pass then starts a whole segment after the ratio was
    reached. A bound that must hold while load drifts is checked so.
    """
    rate = max(workload.updates_per_second, 1e-9) / workload.partitions
    live = workload.live_records / workload.partitions
    segment = _segment_records(workload, policy, cleaner, rate)
    segments = _segments_per_cycle(workload, policy, live, segment, rate, worst)
    if math.isinf(segments):
        return _never(segment)
    cycle = _cycle(workload, policy, cleaner, costs, _Shape(rate, live, segment, segments * segment))
    dirty_max = cycle.dirty + rate * (policy.min_lag_ms / 1000 + cycle.wait_max + cycle.pass_wall)
    dirty_mean = cycle.dirty / 2 + rate * (policy.min_lag_ms / 1000 + cycle.wait_max / 2 + cycle.pass_wall)
    clean_bytes = live * workload.live_record_bytes
    count = workload.partitions
    size_max = count * (clean_bytes + dirty_max * workload.record_bytes)
    replaced = clean_bytes + cycle.dirty * workload.record_bytes
    hidden = count * replaced * (policy.file_delete_delay_ms / 1000 / cycle.period)
    return Prediction(
        size_mean_bytes=count * (clean_bytes + dirty_mean * workload.record_bytes),
        size_max_bytes=size_max,
        records_max=count * (live + dirty_max),
        disk_max_bytes=size_max + hidden + min(count, cleaner.threads) * clean_bytes,
        cleaner_cores=count * cycle.pass_cpu / cycle.period,
        roll_cores=count * roll_seconds(policy, costs) * rate / segment,
        cycle_seconds=cycle.period,
        segment_records=segment,
        segments_per_cycle=math.ceil(segments),
        saturated=count * cycle.pass_wall / cycle.period / cleaner.threads > SATURATION,
    )


@dataclass(frozen=True, slots=True)
class _Shape:
    rate: float
    live: float
    segment: float
    dirty: float


@dataclass(frozen=True, slots=True)
class _Cycle:
    dirty: float
    period: float
    pass_cpu: float
    pass_wall: float
    wait_max: float


def _segment_records(workload: Workload, policy: Policy, cleaner: CleanerSettings, rate: float) -> float:
    """Records in a segment when it is closed: by time, by size or by a full index, whichever comes first."""
    interval = max(workload.append_interval_seconds, 1 / rate)
    by_time = rate * (min(policy.segment_ms, policy.max_lag_ms) / 1000 + interval / 2)
    batch = max(1.0, rate * interval)
    by_size = policy.segment_bytes / workload.record_bytes - batch / 2
    entry_bytes = max(cleaner.index_interval_bytes, batch * workload.record_bytes)
    by_index = policy.segment_index_bytes / _INDEX_ENTRY_BYTES * entry_bytes / workload.record_bytes
    return max(1.0, min(by_time, by_size, by_index))


def _segments_per_cycle(
    workload: Workload, policy: Policy, live: float, segment: float, rate: float, worst: bool
) -> float:
    """Closed segments that make a partition eligible: by the ratio, or by ``max.compaction.lag.ms``."""
    by_ratio = math.inf
    if policy.dirty_ratio < 1:
        need = live * workload.live_record_bytes * policy.dirty_ratio / (1 - policy.dirty_ratio)
        exact = need / (segment * workload.record_bytes)
        by_ratio = exact + 1 if worst else math.floor(exact) + 1
    by_lag = math.ceil(rate * policy.max_lag_ms / 1000 / segment) if policy.max_lag_ms < 1e15 else math.inf
    return max(1, min(by_ratio, by_lag))


def _cycle(
    workload: Workload, policy: Policy, cleaner: CleanerSettings, costs: Costs, shape: _Shape
) -> _Cycle:
    """Solve for the dirty records at a pass: they decide how long it takes, and grow while it runs."""
    backoff = cleaner.backoff_ms / 1000
    per_thread = workload.partitions / min(cleaner.threads, workload.partitions)
    dirty = shape.dirty
    for _ in range(_ROUNDS):
        outputs = _segments_written(workload, policy, shape.live, dirty)
        cpu = pass_cpu(cleaner, costs, shape.live, dirty) + (outputs - 1) * roll_seconds(policy, costs)
        wall = cpu + outputs * costs.sync_seconds
        wall = max(wall, _throttled_seconds(workload, cleaner, shape.live, dirty))
        period = shape.dirty / shape.rate
        turn = per_thread * wall  # one thread serves its partitions one after another
        # An idle thread looks again only after its backoff; a busy one goes straight on to the next
        # partition.
        if backoff > period:
            period = backoff + turn
        period = max(period, turn)
        after = shape.rate * period
        if abs(after - dirty) <= 1e-6 * dirty:
            break
        dirty = after
    wait_max = 0.0 if backoff > shape.dirty / shape.rate else backoff
    wait_max += (per_thread - 1) * wall * min(1.0, turn / period)
    return _Cycle(dirty, period, cpu, wall, wait_max)


def roll_seconds(policy: Policy, costs: Costs) -> float:
    """CPU of opening one segment with its two preallocated indexes."""
    return costs.roll_seconds + costs.index_seconds_per_byte * policy.segment_index_bytes


def _segments_written(workload: Workload, policy: Policy, live: float, dirty: float) -> int:
    """New segments of one pass: the cleaner merges neighbours as long as their old sizes fit segment.bytes."""
    source_bytes = live * workload.live_record_bytes + dirty * workload.record_bytes
    return math.ceil(source_bytes / policy.segment_bytes) or 1


def pass_cpu(cleaner: CleanerSettings, costs: Costs, live: float, dirty: float) -> float:
    """CPU of compacting one partition; several passes when the dirty keys do not fit the dedupe buffer."""
    passes = math.ceil(min(live, dirty) / max(1, cleaner.keys_per_pass)) or 1
    fixed = costs.pass_seconds + costs.fill_seconds_per_byte * cleaner.dedupe_buffer_bytes / cleaner.threads
    return (
        passes * fixed
        + costs.read_seconds_per_record * (passes * live + dirty)
        + costs.write_seconds_per_record * passes * live
    )


def _throttled_seconds(workload: Workload, cleaner: CleanerSettings, live: float, dirty: float) -> float:
    moved = (2 * live * workload.live_record_bytes) + 2 * dirty * workload.record_bytes
    return moved / cleaner.io_max_bytes_per_second


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
