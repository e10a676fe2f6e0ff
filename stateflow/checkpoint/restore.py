"""Carrying out a restore plan: read the changelogs of one task to targets fixed beforehand.

1. A store that is to be replayed is emptied.
2. Batches are read; of each key only the newest value is kept.
3. When enough is pending it is sorted and written as one epoch, with the reader's position. From here on a
   crash or Ctrl-C costs only what was read since.
4. A store is done when the reader's position has reached its target, never by counting records.
5. When all are done everything is flushed.

If the log's beginning moves past us while we read, what it said before is gone: ``ChangelogTrimmed``, on which the
caller plans anew, from an image. (Who only measures, and accepts a trimmed log, reads on from the new beginning; that
is not repeated for ever.)
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from stateflow.changelog.format import RESERVED_KEY_PREFIX
from stateflow.checkpoint.planner import StorePlan, TaskPlan, trimmed
from stateflow.checkpoint.progress import Progress
from stateflow.clock import Clock, SystemClock
from stateflow.errors import BrokerUnreachable, OffsetOutOfRange
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, Reader
from stateflow.log.newest import NewestSink, read_newest
from stateflow.memory import memory_shares
from stateflow.native.newest import newest_values
from stateflow.record import OffsetRange, TopicPartition
from stateflow.store.base import StorePosition, TaskStores

_LOG = logging.getLogger(__name__)

_SHARES = memory_shares()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSettings:
    """Limits of one restore."""

    epoch_records_max: int = 500_000
    """Records of one store read before what is pending of it is written."""
    epoch_bytes_max: int = _SHARES.restore_bytes_each(1) // 2
    """What is pending of all stores together may take in memory: before it is more, the largest is written."""
    load_entries_min: int = 20_000
    """Epochs of a replay with at least so many keys are written as a sorted file."""
    read_timeout_seconds: float = 0.2
    stall_seconds: float = 60.0
    """Give up when the position has not moved for so long."""
    replans_max: int = 3
    """How often the log's beginning may overtake one store."""


