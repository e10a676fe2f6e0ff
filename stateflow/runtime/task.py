"""One task: a stage at one partition, with its state. No threads and no network of its own.

Its host (the local worker, a Spark task, the test driver) hands it batches and tells it when to commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

from stateflow.changelog.eventual import Moment
from stateflow.changelog.format import CUT_HEADER, WATERMARK_HEADER
from stateflow.clock import Clock
from stateflow.failpoints import reach
from stateflow.log.base import Committed, Writer
from stateflow.operators.marks import NO_OTHERS_MS
from stateflow.operators.timing import DIRTY_BYTES_PER_TURN
from stateflow.record import OffsetRange, RecordBatch, TopicPartition
from stateflow.runtime.commit import Announcement, InputGroup, commit_epoch
from stateflow.runtime.context import TaskContext
from stateflow.runtime.cut_marks import CutPlace, place_in, send_barriers, with_place
from stateflow.runtime.replay import with_replay
from stateflow.runtime.takeover import Ledger
from stateflow.runtime.watermarks import UNKNOWN_MS, Watermarks, decode_record, marks_in
from stateflow.runtime.wiring import TaskWiring
from stateflow.store.base import Change, TaskStores
from stateflow.store.dirty import DirtyStore

_LOG = logging.getLogger(__name__)


class Task:
    """Runs batches through its stage and commits them.

    It owns ``writer`` and ``stores`` and closes both. After any exception out of ``process`` or ``commit`` the
    only valid call is ``abandon``: nothing of the broken epoch may be committed.
    """

    def __init__(
        self,
        wiring: TaskWiring,
        writer: Writer,
        stores: TaskStores,
        committed: Mapping[TopicPartition, Committed],
        clock: Clock,
        read_cache_bytes: int = 16 << 20,
        ledger: Ledger | None = None,
    ) -> None:
        self.wiring = wiring
        self._writer = writer
        self._stores = stores
        self._ledger = ledger or Ledger()
        self._watermarks = _recorded_watermarks(wiring, committed)
        self._offsets = dict(committed)
        self._committed = dict(committed)
        self._idle = False
        self._settled_ms = UNKNOWN_MS
        """Event time whose timers have all fired: further behind nothing may be called late."""
        self.has_due = False
        """True when the last turn left timers that are due: the host should not wait for input."""
        self._announcement = Announcement(wiring)
        cache_bytes = read_cache_bytes // max(1, len(wiring.stage.stores))
        dirty = {
            store.name: DirtyStore(stores.reader(store.name), read_cache_bytes=cache_bytes)
            for store in wiring.stage.stores
        }
        for index in wiring.indexes:
            assert stores.position(index.family) == index.mark, f"{index.family} was not brought up"
            dirty[index.family] = DirtyStore(stores.reader(index.family), read_cache_bytes=0)
        self.context = TaskContext(wiring, writer, dirty, self._watermarks, clock)
        self._enter(place_in(committed.get(wiring.inputs[0])))
        self.cut_number_max = self.place.number if self.place else 0
        self._pipeline = wiring.stage.build(self.context)
        self.records_total = 0
        self.commits_total = 0

    @property
    def watermark_ms(self) -> int:
        """Event time up to which this task's input is complete."""
        return self._watermarks.value_ms

    @property
    def dirty_bytes(self) -> int:
        """Bytes of keys and values changed since the last commit."""
        return sum(store.dirty_bytes for store in self.context.stores.values())

    def is_full(self, dirty_bytes_max: int) -> bool:
        """True when the epoch should be committed early, or the timers that are due cannot go on firing."""
        dirty_bytes = self.dirty_bytes
        return dirty_bytes > dirty_bytes_max or (self.has_due and dirty_bytes >= DIRTY_BYTES_PER_TURN)

    @property
    def offsets(self) -> Mapping[TopicPartition, Committed]:
        """Next offset to process of each input partition that has been read."""
        return self._offsets

    @property
    def is_dirty(self) -> bool:
        """True when a commit would change anything."""
        return (
            self.context.has_sent
            or self._offsets != self._committed
            or any(store.is_dirty for store in self.context.stores.values())
            or self._announcement.is_due(self._settled_ms, idle=self._idle)
        )

    def process(self, batch: RecordBatch) -> None:
        """Run one batch of one input partition through the stage.

        Raises ``DecodeError``, ``ProcessingError`` or ``OffsetOutOfRange``'s relatives under the policy *fail*.
        """
        assert batch.source in self.wiring.inputs, f"{batch.source} is not an input of task {self.wiring.id}"
        if not len(batch):
            return
        reach("process.before_batch")
        self._idle = False
        upstream_of_source = self.wiring.inputs.index(batch.source)
        for part, mark in _split_at_marks(batch):
            if len(part):
                self.context.begin_part(part.offsets[0])
                self._tell_marks(upstream_of_source)
                self._pipeline.process(part)
                self.records_total += len(part)
                if not self.wiring.is_rekeyed:
                    self._observe(upstream_of_source, max(part.timestamps_ms), idle=False)
            if mark is not None:
                self._observe(*decode_record(mark))
        reach("process.after_operators")
        self._move_to(batch.source, batch.offsets[-1] + 1)
        reach("process.after_batch")

    def reached(self, source: TopicPartition, offset_next: int) -> None:
        """The host has read up to here without finding more records: markers and gaps are behind us."""
        if offset_next > self._offsets.get(source, Committed(0)).offset_next:
            self._move_to(source, offset_next)

    def tend(self) -> None:
        """One turn of the host's loop: fire what time has made due, a bounded part of it.

        Raises what ``process`` raises.
        """
        self.context.others_ms = self.watermark_ms  # what timers send moves event time no further
        self.has_due = bool(self._pipeline.advance(self.watermark_ms))
        if not self.has_due:
            self._settled_ms = self.watermark_ms

    def become_idle(self) -> None:
        """The input has been silent at its end: stages behind need not wait for this task's event time."""
        self._idle = True

    def replay(self, offsets: OffsetRange, event_time: str, batches: Iterable[RecordBatch]) -> None:
        """Compute again what an eventual changelog has left out, before the first new record.

        ``batches`` are the records of the input partition in ``offsets``, ``event_time`` the recorded watermarks
        where they begin. Outputs are dropped: they were committed when these records were processed first.
        """
        reached, before = self._watermarks.encode(), (dict(self._offsets), self.records_total)
        self._watermarks.assume(Watermarks.decode(event_time, self.wiring.upstreams))
        self.context.is_muted = True
        self._pipeline.advance(self.watermark_ms)  # the steps, too, learn that it is earlier
        for changelog in self.context.eventual_changelogs.values():
            changelog.is_replaying = True
        for batch in batches:
            self.process(batch)
        # Event time also moves by word of the host, and a store may hold windows that were closed without a record.
        self._watermarks.assume(Watermarks.decode(reached, self.wiring.upstreams))
        self._pipeline.advance(self.watermark_ms)
        for changelog in self.context.eventual_changelogs.values():
            changelog.is_replaying = False
        self.context.is_muted = False
        self._offsets, self.records_total = before
        if offsets.slots:
            _LOG.info("Task %s has replayed %d offsets of its input.", self.wiring.id, offsets.slots)

    def commit(self, group: InputGroup, *, complete: bool = False) -> bool:
        """Commit the epoch; False when there was nothing to commit.

        ``complete`` brings eventual changelogs up to date, so that whoever comes next has nothing to replay.
        """
        if not self.is_dirty and not (complete and self._has_unlogged):
            return False
        place = None if self.place is None else CutPlace(self.place.number, is_last_commit=False)
        self._commit(group, place, complete=complete)
        return True

    def take_place(self, number: int, group: InputGroup, starts: Mapping[TopicPartition, int]) -> None:
        """Commit, whether or not there is anything to commit, as this task's place in a cut.

        ``starts`` are the positions of inputs that nothing was read from yet.

        What is sent to the stages behind is marked from here on, until ``leave_cut``. The state, and the input
        offsets, are those of the cut until the next commit.
        """
        assert number > self.cut_number_max, f"{self.wiring.id} has its place in cut {number} already"
        for source, offset_next in starts.items():
            self._offsets.setdefault(source, Committed(offset_next))
        self.context.begin_once()
        self._commit(group, CutPlace(number, is_last_commit=True), complete=True)
        self.cut_number_max = number

    def leave_cut(self) -> None:
        """The cut is over, one way or the other: nothing need be marked any more."""
        self._enter(None)

    @property
    def stores(self) -> TaskStores:
        """The committed state."""
        return self._stores

    @property
    def committed(self) -> Mapping[TopicPartition, Committed]:
        """The input offsets that the committed state stands for."""
        return self._committed

    def _enter(self, place: CutPlace | None) -> None:
        self.place = place
        self.context.cut_number = None if place is None else place.number

    def _commit(self, group: InputGroup, place: CutPlace | None, *, complete: bool) -> None:
        reach("commit.before_drain")
        self.tend()  # 1: drain
        reach("commit.after_drain")
        if self._announcement.is_due(self._settled_ms, idle=self._idle):
            self.context.begin_once()
            self._announcement.send(self._writer, self._settled_ms, idle=self._idle)
        if place is not None and place.is_last_commit:
            send_barriers(self._writer, self.wiring.rekeys, place.number, max(0, self._settled_ms))
        chosen = self._chosen(complete=complete)
        metadata = with_place(with_replay(self._watermarks.encode(), self._replay_from), place)
        offsets = {
            source: Committed(position.offset_next, metadata) for source, position in self._offsets.items()
        }
        commit_epoch(
            self.wiring, self.context, self._writer, self._stores, group, offsets, self._ledger, chosen
        )
        self._offsets = dict(offsets)
        self._committed = dict(offsets)
        self._enter(place)
        self.commits_total += 1
        reach("commit.done")

    def _chosen(self, *, complete: bool) -> dict[str, list[Change]]:
        """What goes to eventual changelogs with this commit."""
        lead = self._offsets.get(self.wiring.inputs[0], Committed(0)).offset_next
        stores = self.context.stores
        return {
            name: changelog.choose(stores[name].changes(), stores[name].get_many, lead, complete=complete)
            for name, changelog in self.context.eventual_changelogs.items()
        }

    @property
    def _has_unlogged(self) -> bool:
        return self._replay_from is not None

    @property
    def _replay_from(self) -> Moment | None:
        changelogs = self.context.eventual_changelogs.values()
        return next((changelog.replay_from for changelog in changelogs), None)

    def flush(self) -> None:
        """Make what was committed durable on the local disk, so that the next restore is short."""
        reach("flush.before")
        self._stores.flush()
        reach("flush.after")

    def close(self) -> None:
        """Let go after a commit."""
        self._writer.close()
        self._stores.close()

    def abandon(self) -> None:
        """Let go without committing: the open transaction is aborted, the dirty maps are dropped."""
        try:
            self._writer.abort()
        finally:
            self.close()

    def _tell_marks(self, upstream_of_source: int) -> None:
        """Tell the operators how far event time may move with the next records."""
        if not self.wiring.is_rekeyed:
            self.context.part_mark_ms = self._watermarks.mark_ms(upstream_of_source)
            self.context.others_ms = self._watermarks.least_of_others(upstream_of_source)
        else:
            self.context.others_ms = NO_OTHERS_MS if self.wiring.is_in_order else UNKNOWN_MS

    def _observe(self, upstream: int, mark_ms: int, idle: bool) -> None:
        if self._watermarks.observe(upstream, mark_ms, idle=idle):
            self.tend()

    def _move_to(self, source: TopicPartition, offset_next: int) -> None:
        self._offsets[source] = Committed(offset_next)


def _recorded_watermarks(wiring: TaskWiring, committed: Mapping[TopicPartition, Committed]) -> Watermarks:
    lead = committed.get(wiring.inputs[0])
    return Watermarks.decode(lead.metadata if lead else "", wiring.upstreams)


def _split_at_marks(batch: RecordBatch) -> Iterator[tuple[RecordBatch, bytes | None]]:
    """Runs of ordinary records, each with the watermark record that ended it.

    Cutting exactly there makes lateness depend on the log alone, not on how reads were batched.
    """
    first = 0
    for index, headers in enumerate(batch.headers):
        if batch.keys[index] is None and headers:
            mark = marks_in(headers, WATERMARK_HEADER)
            if mark is not None or marks_in(headers, CUT_HEADER) is not None:  # a barrier is no one's input
                yield batch.rows(first, index), mark
                first = index + 1
    if first < len(batch):
        yield (batch.rows(first, len(batch)) if first else batch), None
