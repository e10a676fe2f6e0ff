"""When a pass over a partition comes, what it finds, and what it costs: the steady state, solved for.

With live records L and dirty ratio r, the cleaner takes a partition once its closed segments hold strictly more
dirty bytes than L·r/(1−r), so after a whole number m of segments. A pass zero-fills the dedupe buffer, indexes what
is new, reads the whole log (read amplification 1/r) and writes the live records anew (write amplification (1−r)/r):
batches of which all records live are copied, batches that lost one are built, and compressed, anew. The rules are those
of ``LogCleanerManager`` and ``Cleaner`` in Kafka 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stateflow.compaction.model.costs import Costs, Counts
from stateflow.compaction.model.looks import Looks
from stateflow.compaction.model.rebuilt import holding, rebuilt
from stateflow.compaction.model.workload import Workload
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

_INDEX_ENTRY_BYTES = 12  # a time index entry; the offset index has 8, so the time index fills first
_ROUNDS = 40
_DIRTY_MAX = 1e15
"""Records: passes that would come to find so many, each more than the one before, do not keep up."""
_EVEN_BATCH, _GAPS_WORST = 2.0, 3.0


class Steady(NamedTuple):
    """One partition in the steady state."""

    rate: float
    """Records per second."""
    live: float
    segment: float
    """Records in a closed segment."""
    due: float
    """Records after which a pass is due."""
    peak: Cycle
    """With as many live keys as there are at most."""
    usual: Cycle
    """On average."""


def steady_state(
    workload: Workload,
    policy: Policy,
    cleaner: CleanerSettings,
    costs: Costs,
    *,
    worst: bool = False,
    others_seconds: float = 0.0,
) -> Steady | float:
    """What the passes over a partition come to; the records of a segment alone where no pass ever comes.

    ``others_seconds`` is how long passes over other topics keep the cleaner thread from its next look.
    """
    rate = max(workload.updates_per_second, 1e-9) / workload.partitions
    live = workload.live_records / workload.partitions
    segment = segment_records(workload, policy, cleaner, rate, worst)
    due = due_records(workload, policy, live, segment, rate, worst)
    if math.isinf(due):
        return segment
    shape = Shape(rate, live, segment, due)
    cycle = mean = cycle_of(workload, policy, cleaner, costs, shape, others_seconds)
    if workload.bursts is not None:
        # A ratio is exceeded sooner when a window has just closed: passes come when few keys live.
        live_mean = max(0.0, live - workload.bursts.records / workload.partitions / 2)
        due_mean = due_records(workload, policy, live_mean, segment, rate, worst)
        shape = Shape(rate, live_mean, segment, due_mean)
        mean = cycle_of(workload, policy, cleaner, costs, shape, others_seconds)
    return Steady(rate, live, segment, due, cycle, mean)


@dataclass(frozen=True, slots=True)
class Shape:
    """What one partition has at a pass."""

    rate: float
    live: float
    segment: float
    """Records in a closed segment."""
    due: float
    """Records after which the next pass is due."""


class _Deleted(NamedTuple):
    """Tombstones of bursts at a pass, on average: in the cleaned part, and among what is new."""

    kept: float = 0.0
    new: float = 0.0


def _deleted(workload: Workload, policy: Policy, period: float) -> _Deleted:
    """One that a pass found goes in the first after its retention: passes come evenly, so after whole periods."""
    if workload.bursts is None:
        return _Deleted()
    per_second = workload.bursts.per_second / workload.partitions
    periods = max(1, math.ceil(policy.delete_retention_ms / 1000 / period))
    return _Deleted(per_second * periods * period, per_second * period)


class Cycle(NamedTuple):
    """What a pass over one partition finds and takes."""

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
    deleted_bytes: float
    """Tombstones of bursts that a pass finds new, on average."""


def segment_records(
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


def due_records(
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
    by_lag = math.inf
    if policy.max_lag_ms < 1e15:
        # What a pass must leave is as old as min.compaction.lag.ms already.
        by_lag = rate * max(0, policy.max_lag_ms - policy.min_lag_ms) / 1000
        by_lag += max(1.0, rate * workload.append_interval_seconds) if worst else 0.0
    return max(segment, min(by_ratio, by_lag))


def cycle_of(
    workload: Workload,
    policy: Policy,
    cleaner: CleanerSettings,
    costs: Costs,
    shape: Shape,
    others_seconds: float = 0.0,
) -> Cycle:
    """Solve for the dirty records at a pass: they decide how long it takes, and grow while it runs.

    Where passes that follow at once shrink until the thread sleeps, and are long again after it, none is like the one
    before: then all of them count.
    """
    found: list[Cycle] = []
    per_thread = workload.partitions / min(cleaner.threads, workload.partitions)
    dirty = shape.due
    live_bytes = shape.live * workload.live_record_bytes
    tombstone_bytes = 0.0 if workload.bursts is None else workload.bursts.tombstone_bytes
    segment_cpu = costs.segment_seconds(policy)
    segment, due = shape.segment / shape.rate, shape.due / shape.rate
    backoff = cleaner.backoff_ms / 1000 + others_seconds
    for _ in range(_ROUNDS):
        deleted = _deleted(workload, policy, dirty / shape.rate)
        clean_bytes = live_bytes + deleted.kept * tombstone_bytes
        outputs = _segments_written(workload, policy, shape.live, dirty)
        kept = shape.live + deleted.kept
        cpu = pass_cpu(workload, cleaner, costs, kept, dirty, live_bytes=clean_bytes, tombstones=deleted.new)
        cpu += (outputs - 1) * segment_cpu
        wall = costs.wall_per_cpu * cpu + outputs * costs.sync_seconds
        wall = max(wall, _throttled_seconds(workload, cleaner, shape.live, dirty))
        # One thread serves its partitions one after another.
        looks = Looks(segment, due, backoff, turn=per_thread * wall)
        period = looks.period
        queue_max = (per_thread - 1) * wall * min(1.0, looks.turn / period)
        found.append(
            Cycle(dirty, cpu, wall, looks, queue_max, clean_bytes, period, deleted.new * tombstone_bytes)
        )
        after = shape.rate * period
        if abs(after - dirty) <= 1e-6 * dirty:
            return found[-1]
        if after > _DIRTY_MAX:
            break
        dirty = after
    return _in_turns(found[len(found) // 2 :])


def _in_turns(found: Sequence[Cycle]) -> Cycle:
    """Passes that follow one another again and again: what they take on average, and the log before the largest."""
    largest = max(found, key=lambda one: one.looks.reach_max + one.pass_wall)
    return largest._replace(
        dirty=math.fsum(one.dirty for one in found) / len(found),
        pass_cpu=math.fsum(one.pass_cpu for one in found) / len(found),
        pass_wall=max(one.pass_wall for one in found),
        period=math.fsum(one.period for one in found) / len(found),
        deleted_bytes=math.fsum(one.deleted_bytes for one in found) / len(found),
    )


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
    written = (
        live_bytes / workload.live_record_bytes
    )  # tombstones are small, and a window's come in one batch
    in_batch = _in_batch(workload)
    batches = _batches(workload, in_batch, min(live, written), dirty / passes)
    counts = Counts(
        passes=passes,
        dirty=dirty + tombstones,
        dirty_bytes=dirty * workload.record_bytes,
        kept=passes * live,
        rebuilt=passes * batches.anew,
        rebuilt_bytes=passes * batches.anew_bytes,
        written_bytes=passes * live_bytes,
        batches=2 * dirty / in_batch + passes * batches.held,
    )
    return costs.cpu_seconds(cleaner, counts)


class _Batches(NamedTuple):
    """Batches at a pass."""

    held: float
    """In the cleaned part."""
    anew: float
    """That lose some of their records."""
    anew_bytes: float
    """What is left of these."""


def _batches(workload: Workload, in_batch: float, live: float, dirty: float) -> _Batches:
    """Of so many live records, with so many new ones. What a burst deletes was written together, and goes in whole
    batches.
    """
    overwriting = 1.0
    if workload.bursts is not None:
        overwriting = max(0.0, 1 - workload.bursts.per_second / max(workload.updates_per_second, 1e-9))
    held = overwriting * holding(in_batch, live) + (1 - overwriting) * live / in_batch
    found = rebuilt(in_batch, live, dirty)
    anew_bytes = overwriting * min(live, found.records) * workload.live_record_bytes
    return _Batches(held, overwriting * found.batches, anew_bytes)


def _in_batch(workload: Workload) -> float:
    """Records of a batch, on average."""
    return max(1.0, workload.updates_per_second / workload.partitions * workload.append_interval_seconds)


def _throttled_seconds(workload: Workload, cleaner: CleanerSettings, live: float, dirty: float) -> float:
    moved = (2 * live * workload.live_record_bytes) + 2 * dirty * workload.record_bytes
    return moved / cleaner.io_max_bytes_per_second