class Restoration:
    """One task's restore, driven by ``step`` from any one thread.

    It owns neither ``stores`` nor ``cluster``. ``close`` may be called at any time; what was written stays.
    """

    def __init__(
        self,
        cluster: Cluster,
        plan: TaskPlan,
        stores: TaskStores,
        clock: Clock | None = None,
        settings: RestoreSettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._task = plan.task
        self._stores = stores
        self._clock = clock or SystemClock()
        self._settings = settings or RestoreSettings()
        self._parts = {part.changelog: _StoreRestore(part, stores, self._settings) for part in plan.stores}
        self._reader: Reader | None = None
        self._started_seconds = self._moved_seconds = self._clock.monotonic_seconds()
        self._done = all(part.done for part in self._parts.values())

    @property
    def done(self) -> bool:
        """True when every store has reached its target and is flushed."""
        return self._done

    @property
    def progress(self) -> Progress:
        """How far it is."""
        parts = self._parts.values()
        return Progress(
            name=self._task,
            slots_done=sum(part.slots_done for part in parts),
            slots_total=sum(part.plan.offsets.slots for part in parts),
            records_total=sum(part.sink.records_total for part in parts),
            bytes_total=sum(part.sink.bytes_total for part in parts),
            seconds=self._clock.monotonic_seconds() - self._started_seconds,
        )

    def step(self, max_records: int = 20_000) -> Progress:
        """Read once and write what is due; returns how far it is.

        Raises ``BrokerUnreachable`` when nothing moves for long, ``ChangelogTrimmed`` when the log's beginning has
        overtaken it, ``DiskFull``, ``StateCorrupt``.
        """
        if not self._done:
            try:
                self._read(max_records)
            except OffsetOutOfRange as error:
                self._replan(error)
            self._finish_if_done()
        return self.progress

    def run(self) -> Progress:
        """Step to the end."""
        while not self.done:
            self.step()
        return self.progress

    def pause(self) -> None:
        """Write what was read, so that the next attempt goes on from here. Without it an epoch is read again."""
        if self._reader is not None:
            for part in self._parts.values():
                part.write_pending()

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # --- inside ---------------------------------------------------------------------------------------

    def _read(self, max_records: int) -> None:
        reader = self._reader or self._open_reader()
        sinks = {changelog: part.sink for changelog, part in self._parts.items()}
        brought = read_newest(reader, sinks, max_records, self._settings.read_timeout_seconds)
        for _ in brought:
            reach("restore.after_read")
        moved = False
        for changelog, part in self._parts.items():
            if not part.done:
                moved |= part.reach(reader.position(changelog))
                self._check_age(part)
        self._write_largest()
        self._check_stall(moved or bool(brought))

    def _write_largest(self) -> None:
        """Keep what is pending within its bound; what was read last may exceed it for this moment."""
        parts = self._parts.values()
        if sum(part.pending.held_bytes for part in parts) > self._settings.epoch_bytes_max:
            for part in parts:
                part.pending.trim()
        while sum(part.pending.held_bytes for part in parts) > self._settings.epoch_bytes_max:
            max(parts, key=lambda part: part.pending.held_bytes).write_pending()

    def _open_reader(self) -> Reader:
        for part in self._parts.values():
            part.prepare()
        self._reader = self._cluster.reader()
        self._reader.assign(self._wanted())
        return self._reader

    def _wanted(self) -> dict[TopicPartition, int]:
        return {changelog: part.offset_next for changelog, part in self._parts.items() if not part.done}

    def _replan(self, error: OffsetOutOfRange) -> None:
        changelog = TopicPartition(str(error.fields["topic"]), int(str(error.fields["partition"])))
        part = self._parts[changelog]
        if part.replans >= self._settings.replans_max:
            raise error
        self._start_over(part, "the beginning of the log moved past the restore")

    def _start_over(self, part: _StoreRestore, why: str) -> None:
        changelog = part.plan.changelog
        log = self._cluster.ranges([changelog])[changelog]
        if log.offset_first > 0 and not part.plan.accept_trimmed:
            raise trimmed(part.plan.store, changelog, log, why)
        _LOG.warning(
            "Store %s is replayed from offset %d of %s: %s.",
            part.plan.store,
            log.offset_first,
            changelog,
            why,
        )
        part.start_over(log.until(part.plan.offsets.offset_next), why, self._clock.now_ms())
        assert self._reader is not None, "whoever starts over has been reading"
        self._reader.assign(self._wanted())

    def _finish_if_done(self) -> None:
        if all(part.done for part in self._parts.values()):
            reach("restore.before_flush")
            self._stores.flush()
            reach("restore.after_flush")
            self.close()
            self._done = True

    def _check_age(self, part: _StoreRestore) -> None:
        """A restore that outlived the log's tombstones may hold keys that were deleted."""
        age_ms = self._clock.now_ms() - part.plan.content_ms
        if not part.done or age_ms <= part.plan.tombstones_kept_ms:
            return
        if part.plan.action == "tail":
            self._start_over(part, "the log forgot deletions while its tail was read")
            return
        _LOG.warning(
            "The replay of store %s took %d s, longer than %s keeps deletions (%d s): keys deleted meanwhile"
            " may be back. Raise delete.retention.ms of the topic and restore again.",
            part.plan.store,
            age_ms // 1000,
            part.plan.changelog.topic,
            part.plan.tombstones_kept_ms // 1000,
        )

    def _check_stall(self, moved: bool) -> None:
        now_seconds = self._clock.monotonic_seconds()
        if moved:
            self._moved_seconds = now_seconds
        elif now_seconds - self._moved_seconds > self._settings.stall_seconds:
            waiting = ", ".join(f"{changelog}@{offset}" for changelog, offset in self._wanted().items())
            raise BrokerUnreachable(
                f"restoring {self._task} has stood still for {self._settings.stall_seconds:.0f} s at"
                f" {waiting}.",
                action="check that the brokers are up; start again, and the restore goes on where it was.",
                task=self._task,
            )


class _StoreRestore:
    """One store on its way from ``plan.offsets.offset_first`` to ``offset_next``."""

    def __init__(self, plan: StorePlan, stores: TaskStores, settings: RestoreSettings) -> None:
        self.plan = plan
        self.offset_next = plan.offsets.offset_first
        self.done = plan.action in ("reuse", "empty")
        self.replans = 0
        self.pending = newest_values(RESERVED_KEY_PREFIX)
        """What was read and is not written yet."""
        self.sink = NewestSink(self.pending, plan.offsets.offset_next)
        self._stores = stores
        self._settings = settings
        self._written_records = 0
        """Of those that were read, how many are no longer pending."""

    @property
    def slots_done(self) -> int:
        """Offset slots covered, those of records not yet written included."""
        covered = OffsetRange(self.plan.offsets.offset_first, self.offset_next).slots
        return min(covered, self.plan.offsets.slots)

    def prepare(self) -> None:
        """Drop the local content when it is to be replaced."""
        if self.plan.from_empty:
            reach("restore.before_clear")
            self._stores.clear(self.plan.store)
            reach("restore.after_clear")

    def start_over(self, log: OffsetRange, why: str, now_ms: int) -> None:
        """Begin again, from an empty store, with another range."""
        self.replans += 1
        self.plan = replace(
            self.plan, action="replay", offsets=log, reason=why, planned_ms=now_ms, content_ms=now_ms
        )
        self.offset_next = log.offset_first
        self.sink.offset_next = log.offset_next
        self._forget_pending()
        self.prepare()
        self.done = log.is_empty

    def reach(self, offset_next: int) -> bool:
        """The reader has come so far: write what is due. True when that is further than before."""
        offset_next = min(offset_next, self.plan.offsets.offset_next)
        moved = offset_next > self.offset_next
        self.offset_next = max(self.offset_next, offset_next)
        self.done = self.offset_next >= self.plan.offsets.offset_next
        pending_records = self.sink.records_total - self._written_records
        if self.done or pending_records >= self._settings.epoch_records_max:
            self._write()
        return moved

    def write_pending(self) -> None:
        """Write what was read and is not written yet."""
        if not self.done:
            self._write()

    def _write(self) -> None:
        reach("restore.before_write")
        changes = self.pending.ordered()
        # On the way the content is older than it looks: deletions behind the position have not been met yet.
        applied_ms = self.plan.planned_ms if self.done else self.plan.content_ms
        position = StorePosition(self.plan.topic_id, self.offset_next, applied_ms)
        if self.plan.from_empty and len(changes) >= self._settings.load_entries_min:
            self._stores.load(self.plan.store, changes, position)
        else:
            self._stores.apply({self.plan.store: changes}, {self.plan.store: position})
        reach("restore.after_write")
        self._forget_pending()

    def _forget_pending(self) -> None:
        self.pending.clear()
        self._written_records = self.sink.records_total
