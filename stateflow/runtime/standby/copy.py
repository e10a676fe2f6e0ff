"""One copy of one task's state: filled like a restore, then kept up with what the task's owner commits.

Two phases. *Filling* is a restore up to what is committed now, in the restore's large epochs. *Following* applies what
is read from there on, a sequence at a time: changes are held back until their commit record arrives, so the copy is
always the state after some commit, and never holds half of one. Changelogs of an application with at-least-once have
no commit records; Kafka's marker decides there, as it does when such a task is restored.

Whoever follows has fenced nobody. It therefore goes by each changelog's own commit records, never by those of a task's
other changelogs, which a takeover may resolve differently.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Generic, TypeVar

from stateflow.changelog.sequences import SequenceFilter
from stateflow.checkpoint.planner import TaskPlan, plan_task
from stateflow.checkpoint.restore import Restoration, RestoreSettings
from stateflow.checkpoint.tails import read_tails
from stateflow.clock import Clock, ManualClock
from stateflow.errors import TopicRecreated
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, Reader
from stateflow.memory import ENTRY_BYTES
from stateflow.record import OffsetRange, RecordBatch, TopicPartition
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.member_records import CopyReport
from stateflow.store.base import StorePosition, TaskStores

_LOG = logging.getLogger(__name__)

REFILL_SLOTS = 200_000
"""A copy that is further behind is filled again, in large epochs; this also bounds what it holds back."""
FILLING_BYTES_MAX = 32 << 20
_RESTAMP_MS = 60_000

S = TypeVar("S", bound=TaskStores)


class StandbyCopy(Generic[S]):
    """A copy with its stores open. One thread at a time; its owner reads for it while it follows.

    ``stores`` belongs to the copy until :meth:`release` hands it over or :meth:`close` closes it.
    """

    def __init__(
        self,
        cluster: Cluster,
        wiring: TaskWiring,
        stores: S,
        clock: Clock,
        filling_bytes_max: int = FILLING_BYTES_MAX,
    ) -> None:
        # Smaller epochs than a task's own restore takes: nobody waits for a copy, and others share its process.
        self._filling = RestoreSettings(
            epoch_records_max=100_000, epoch_bytes_max=filling_bytes_max, read_timeout_seconds=0.1
        )
        self.wiring = wiring
        self._cluster = cluster
        self._stores = stores
        self._clock = clock
        self._plan: TaskPlan | None = None
        self._restoration: Restoration | None = None
        self._followed: dict[TopicPartition, _FollowedStore] = {}
        self._records_total = self._slots_total = 0  # of the phases before this one
        self._ends: dict[TopicPartition, int] = {}
        self._flushed_seconds = clock.monotonic_seconds()
        self._rate = _Rate(clock)

    @property
    def follows(self) -> bool:
        """True once it is filled: :meth:`take` then wants the changelogs' records."""
        return bool(self._followed)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where reading each changelog goes on."""
        return {changelog: store.read_next for changelog, store in self._followed.items()}

    @property
    def held_bytes(self) -> int:
        """What was read and waits for its commit record takes in memory."""
        return sum(store.held_bytes for store in self._followed.values())

    @property
    def lag_slots(self) -> int | None:
        """Offset slots between what it stands for and the ends that were last seen; None before they were."""
        if self._restoration is not None:
            return self._restoration.progress.slots_remaining
        if not self._followed:
            return None
        return sum(
            store.lag_slots(self._ends.get(changelog, 0)) for changelog, store in self._followed.items()
        )

    def report(self) -> CopyReport:
        """What the copy is now."""
        return CopyReport(
            task=self.wiring.id,
            state="following" if self.follows else "filling",
            lag_slots=self.lag_slots,
            records_per_second=self._rate.records_per_second,
            slots_per_second=self._rate.slots_per_second,
        )

    # --- filling ------------------------------------------------------------------------------------

    def fill(self, max_records: int) -> None:
        """One step of a restore up to what was committed when it began. Raises what a restore raises."""
        if self._restoration is None:
            self._restoration = self._begin_filling()
        progress = self._restoration.step(max_records)
        self._measure(progress.records_total, progress.slots_done)
        if self._restoration.done:
            self._records_total += progress.records_total
            self._slots_total += progress.slots_done
            self._follow()

    def _begin_filling(self) -> Restoration:
        looked = ManualClock(
            self._clock.now_ms()
        )  # what is written while we look is not part of what we know
        tails = read_tails(self._cluster, self.wiring.changelogs, self._clock)
        # Where nothing is uncommitted the end is the end: a store that was restored up to there fits.
        ends = {
            store: tail.committed_next if tail.keys else tail.offset_next for store, tail in tails.items()
        }
        self._plan = plan = plan_task(
            self._cluster,
            self.wiring.id,
            self.wiring.changelogs,
            self.wiring.topic_ids,
            self._stores,
            looked,
            ends=ends,
            held="the standby copy",
            log_policy=self.wiring.log_policy,
        )
        _LOG.info(
            "Task %s: a standby copy is filled, %d offset slots (%s).",
            self.wiring.id,
            plan.slots,
            "; ".join(f"{store.store}: {store.reason}" for store in plan.stores),
        )
        return Restoration(self._cluster, plan, self._stores, self._clock, self._filling)

    def _follow(self) -> None:
        self._restoration = None
        assert self._plan is not None, "what is followed was filled before"
        for store in self._plan.stores:
            position = self._stores.position(store.store)
            offset_next = store.offsets.offset_next if position is None else position.offset_next
            self._followed[store.changelog] = _FollowedStore(
                store.store, store.topic_id, offset_next, store.planned_ms
            )
            self._ends[store.changelog] = max(offset_next, store.offsets.offset_next)

    # --- following ----------------------------------------------------------------------------------

    def take(self, batch: RecordBatch) -> int:
        """Take in records of one changelog; returns how many."""
        self._followed[batch.source].take(batch)
        return len(batch)

    def apply(self, reader: Reader) -> None:
        """Write what is decided, all stores in one batch, as far as ``reader`` has come."""
        epoch, positions = {}, {}
        for changelog, store in self._followed.items():
            store.reached(reader.position(changelog))
            if store.is_due:
                epoch[store.name], positions[store.name] = store.epoch()
        if positions:
            reach("standby.before_apply")
            self._stores.apply(epoch, positions)
            reach("standby.after_apply")
        followed = self._followed.values()
        self._measure(sum(s.records_total for s in followed), sum(s.slots_total for s in followed))

    def look(self, ends: Mapping[TopicPartition, OffsetRange], topic_ids: Mapping[str, str]) -> None:
        """The changelogs' ends and topic ids as they are now; a copy that is far behind is filled again.

        Raises ``TopicRecreated`` for a changelog that is another topic now.
        """
        seen_ms = self._clock.now_ms()
        for changelog, store in self._followed.items():
            if topic_ids.get(changelog.topic) != store.topic_id:
                raise TopicRecreated(
                    f"the changelog {changelog.topic} was deleted, or deleted and created again.",
                    action="the standby copy is of no use any more; see what became of the task itself.",
                    topic=changelog.topic,
                )
            self._ends[changelog] = ends[changelog].offset_next
            store.seen(ends[changelog].offset_next, seen_ms)
        if (self.lag_slots or 0) > REFILL_SLOTS:
            self.refill()

    def refill(self) -> None:
        """Go back to filling, from what is written."""
        self._records_total += sum(store.records_total for store in self._followed.values())
        self._slots_total += sum(store.slots_total for store in self._followed.values())
        self._followed.clear()

    def _measure(self, records: int, slots: int) -> None:
        self._rate.reached(self._records_total + records, self._slots_total + slots)

    def flush(self, interval_seconds: float) -> None:
        """Make it durable, when that was not done for so long: what a crash of this machine would lose."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._flushed_seconds >= interval_seconds:
            self._stores.flush()
            self._flushed_seconds = now_seconds

    # --- the end ------------------------------------------------------------------------------------

    def release(self) -> S:
        """Hand the stores over as they are, open, to the task's new owner. What is not decided is dropped."""
        if self._restoration is not None:
            self._restoration.pause()
            self._restoration.close()
        self._followed.clear()
        return self._stores

    def close(self) -> None:
        """Stop, and close the stores; what was written stays on disk."""
        self.release().close()


