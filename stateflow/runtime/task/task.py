"""One task: a stage at one partition, with its state. No threads and no network of its own.

Its host (the local worker, a Spark task, the test driver) hands it batches and tells it when to commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from stateflow.changelog.event_time import UNKNOWN_MS, Announced, EventTime
from stateflow.changelog.position import CutPlace, InputPosition, Moment
from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Writer
from stateflow.operators.marks import NO_OTHERS_MS
from stateflow.operators.timers import DIRTY_BYTES_PER_TURN
from stateflow.record import OffsetRange, RecordBatch, TopicPartition
from stateflow.runtime.event_time.untimely import UntimelyRecords
from stateflow.runtime.event_time.watermarks import Watermarks
from stateflow.runtime.opening.takeover import CommitSequence
from stateflow.runtime.snapshots.cut_marks import send_barriers, split_at_marks
from stateflow.runtime.task.commit import InputGroup, WatermarkEmitter, commit_epoch
from stateflow.runtime.task.context import TaskContext
from stateflow.runtime.task.wiring import TaskWiring
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
        position: InputPosition,
        clock: Clock,
        read_cache_bytes: int = 16 << 20,
        commit_sequence: CommitSequence | None = None,
    ) -> None:
        self.wiring = wiring
        self._writer = writer
        self._stores = stores
        self._commit_sequence = commit_sequence or CommitSequence()
        self._watermarks = Watermarks(wiring.ports)
        self._watermarks.assume(position.event_time)
        self._watermarks.wake_sources()
        self._offsets = dict(position.offsets)
        self._committed = position
        self._fired_watermark_ms = UNKNOWN_MS
        """Event time whose timers have all fired: further behind nothing may be called late."""
        self.has_pending_timers = False
        """True when the last turn left timers that are due: the host should not wait for input."""
        self._ending_ms = list(position.ending_ms)
        """Since the input has ended, and nothing has come: how far event time was carried in each timed step."""
        self._watermark_emitter = WatermarkEmitter(wiring)
        dirty = {
            store.name: DirtyStore(stores.reader(store.name), read_cache_bytes=0)
            for store in wiring.stage.stores
        }
        for index in wiring.indexes:
            assert stores.position(index.family) == index.mark, f"{index.family} was not brought up"
            dirty[index.family] = DirtyStore(stores.reader(index.family), read_cache_bytes=0)
        self.context = TaskContext(wiring, writer, dirty, self._watermarks, clock)
        self.context.limit_cache(read_cache_bytes)
        self._enter(position.cut)
        self.cut_number_max = self.place.number if self.place else 0
        self._pipeline = wiring.stage.build(self.context)
        self.records_total = 0
        self.commits_total = 0

    @property
    def untimely(self) -> UntimelyRecords:
        """What it has met of records that were late or too far ahead."""
        return self.context.untimely

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
        limit_bytes = (
            min(dirty_bytes_max, DIRTY_BYTES_PER_TURN - 1) if self.has_pending_timers else dirty_bytes_max
        )
        return self.dirty_bytes > limit_bytes

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """Next offset to process of each input partition that has been read."""
        return self._offsets

    @property
    def is_dirty(self) -> bool:
        """True when a commit would change anything."""
        return self._has_news or any(store.is_dirty for store in self.context.stores.values())

    @property
    def is_quiet(self) -> bool:
        """True when nothing is due, and a commit would tell others nothing.

        State that expires is deleted in turns that may go on.
        """
        return not self.has_pending_timers and not self._has_news

    @property
    def _has_news(self) -> bool:
        return self.context.has_sent or self._offsets != self._committed.offsets or self._emits_watermark

    @property
    def _emits_watermark(self) -> bool:
        return self._watermark_emitter.is_due(
            self._fired_watermark_ms, idle=self._is_idle, ended=self.has_ended
        )

    @property
    def has_ended(self) -> bool:
        """True when all input was declared to be at its end, and all that was pending has fired or closed."""
        return self._watermarks.all_ended and not self.has_pending_timers

    @property
    def _is_idle(self) -> bool:
        return self._watermarks.all_idle and not self._watermarks.all_ended

    def process(self, batch: RecordBatch) -> None:
        """Run one batch of one input partition through the stage.

        Raises ``DecodeError``, ``ProcessingError`` or ``OffsetOutOfRange``'s relatives under the policy *fail*.
        """
        assert batch.source in self.wiring.inputs, f"{batch.source} is not an input of task {self.wiring.id}"
        if not len(batch):
            return
        reach("process.before_batch")
        port = self.wiring.port_of(batch.source)
        self._announce_awake()
        for part, mark in split_at_marks(batch):
            for rows in self._in_step(port, part):
                self._process_part(port, rows)
            if mark is not None:
                self._hear(port, Announced.decode(mark))
        reach("process.after_operators")
        self._move_to(batch.source, batch.offsets[-1] + 1)
        reach("process.after_batch")

    def reached(self, source: TopicPartition, offset_next: int) -> None:
        """The host has read up to here without finding more records: markers and gaps are behind us."""
        if offset_next > self._offsets.get(source, 0):
            self._move_to(source, offset_next)

    def _in_step(self, port: int, part: RecordBatch) -> Iterable[RecordBatch]:
        """Records that may go through the stage together: one by one where they reach a step in several ways."""
        if self.wiring.ports[port].name not in self.wiring.stage.shared_inputs:
            return [part] if len(part) else []
        return (part.rows(row, row + 1) for row in range(len(part)))

    def _process_part(self, port: int, part: RecordBatch) -> None:
        """Records between two watermarks. Those of a source topic tell event time themselves."""
        self._watermarks.wake(port)
        if (
            self._ending_ms
        ):  # the input had ended: where that is not done yet, steps know of different event times
            self._move_on()
        self.context.begin_part(part.offsets[0])
        self._tell_marks(port)
        self._pipeline.process(part)
        self.records_total += len(part)
        if self.wiring.ports[port].is_source and self._watermarks.observe(
            self._watermarks.upstream(port), max(part.timestamps_ms)
        ):
            self._move_on()

    def _hear(self, port: int, announced: Announced) -> None:
        upstream = self._watermarks.upstream(port, announced.upstream)
        if self._watermarks.observe(upstream, announced.mark_ms, idle=announced.idle, ended=announced.ended):
            self._move_on()
        elif self._watermarks.all_ended:
            self.advance_time()

    def _move_on(self) -> None:
        self._ending_ms.clear()  # event time has come further than an end of the input before
        self.advance_time()

    def _announce_awake(self) -> None:
        """Before the first record after a silence: the stages behind must wait for this task's event time again."""
        if self._watermark_emitter.is_left_out and not self.context.is_muted:
            self.context.begin_once()
            self._watermark_emitter.send(self._writer, self._fired_watermark_ms, idle=False)

    def advance_time(self) -> None:
        """One turn of the host's loop: fire what time has made due, a bounded part of it.

        Raises what ``process`` raises.
        """
        self.untimely.turn()
        self.context.others_ms = self.watermark_ms  # what timers send moves event time no further
        self.has_pending_timers = self._advance()
        if not self.has_pending_timers:
            self._fired_watermark_ms = self.watermark_ms

    def _advance(self) -> bool:
        if not self._ending_ms and not self._watermarks.all_ended:
            return bool(self._pipeline.advance(self.watermark_ms))
        is_left = bool(self._pipeline.finish(self.watermark_ms, self._ending_ms))
        self._watermarks.raise_to(max(self._ending_ms, default=UNKNOWN_MS))
        return is_left

    def become_idle(self, source: TopicPartition) -> None:
        """A source partition has been silent at its end: event time does not wait for it until it speaks again.

        When all inputs are idle the stages behind need not wait for this task. Behind a re-key step it is the tasks of
        the stage before that say so.
        """
        port = self.wiring.port_of(source)
        if self.wiring.ports[port].is_source:
            upstream = self._watermarks.upstream(port)
            ended = self._watermarks.has_ended(upstream)
            if self._watermarks.observe(upstream, UNKNOWN_MS, idle=True, ended=ended):
                self._move_on()

    def end_input(self, source: TopicPartition) -> None:
        """A source partition is at its end for good, as far as this run goes.

        When all input has ended, all that waits for event time fires and closes, in turns of ``advance_time``, and the
        stages behind are told. Records that come nevertheless wake it, as after idleness.
        """
        upstream = self._watermarks.upstream(self.wiring.port_of(source))
        idle = self._watermarks.is_idle(upstream)
        if self._watermarks.observe(upstream, UNKNOWN_MS, idle=idle, ended=True):
            self._move_on()
        else:
            self.advance_time()

    def replay(self, offsets: OffsetRange, event_time: EventTime, batches: Iterable[RecordBatch]) -> None:
        """Compute again what an eventual changelog has left out, before the first new record.

        ``batches`` are the records of the input partition in ``offsets``, ``event_time`` what was reached
        where they begin. Outputs are dropped: they were committed when these records were processed first.
        """
        reached, before = self._watermarks.event_time(), (dict(self._offsets), self.records_total)
        ending_ms, self._ending_ms = self._ending_ms, []
        self._watermarks.assume(event_time)
        self.context.is_muted = True
        self._pipeline.advance(self.watermark_ms)  # the steps, too, learn that it is earlier
        for changelog in self.context.eventual_changelogs.values():
            changelog.is_replaying = True
        for batch in batches:
            self.process(batch)
        # Event time also moves by word of the host, and a store may hold windows that were closed without a record.
        self._watermarks.assume(reached)
        self._ending_ms = ending_ms
        self._advance()
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
            self._offsets.setdefault(source, offset_next)
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
    def committed(self) -> InputPosition:
        """What of the input the committed state stands for."""
        return self._committed

    def _enter(self, place: CutPlace | None) -> None:
        self.place = place
        self.context.cut_number = None if place is None else place.number

    def _commit(self, group: InputGroup, place: CutPlace | None, *, complete: bool) -> None:
        reach("commit.before_drain")
        if (
            not self.has_pending_timers
        ):  # else the next turns go on: one more here would make the epoch longer
            self.advance_time()  # 1: drain
        reach("commit.after_drain")
        if self._emits_watermark:
            self.context.begin_once()
            self._watermark_emitter.send(
                self._writer, self._fired_watermark_ms, idle=self._is_idle, ended=self.has_ended
            )
        if place is not None and place.is_last_commit:
            send_barriers(self._writer, self.wiring.rekeys, place.number, max(0, self._fired_watermark_ms))
        chosen = self._chosen(complete=complete)
        event_time, ending_ms = self._watermarks.event_time(), tuple(self._ending_ms)
        position = InputPosition(dict(self._offsets), event_time, self._replay_from, place, ending_ms)
        sequence = self._commit_sequence
        commit_epoch(self.wiring, self.context, self._writer, self._stores, group, position, sequence, chosen)
        self._committed = position
        self._enter(place)
        self.commits_total += 1
        reach("commit.done")

    def _chosen(self, *, complete: bool) -> dict[str, list[Change]]:
        """What goes to eventual changelogs with this commit."""
        primary = self._offsets.get(self.wiring.inputs[0], 0)
        stores = self.context.stores
        return {
            name: changelog.choose(stores[name].changes(), stores[name].get_many, primary, complete=complete)
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
        try:
            self.untimely.close()
            self._writer.close()
        finally:
            self._stores.close()

    def abandon(self) -> None:
        """Let go without committing: the open transaction is aborted, the dirty maps are dropped.

        Where the transaction cannot be aborted from here the broker does it, when its time is over or the next owner
        opens the task: it is no error that this one was fenced already, or that no broker answers.
        """
        try:
            self.untimely.close()
            for let_go in (self._writer.abort, self._writer.close):
                try:
                    let_go()
                except StateflowError as error:
                    _LOG.warning("Task %s leaves its transaction to the broker: %s", self.wiring.id, error)
        finally:
            self._stores.close()

    def _tell_marks(self, port: int) -> None:
        """Tell the operators how far event time may move with the next records."""
        if self.wiring.ports[port].is_source:
            upstream = self._watermarks.upstream(port)
            self.context.part_mark_ms = self._watermarks.mark_ms(upstream)
            self.context.others_ms = self._watermarks.least_of_others_ms(upstream)
        else:
            self.context.others_ms = NO_OTHERS_MS if self.wiring.is_in_order else UNKNOWN_MS

    def _move_to(self, source: TopicPartition, offset_next: int) -> None:
        self._offsets[source] = offset_next
