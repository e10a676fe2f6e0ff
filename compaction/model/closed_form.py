"""The closed form of log compaction: how large a log grows, and what its cleaning costs.

With live records L and dirty ratio r, the cleaner takes a partition once its closed segments hold strictly more
dirty bytes than L·r/(1−r), so after a whole number m of segments. A pass zero-fills the dedupe buffer, indexes what
is new, reads the whole log (read amplification 1/r) and writes the live records anew (write amplification (1−r)/r):
batches of which all records live are copied, batches that lost one are built, and compressed, anew. The log peaks at
L + m segments + what arrives while the cleaner sleeps (backoff) and works, also where it sleeps for longer than a
segment takes (:mod:`stateflow.compaction.model.looks`). Partitions that wait for one another do not add to the peak of
all together: while one waits, others shrink. The rules are those of ``LogCleanerManager`` and ``Cleaner`` in Kafka 4.3.

Where keys are deleted in bursts of B tombstones every T seconds, the log peaks within a cycle C of a burst, before the
pass that drops what it deleted: L + what C brings + B for the last burst, and for older ones. A tombstone stays for
``delete.retention.ms`` after the pass that found it, until the next: for that time + 2C; where every closed segment
brings a pass, and so passes come evenly, for C and as many whole C as that time needs. The mean pass finds B/2 fewer
keys than L, and as many tombstones as the retention holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stateflow.compaction.model.costs import Costs, Counts
from stateflow.compaction.model.looks import Looks
from stateflow.compaction.model.workload import Bursts, Workload
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

_INDEX_ENTRY_BYTES = 12  # a time index entry; the offset index has 8, so the time index fills first
_ROUNDS = 60
_SURELY_ONE_SEGMENT = 1.5
"""The ratio asks for less than half a segment, so that every closed segment brings a pass, whatever keys do."""
_EVEN_BATCH, _GAPS_WORST = 2.0, 3.0
_BATCHES_HIT, _KEYS_DIFFER = 0.65, 1.3
_EULER = 0.5772
_SAME = 1e-9
"""Of an interval: times that differ by less are the same."""
_RECORDS_LEFT, _RECORDS_LEFT_EXPONENT = 0.53, 0.7


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
    segment_seconds: float = math.inf
    """From one closed segment of a partition to the next."""

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
    parallelism: float = 1.0,
) -> Prediction:
    """The steady state under a policy. Sizes are infinite when the policy never compacts this load.

    ``worst`` does not rely on where segments happen to end: a pass then starts a whole segment after the ratio was
    reached. A bound that must hold while load drifts is checked so. ``parallelism`` is how many restorers share the
    partitions: each has a part of them, which may be the part that the cleaner comes to last.
    """
    rate = max(workload.updates_per_second, 1e-9) / workload.partitions
    live = workload.live_records / workload.partitions
    segment = _segment_records(workload, policy, cleaner, rate, worst)
    due = _due_records(workload, policy, live, segment, rate, worst)
    if math.isinf(due):
        return _never(segment)
    peak = _shape(workload, policy, _Shape(rate, live, segment, due))
    cycle = mean = _cycle(workload, policy, cleaner, costs, peak)
    if workload.bursts is not None:
        # A ratio is exceeded sooner when a window has just closed: passes come when few keys live.
        live_mean = max(0.0, live - workload.bursts.records / workload.partitions / 2)
        due_mean = _due_records(workload, policy, live_mean, segment, rate, worst)
        usual = _shape(workload, policy, _Shape(rate, live_mean, segment, due_mean))
        mean = _cycle(workload, policy, cleaner, costs, usual)
    lag = policy.min_lag_ms / 1000
    batch = rate * workload.append_interval_seconds
    reach = cycle.looks.reach_worst if worst else mean.looks.reach_max
    dirty_max = rate * (lag + reach + cycle.pass_wall) + (max(1.0, batch) if worst else 0.0)
    asleep_mean = mean.looks.left_mean + mean.queue_max / 2 + mean.pass_wall
    dirty_mean = rate * (lag + asleep_mean + mean.period / 2)
    queued_max = rate * cycle.queue_max * _last_share(parallelism, workload.partitions)
    tombstones_max = 0.0
    if workload.bursts is not None:
        evenly = (
            _due_records(workload, policy, live, segment, rate, worst=True) <= _SURELY_ONE_SEGMENT * segment
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
        size_mean_bytes=count * (mean.clean_bytes + dirty_mean * workload.record_bytes),
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
        segment_seconds=segment / rate,
    )


def _last_share(parallelism: float, partitions: int) -> float:
    """Of the queue before the last partition, what those of one restorer wait for: nothing when it has them all."""
    return (1 - 1 / parallelism) / (1 - 1 / partitions) if partitions > 1 else 0.0


def _stay_seconds(policy: Policy, cycle: _Cycle, cycle_seconds: float, *, evenly: bool) -> float:
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


@dataclass(frozen=True, slots=True)
class _Shape:
    """What one partition has at a pass."""

    rate: float
    live: float
    segment: float
    """Records in a closed segment."""
    due: float
    """Records after which the next pass is due."""
    tombstones: float = 0.0
    """Of bursts, in the cleaned part."""
    burst: float = 0.0
    """Tombstones of bursts among what is new."""


def _shape(workload: Workload, policy: Policy, smooth: _Shape) -> _Shape:
    """With what bursts add, on average."""
    if workload.bursts is None:
        return smooth
    seconds, per_second = smooth.due / smooth.rate, workload.bursts.per_second / workload.partitions
    kept_seconds = policy.delete_retention_ms / 1000 + seconds / 2
    return replace(smooth, tombstones=per_second * kept_seconds, burst=per_second * seconds)


@dataclass(frozen=True, slots=True)
class _Cycle:
    dirty: float
    """New records that a pass finds, on average."""
    pass_cpu: float
    pass_wall: float
    looks: Looks
    queue_max: float
    """How long a partition that is found due may wait for all others of its thread."""
    clean_bytes: float
    period: float
    """From one pass to the next, in seconds."""


def _segment_records(
    workload: Workload, policy: Policy, cleaner: CleanerSettings, rate: float, worst: bool
) -> float:
    """Records in a segment when it is closed: by time, by size or by a full index, whichever comes first."""
    interval = max(workload.append_interval_seconds, 1 / rate)
    # A segment is closed by the first append after its time; appends of single records come at odd intervals.
    late = 0.5 if not worst else 1.0 if rate * interval >= _EVEN_BATCH else _GAPS_WORST
    by_time = rate * (min(policy.segment_ms, policy.max_lag_ms) / 1000 + late * interval)
    batch = max(1.0, rate * interval)
    by_size = policy.segment_bytes / workload.record_bytes - (0.0 if worst else batch / 2)
    entry_bytes = max(cleaner.index_interval_bytes, batch * workload.record_bytes)
    by_index = policy.segment_index_bytes / _INDEX_ENTRY_BYTES * entry_bytes / workload.record_bytes
    return max(1.0, min(by_time, by_size, by_index))


def _due_records(
    workload: Workload, policy: Policy, live: float, segment: float, rate: float, worst: bool
) -> float:
    """Records, the first of a segment among them, after which a pass is due: closed segments that exceed the ratio, or
    as many as come in ``max.compaction.lag.ms``.
    """
    by_ratio = math.inf
    if policy.dirty_ratio < 1:
        need = live * workload.live_record_bytes * policy.dirty_ratio / (1 - policy.dirty_ratio)
        exact = need / (segment * workload.record_bytes)
        by_ratio = segment * (exact + 1 if worst else math.floor(exact) + 1)
    by_lag = rate * policy.max_lag_ms / 1000 if policy.max_lag_ms < 1e15 else math.inf
    return max(segment, min(by_ratio, by_lag))


def _cycle(
    workload: Workload, policy: Policy, cleaner: CleanerSettings, costs: Costs, shape: _Shape
) -> _Cycle:
    """Solve for the dirty records at a pass: they decide how long it takes, and grow while it runs."""
    per_thread = workload.partitions / min(cleaner.threads, workload.partitions)
    dirty = shape.due
    clean_bytes = shape.live * workload.live_record_bytes
    if workload.bursts is not None:
        clean_bytes += shape.tombstones * workload.bursts.tombstone_bytes
    for _ in range(_ROUNDS):
        outputs = _segments_written(workload, policy, shape.live, dirty)
        kept = shape.live + shape.tombstones
        cpu = pass_cpu(workload, cleaner, costs, kept, dirty, live_bytes=clean_bytes, tombstones=shape.burst)
        cpu += (outputs - 1) * costs.segment_seconds(policy)
        wall = cpu + outputs * costs.sync_seconds
        wall = max(wall, _throttled_seconds(workload, cleaner, shape.live, dirty))
        looks = Looks(
            segment=shape.segment / shape.rate,
            due=shape.due / shape.rate,
            backoff=cleaner.backoff_ms / 1000,
            turn=per_thread * wall,  # one thread serves its partitions one after another
        )
        period = looks.period
        after = shape.rate * period
        if abs(after - dirty) <= 1e-6 * dirty:
            break
        dirty = after
    queue_max = (per_thread - 1) * wall * min(1.0, looks.turn / period)
    return _Cycle(dirty, cpu, wall, looks, queue_max, clean_bytes, period)


def _segments_written(workload: Workload, policy: Policy, live: float, dirty: float) -> int:
    """New segments of one pass: the cleaner merges neighbours as long as their old sizes fit segment.bytes."""
    source_bytes = live * workload.live_record_bytes + dirty * workload.record_bytes
    return math.ceil(source_bytes / policy.segment_bytes) or 1


def pass_cpu(
    workload: Workload,
    cleaner: CleanerSettings,
    costs: Costs,
    live: float,
    dirty: float,
    *,
    live_bytes: float | None = None,
    tombstones: float = 0.0,
) -> float:
    """CPU of compacting one partition; several passes when the dirty keys do not fit the dedupe buffer.

    ``live_bytes`` is what the live records take, if not ``live_record_bytes`` each; ``tombstones`` come on top of the
    dirty records, where they come in bursts.
    """
    if live_bytes is None:
        live_bytes = live * workload.live_record_bytes
    passes = math.ceil(min(live, dirty + tombstones) / max(1, cleaner.keys_per_pass)) or 1
    rebuilt, rebuilt_bytes = _rebuilt(workload, live, dirty / passes)
    counts = Counts(
        passes=passes,
        dirty=dirty + tombstones,
        dirty_bytes=dirty * workload.record_bytes,
        kept=passes * live,
        rebuilt=passes * rebuilt,
        rebuilt_bytes=passes * rebuilt_bytes,
        written_bytes=passes * live_bytes,
    )
    return costs.cpu_seconds(cleaner, counts)


def _rebuilt(workload: Workload, live: float, dirty: float) -> tuple[float, float]:
    """Batches that lose some of their records in a pass, all new ones and older ones that new keys hit; bytes left.

    How many are hit, and how many records are left in one, is fitted to simulations of Zipf and uniform keys, from 2 to
    80 records a batch, with a tenth to seven times as many new ones as live ones. A record that is alone in its batch
    takes the batch with it. What a burst deletes was written together, and goes in whole batches.

    Where keys are overwritten many times between passes most new batches lose all of their records, and cost nothing:
    with keys drawn alike, one of b records that is t·L updates old has some left with probability 1 − (1 − e^−t)^b,
    which makes L/b · H(b) batches in all (H, the harmonic numbers). Keys that differ leave more.
    """
    appended = workload.updates_per_second / workload.partitions * workload.append_interval_seconds
    in_batch = max(1.0, appended)
    harmonic = math.log(in_batch) + _EULER + 1 / (2 * in_batch)
    holding = _KEYS_DIFFER * live / in_batch * harmonic
    new = min(dirty / in_batch, holding)
    hit = min(live / 2, _BATCHES_HIT * math.sqrt(live * dirty / in_batch))
    hit = min(hit, holding * math.exp(-dirty / max(live, 1.0) / harmonic))
    overwriting = 1.0
    if workload.bursts is not None:
        overwriting = max(0.0, 1 - workload.bursts.per_second / max(workload.updates_per_second, 1e-9))
    batches = overwriting * (1 - 1 / in_batch) ** 2 * (new + hit)
    left_each = _RECORDS_LEFT * math.pow(in_batch, _RECORDS_LEFT_EXPONENT)
    return batches, min(live, batches * left_each) * workload.live_record_bytes


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
