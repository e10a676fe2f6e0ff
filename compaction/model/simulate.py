"""A key-level simulation of a compacted topic: every record, every roll, every pass, by the cleaner's own rules.

Slower than the closed form and closer to the truth: it knows which keys are hot, how batches thin out, when
tombstones expire, and in what order a thread serves partitions.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

from stateflow.compaction.model.costs import Costs, Counts
from stateflow.compaction.model.simulated_log import Batch, PartitionLog, Segment, count_kept
from stateflow.compaction.model.streams import Update
from stateflow.compaction.model.workload import BATCH_OVERHEAD_BYTES
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

RECORD_OVERHEAD_BYTES = 9
"""Varints and attributes of one record in format v2, for values of 128 to 16,383 bytes."""
TRACE_POINTS_MAX = 4000


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How the producer appends, and when counting starts."""

    linger_seconds: float = 0.02
    warm_seconds: float = 0.0
    """Sizes and CPU count from here on."""


@dataclass(slots=True)
class Work:
    """What cleaning and rolling did, in counts that costs apply to."""

    passes: int = 0
    rolls: int = 0
    segments_written: int = 0
    dirty: int = 0
    """Records that were new in their pass."""
    dirty_bytes: int = 0
    read: int = 0
    """Records of the cleaned part that a pass went through."""
    rebuilt: int = 0
    """Batches that lost some of their records in a pass, and kept others."""
    rebuilt_bytes: int = 0
    """What was left of them."""
    batches: int = 0
    """That passes went through, new ones twice."""
    read_bytes: int = 0
    written_bytes: int = 0
    cleaner_seconds: float = 0.0
    roll_seconds: float = 0.0

    @property
    def counts(self) -> Counts:
        """What the costs of passes apply to."""
        new, rebuilt = (self.dirty, self.dirty_bytes), (self.rebuilt, self.rebuilt_bytes)
        return Counts(self.passes, *new, self.read, *rebuilt, self.written_bytes, self.batches)

    def add(self, other: Work) -> None:
        """Count another's work, too."""
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNTED = tuple(one.name for one in fields(Work))


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What the simulated log did after warming up."""

    size_mean_bytes: float
    size_max_bytes: float
    records_max: int
    records_end: int
    live_end: int
    size_end_bytes: float
    cleaner_cores: float
    roll_cores: float
    seconds: float
    work: Work
    trace: tuple[tuple[float, float], ...]
    """(seconds, bytes), thinned out."""


class Simulation:
    """One topic under one policy; feed it updates in the order of time, then ask for the result."""

    def __init__(
        self,
        partitions: int,
        policy: Policy,
        cleaner: CleanerSettings,
        costs: Costs,
        options: SimulationOptions | None = None,
    ) -> None:
        self._policy, self._cleaner, self._costs = policy, cleaner, costs
        self._options = options or SimulationOptions()
        self._logs = [PartitionLog() for _ in range(partitions)]
        self._pending: dict[int, list[Update]] = {}
        """What lingers, by partition."""
        self._closed = 0
        """Closed segments of all logs."""
        self._threads: list[tuple[float, int]] = [(0.0, number) for number in range(cleaner.threads)]
        self._backoff_seconds = max(cleaner.backoff_ms / 1000, 1e-3)
        self._finishing: dict[int, tuple[PartitionLog, list[Segment]]] = {}
        self._work = Work()
        self._next_tick = self._options.linger_seconds
        self.appended_total = 0
        """Updates taken so far: the end offsets of all partitions together."""
        self._seconds = 0.0
        self._warm_seconds = self._options.warm_seconds
        self._changed = True
        """Whether anything was appended or removed since the sizes below were taken."""
        self._size = 0.0
        self._records = 0
        self._integral = self._size_max = 0.0
        self._records_max = 0
        self._trace: list[tuple[float, float]] = []
        self._trace_step = 1
        self._ticks = 0

    def run(self, updates: Iterable[Update]) -> SimulatedRun:
        """Feed all updates and return the result."""
        for update in updates:
            self.feed(update)
        self._tick(self._next_tick)
        return self._result()

    def feed(self, update: Update) -> None:
        """Take one update; time moves on to it."""
        seconds, partition, _, _ = update
        while seconds >= self._next_tick:
            self._tick(self._next_tick)
            self._next_tick += self._options.linger_seconds
        if (pending := self._pending.get(partition)) is None:
            pending = self._pending[partition] = []
        pending.append(update)
        self.appended_total += 1

    @property
    def size_bytes(self) -> int:
        """Log bytes now, all partitions together."""
        return sum(log.size_bytes for log in self._logs)

    @property
    def policy(self) -> Policy:
        """The policy in force; another one applies at once, as a topic's settings do."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy

    def _tick(self, now: float) -> None:
        """Append what lingered as one batch per partition, then let the cleaner threads work until now."""
        if self._pending:
            for number, pending in self._pending.items():
                self._append(self._logs[number], pending, now)
            self._pending.clear()
        threads, backoff = self._threads, self._backoff_seconds
        while threads[0][0] <= now:
            moment, number = threads[0]
            if self._closed:
                self._thread(moment, number)
            else:  # nothing to clean for anyone, which is how most turns of a thread end: it sleeps on
                heapq.heapreplace(threads, (moment + backoff, number))
        self._observe(now)

    # --- appending and rolling ----------------------------------------------------------------------

    def _append(self, log: PartitionLog, updates: list[Update], now: float) -> None:
        seconds, active = updates[-1].seconds, log.active
        batch = Batch(len(updates))
        rows = [
            (key, len(key) + (value_bytes or 0) + RECORD_OVERHEAD_BYTES, value_bytes is None, batch)
            for _, _, key, value_bytes in updates
        ]
        batch.size_bytes = sum([row[1] for row in rows])
        size = BATCH_OVERHEAD_BYTES + batch.size_bytes
        if active.batches and self._must_roll(active, size, seconds):
            log.closed.append(active)
            log.closed_bytes += active.size_bytes
            self._closed += 1
            active = log.active = Segment()
            self._count_roll(now)
        if not active.batches:
            active.first_seconds = seconds
        active.records += rows
        active.batches += 1
        active.size_bytes += size
        active.unindexed_bytes += size
        if active.unindexed_bytes > self._cleaner.index_interval_bytes:  # at most one entry per batch
            active.index_entries, active.unindexed_bytes = active.index_entries + 1, 0
        active.last_seconds = seconds
        log.dirty_bytes += size
        log.dirty_records += len(rows)
        self._changed = True

    def _must_roll(self, active: Segment, size: int, seconds: float) -> bool:
        policy = self._policy
        limit_ms = min(policy.segment_ms, policy.max_lag_ms)
        return (
            active.size_bytes + size > policy.segment_bytes
            or (seconds - active.first_seconds) * 1000 > limit_ms
            or active.index_entries >= policy.segment_index_bytes // 12
        )

    def _count_roll(self, now: float) -> None:
        if now >= self._options.warm_seconds:
            self._work.rolls += 1
            self._work.roll_seconds += self._costs.segment_seconds(self._policy)

    # --- cleaning -----------------------------------------------------------------------------------

    def _thread(self, now: float, number: int) -> None:
        """One step of the first cleaner thread: finish its pass, then take the filthiest log or sleep."""
        if number in self._finishing:
            self._finish(*self._finishing.pop(number), now)
        chosen = self._filthiest(now)
        if chosen is None:
            heapq.heapreplace(self._threads, (now + self._backoff_seconds, number))
            return
        log, segments = chosen
        log.busy = True
        self._finishing[number] = (log, segments)
        heapq.heapreplace(self._threads, (now + self._begin(log, segments, now), number))

    def _filthiest(self, now: float) -> tuple[PartitionLog, list[Segment]] | None:
        best: tuple[float, PartitionLog, int] | None = None
        policy = self._policy
        latest, overdue_seconds = now - policy.min_lag_ms / 1000, policy.max_lag_ms / 1000
        for log in self._logs:
            closed = log.closed
            if log.busy or not closed:
                continue
            count, dirty = len(closed), log.closed_bytes
            if closed[-1].last_seconds > latest:  # of segments in the order of time, those before it
                old = [segment.size_bytes for segment in closed if segment.last_seconds <= latest]
                count, dirty = len(old), sum(old)
            if count == 0:
                continue
            ratio = dirty / (log.clean.size_bytes + dirty)
            overdue = now - closed[0].first_seconds > overdue_seconds
            if (ratio > policy.dirty_ratio or overdue) and (best is None or ratio > best[0]):
                best = (ratio, log, count)
        if best is None:
            return None
        _, log, count = best
        return log, self._fitting([*itertools.islice(log.closed, count)])

    def _fitting(self, segments: list[Segment]) -> list[Segment]:
        """As many segments as the dedupe buffer can index, at least one."""
        keys_max = self._cleaner.keys_per_pass
        if sum(len(segment.records) for segment in segments) <= keys_max:
            return segments
        keys: set[bytes] = set()
        for index, segment in enumerate(segments):
            keys.update(row[0] for row in segment.records)
            if len(keys) > keys_max and index > 0:
                return segments[:index]
        return segments

    def _begin(self, log: PartitionLog, segments: list[Segment], now: float) -> float:
        """Start a pass: what it costs, and how long it takes."""
        costs, cleaner = self._costs, self._cleaner
        dirty_bytes = sum(segment.size_bytes for segment in segments)
        source_bytes = log.clean.size_bytes + dirty_bytes
        outputs = math.ceil(source_bytes / self._policy.segment_bytes)
        found = Work(
            passes=1,
            segments_written=outputs,
            dirty=sum(len(segment.records) for segment in segments),
            dirty_bytes=dirty_bytes,
            read=len(log.clean.newest),
            batches=log.clean.batches + 2 * sum(segment.batches for segment in segments),
            read_bytes=source_bytes + dirty_bytes,
        )
        found.written_bytes, found.rebuilt, found.rebuilt_bytes = count_kept(log.clean, segments)
        rolling = (outputs - 1) * costs.segment_seconds(self._policy)
        found.cleaner_seconds = costs.cpu_seconds(cleaner, found.counts) + rolling
        if now >= self._options.warm_seconds:
            self._work.add(found)
        throttled = (source_bytes + log.clean.size_bytes) / cleaner.io_max_bytes_per_second
        wall = costs.wall_per_cpu * found.cleaner_seconds + outputs * costs.sync_seconds
        return max(wall, throttled)

    def _finish(self, log: PartitionLog, segments: list[Segment], now: float) -> None:
        horizon = now + self._policy.delete_retention_ms / 1000
        log.clean.expire(now)
        for segment in segments:
            log.clean.take(segment.records, horizon)
            log.dirty_bytes -= segment.size_bytes
            log.dirty_records -= len(segment.records)
            log.closed_bytes -= segment.size_bytes
            log.closed.popleft()
        self._closed -= len(segments)
        log.busy = False
        self._changed = True

    # --- observing ----------------------------------------------------------------------------------

    def _observe(self, now: float) -> None:
        if self._changed:  # most ticks of a rare load change nothing
            self._changed = False
            self._measure()
        size = self._size
        self._ticks += 1
        if self._ticks % self._trace_step == 0:
            self._trace.append((round(now, 3), size))
            if len(self._trace) > TRACE_POINTS_MAX:
                self._trace = self._trace[::2]
                self._trace_step *= 2
        if now >= self._warm_seconds:
            self._integral += size * (now - max(self._seconds, self._warm_seconds))
            if size > self._size_max:
                self._size_max = size
            if self._records > self._records_max:
                self._records_max = self._records
        self._seconds = now

    def _measure(self) -> None:
        size = records = 0
        for log in self._logs:
            size += log.clean.size_bytes + log.dirty_bytes
            records += len(log.clean.newest) + log.dirty_records
        self._size, self._records = float(size), records

    def _result(self) -> SimulatedRun:
        seconds = max(self._seconds - self._options.warm_seconds, 1e-9)
        live = {key for log in self._logs for key in log.clean.newest}
        for log in self._logs:
            for segment in (*log.closed, log.active):
                live.update(row[0] for row in segment.records)
        return SimulatedRun(
            size_mean_bytes=self._integral / seconds,
            size_max_bytes=self._size_max,
            records_max=self._records_max,
            records_end=sum(len(log.clean.newest) + log.dirty_records for log in self._logs),
            live_end=len(live),
            size_end_bytes=float(self.size_bytes),
            cleaner_cores=self._work.cleaner_seconds / seconds,
            roll_cores=self._work.roll_seconds / seconds,
            seconds=seconds,
            work=self._work,
            trace=tuple(self._trace),
        )