class _FollowedStore:
    """One store of a copy: what was read of its changelog and is not written yet."""

    def __init__(self, name: str, topic_id: str, offset_next: int, content_ms: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.read_next = offset_next
        self.records_total = self.slots_total = 0
        self.held_bytes = 0
        self._filter = SequenceFilter(offset_next)
        self._written_next = offset_next
        self._newest: dict[bytes, bytes | None] = {}
        self._content_ms = self._stamped_ms = content_ms
        self._seen: tuple[int, int] | None = None

    def take(self, batch: RecordBatch) -> None:
        """Take in records; of each key only the newest decided value is kept."""
        self.records_total += len(batch)
        self.reached(batch.offsets[-1] + 1)
        rows = zip(batch.offsets, batch.keys, batch.values, strict=True)
        self._newest.update(self._filter.feed(rows))
        held = self._filter.held
        self.held_bytes = sum(ENTRY_BYTES + len(key) + len(value or b"") for key, value in held)

    def reached(self, read_next: int) -> None:
        """The reader has come so far: gaps and markers are behind it."""
        self.slots_total += max(0, read_next - self.read_next)
        self.read_next = max(self.read_next, read_next)
        if self._seen is not None and self._committed_next() >= self._seen[0]:
            self._content_ms, self._seen = max(self._content_ms, self._seen[1]), None

    def seen(self, end: int, at_ms: int) -> None:
        """The log ended here at that time; once it is reached, the content is all that the log said then."""
        if self._seen is None:
            self._seen = (end, at_ms)

    @property
    def is_due(self) -> bool:
        """True when there is something to write: changes, a position, or how fresh the content is."""
        is_fresher = self._content_ms - self._stamped_ms >= _RESTAMP_MS
        return bool(self._newest) or self._position_next() > self._written_next or is_fresher

    def epoch(self) -> tuple[list[tuple[bytes, bytes | None]], StorePosition]:
        """What to write, sorted, and the position that it then stands for."""
        changes = sorted(self._newest.items())
        self._newest = {}
        self._written_next = self._position_next()
        self._stamped_ms = self._content_ms
        return changes, StorePosition(self.topic_id, self._written_next, self._content_ms)

    def lag_slots(self, end: int) -> int:
        """Slots from what it stands for to an end of the log."""
        return max(0, end - self._committed_next())

    def _position_next(self) -> int:
        """Up to here everything is decided: written down, it must never be more than a commit record says."""
        return self._filter.offset_next

    def _committed_next(self) -> int:
        """The same, with markers and gaps behind the newest commit record, which say nothing."""
        if not self._filter.held:
            return self.read_next
        return self._filter.offset_next


class _Rate:
    """Records and slots per second over the last few seconds, as an exponentially weighted mean."""

    _HALF_LIFE_SECONDS = 5.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_seconds = clock.monotonic_seconds()
        self._records = self._slots = 0
        self.records_per_second = 0.0
        self.slots_per_second = 0.0

    def reached(self, records: int, slots: int) -> None:
        """The totals now."""
        now_seconds = self._clock.monotonic_seconds()
        passed_seconds = now_seconds - self._at_seconds
        if passed_seconds < 0.5:
            return
        weight = 1 - 0.5 ** (passed_seconds / self._HALF_LIFE_SECONDS)
        self.records_per_second += weight * (
            (records - self._records) / passed_seconds - self.records_per_second
        )
        self.slots_per_second += weight * ((slots - self._slots) / passed_seconds - self.slots_per_second)
        self._at_seconds, self._records, self._slots = now_seconds, records, slots
