"""One task that is restored newest first: its ranges, what it can say of a key, and how its database is made of them.

1. The database is opened, which locks it; a store that is to be replayed is emptied. Where an image leaves less to
   read it is fetched meanwhile, and the database opened after that.
2. Ranges are read by any process, newest first, and lie as sorted files beside the database.
3. When all are there, they become part of the database from the oldest to the newest, so the newest record of each key
   wins, as in a restore in order; the position is written last.

A crash in 1 or 2 costs the ranges that were being read, one in 3 nothing but 3: the files stay until it is durable.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from stateflow.checkpoint.decisions import Decided
from stateflow.checkpoint.jobs import RestoreJob, plan_of
from stateflow.checkpoint.planner import StorePlan, TaskPlan
from stateflow.checkpoint.progress import Progress
from stateflow.clock import Clock
from stateflow.errors import ChangelogTrimmed
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.scale.early.asks import Ask, Source
from stateflow.scale.early.files import ReadJob, ReadRange, forget, ranges_on_disk
from stateflow.scale.early.found import Found, found_in_store, found_value
from stateflow.scale.early.ranges import RangeSizes
from stateflow.scale.early.store_ranges import StoreRanges
from stateflow.scale.early.view import RangesView
from stateflow.store.base import StorePosition
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
from stateflow.store.runs import take_in_run


class EarlyTask:
    """Driven by one thread; ``close`` at the end, whatever happened."""

    def __init__(
        self, cluster: Cluster, decided: Decided, resources: RocksResources, clock: Clock, sizes: RangeSizes
    ) -> None:
        assert decided.plan is not None, "a task that cannot be restored is refused before"
        self.job: RestoreJob = decided.job
        self.plan: TaskPlan = decided.plan
        self.image: str | None = decided.image
        """The image that the restore begins with; once it is installed, the one that was fetched."""
        self.is_installing = False
        self.is_begun = False
        self.is_done = False
        self._is_installed = False
        self._cluster = cluster
        self._resources = resources
        self._clock = clock
        self._sizes = sizes
        self._folder: Path = self.job.directory.ranges
        self._view = RangesView(self._folder, self.job.directory.identity, resources)
        self._stores: RocksTaskStores | None = None
        self._ranges = {plan.store: StoreRanges(plan, sizes) for plan in self.plan.stores}

    def begin(self) -> None:
        """Lock the task, and find what was read before. Raises ``StateLocked``, ``DiskFull``."""
        self._open()
        self.is_begun = True
        if self.image is not None and not self._is_installed:
            self._close_stores()  # an image takes the database's place: nobody may have it open
        else:
            self._clear()
        self._resume()

    @property
    def waits_for_image(self) -> bool:
        """True until the image is there that the plan begins with."""
        return self.is_begun and self._stores is None and not self.is_done

    @property
    def has_image(self) -> bool:
        """True once the image that the plan begins with was fetched."""
        return self._is_installed

    def install(self, image: str | None) -> None:
        """An image was fetched, or None would do: plan by what is there now. Nothing that was read is read again."""
        self.image, self.is_installing, self._is_installed = image, False, True
        self._open()
        assert self._stores is not None, "just opened"
        self.plan = plan_of(self._cluster, self.job, self._stores, self._clock)
        self._clear()
        self._ranges = {plan.store: self._ranges[plan.store].under(plan) for plan in self.plan.stores}

    # --- reading --------------------------------------------------------------------------------------

    def stores_to_read(self, ask: Ask | None = None) -> list[str]:
        """Stores with a range to begin; of those that an answer waits for, when asked so."""
        return [
            store
            for store, ranges in self._ranges.items()
            if self.is_begun and ranges.has_more and (ask is None or ask.awaits(store))
        ]

    def begun(self, store: str) -> int:
        """How many ranges of a store were read or are being read."""
        return self._ranges[store].begun

    def next_job(self, store: str) -> ReadJob:
        """The newest range of a store that is not being read."""
        ranges = self._ranges[store]
        plan = ranges.plan
        return ReadJob(
            folder=self._folder,
            store=plan.store,
            source=plan.changelog,
            topic_id=plan.topic_id,
            offsets=ranges.begin(),
            planned_ms=plan.planned_ms,
            bytes_max=self._sizes.bytes_max,
        )

    def note(self, read: ReadRange) -> None:
        """A range was read."""
        self._ranges[read.store].note(read)

    def slots_awaited(self, asks: Sequence[Ask]) -> int:
        """Offset slots that may have to be read before all of these are answered."""
        return sum(
            ranges.slots_left
            for store, ranges in self._ranges.items()
            if any(self.job.task in ask.tasks and ask.awaits(store) for ask in asks)
        )

    @property
    def progress(self) -> Progress:
        """How far it is; ranges that an earlier attempt has read count as done."""
        read = [part for ranges in self._ranges.values() for part in ranges.oldest_first]
        return Progress(
            name=self.job.task,
            slots_done=self.plan.slots if self.is_done else sum(part.offsets.slots for part in read),
            slots_total=self.plan.slots,
            records_total=sum(part.records_total for part in read),
            bytes_total=sum(part.bytes_total for part in read),
            seconds=0.0,
        )

    # --- answering ------------------------------------------------------------------------------------

    def look(self, ask: Ask) -> Found | None:
        """What this task has for a key; None while that is not known."""
        if self.is_done:
            return found_in_store(self.job.directory, ask)
        if ask.entry.layout != "plain" or not self.is_begun:
            return None  # a key has many entries: which are there is known when everything was read
        ranges = self._ranges[ask.entry.name]
        seen, reached = ranges.search(self._view, ask.routing_key, ask.searched.get(self.job.task))
        ask.searched[self.job.task] = reached
        if seen is not None:
            return found_value(ask, seen.value, "range", seen.offsets)
        if reached > ranges.plan.offsets.offset_first or self._stores is None or self._is_stale(ranges.plan):
            return None
        if ranges.plan.action in ("replay", "empty"):
            return Found((), "nothing", None)
        held: Source = "local" if self.image is None else "image"
        return found_value(ask, self._stores.reader(ask.entry.name).get(ask.routing_key), held, None)

    # --- the database ---------------------------------------------------------------------------------

    @property
    def is_covered(self) -> bool:
        """True when nothing is left but to make the database."""
        return self._stores is not None and all(ranges.is_covered for ranges in self._ranges.values())

    @property
    def is_stale(self) -> bool:
        """True when the log may have dropped deletions since the content was up to date that a tail is read onto."""
        return any(self._is_stale(ranges.plan) for ranges in self._ranges.values())

    def finish(self) -> None:
        """Make the database of the ranges; on return it is durable, and free for a worker."""
        assert self._stores is not None, "covered"
        for ranges in self._ranges.values():
            if ranges.plan.action == "replay":
                self._take_in(self._stores, ranges)
            elif ranges.plan.action == "tail":
                self._apply(self._stores, ranges)
        reach("early.before_flush")
        self._stores.flush()
        reach("early.after_flush")
        self.close()
        self.job.directory.drop_ranges()
        self.is_done = True

    def close(self) -> None:
        """Let the database go; what was read stays, for another ``begin``."""
        self.is_begun = False
        self._view.close()
        self._close_stores()

    # --- inside ---------------------------------------------------------------------------------------

    def _is_stale(self, plan: StorePlan) -> bool:
        age_ms = self._clock.now_ms() - plan.content_ms
        return plan.action == "tail" and age_ms > plan.tombstones_kept_ms

    def _open(self) -> None:
        self._stores = RocksTaskStores.open(
            self.job.directory, self.job.changelogs, self._resources, self._clock, keep_ranges=True
        )

    def _close_stores(self) -> None:
        if self._stores is not None:
            self._stores.close()
            self._stores = None

    def _clear(self) -> None:
        assert self._stores is not None, "opened"
        for plan in self.plan.stores:
            if plan.from_empty:
                self._stores.clear(plan.store)

    def _resume(self) -> None:
        """Ranges that were read count while a restore could continue from where they end, by the planner's rules."""
        on_disk = ranges_on_disk(self._folder)
        usable = self._usable(on_disk)
        for read in on_disk:
            if read.store not in usable:
                forget(self._folder, read)
        for plan in self.plan.stores:
            kept = [read for read in on_disk if read.store == plan.store and read.store in usable]
            self._ranges[plan.store] = StoreRanges(plan, self._sizes, kept)

    def _usable(self, on_disk: list[ReadRange]) -> set[str]:
        held = MemoryTaskStores(self.job.changelogs, self._clock)
        for store in {read.store for read in on_disk} & set(self.job.changelogs):
            parts = [read for read in on_disk if read.store == store]
            topic_ids = {read.topic_id for read in parts}
            position = StorePosition(
                topic_ids.pop() if len(topic_ids) == 1 else "several",
                max(read.offset_next for read in parts),
                min(read.planned_ms for read in parts),
            )
            held.apply({}, {store: position})
        try:
            plans = plan_of(self._cluster, self.job, held, self._clock, held="what was read before").stores
        except ChangelogTrimmed:
            return set()
        return {plan.store for plan in plans if plan.action in ("reuse", "tail")}

    def _take_in(self, stores: RocksTaskStores, ranges: StoreRanges) -> None:
        for read in ranges.oldest_first:
            for run in read.runs:
                link = stores.directory.path / f"load-{uuid.uuid4().hex}.sst"
                try:
                    os.link(self._folder / run.changes, link)
                    take_in_run(stores, ranges.plan.store, link)
                finally:
                    link.unlink(missing_ok=True)
        plan = ranges.plan
        stores.apply(
            {}, {plan.store: StorePosition(plan.topic_id, plan.offsets.offset_next, plan.planned_ms)}
        )

    def _apply(self, stores: RocksTaskStores, ranges: StoreRanges) -> None:
        """A tail is written run by run, each range's last run with the position behind it."""
        plan = ranges.plan
        for read in ranges.oldest_first:
            behind = StorePosition(plan.topic_id, read.offset_next, plan.content_ms)
            for run in read.runs[:-1]:
                stores.apply({plan.store: [*self._view.changes(run)]}, {})
            last = [*self._view.changes(read.runs[-1])] if read.runs else []
            stores.apply({plan.store: last}, {plan.store: behind})
        target = StorePosition(plan.topic_id, plan.offsets.offset_next, plan.planned_ms)
        stores.apply({}, {plan.store: target})
