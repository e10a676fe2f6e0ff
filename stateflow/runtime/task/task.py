"""One task: a stage at one partition, with its state. No threads and no network of its own.

Its host (the local worker, a Spark task, the test driver) hands it batches and tells it when to commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from stateflow.changelog.event_time import Announced
from stateflow.changelog.position import BarrierPoint, InputPosition, Moment
from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Writer
from stateflow.operators.steps.timers import DIRTY_BYTES_PER_TURN, SECONDS_PER_TURN
from stateflow.record import RecordBatch, TopicPartition
from stateflow.runtime.event_time.out_of_bounds import OutOfBoundsRecords
from stateflow.runtime.event_time.watermarks import Watermarks
from stateflow.runtime.task.barriers import send_barriers, split_at_watermarks
from stateflow.runtime.task.commit import (
    EpochCommit,
    EventTimeNews,
    PreparedCommit,
    WatermarkEmitter,
    chosen_changes,
    commit_epoch,
    commit_offsets,
    replay_from,
)
from stateflow.runtime.task.context import TaskContext, dirty_stores
from stateflow.runtime.task.global_tables import TaskTables
from stateflow.runtime.task.input_group import CommitProof, InputGroup, Proof
from stateflow.runtime.task.replay import Replay
from stateflow.runtime.task.size_limits import SizeLimits
from stateflow.runtime.task.stage_time import StageTime
from stateflow.runtime.task.takeover import CommitSequence
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.base import TaskStores

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
        size_limits: SizeLimits | None = None,
        tables: TaskTables | None = None,
    ) -> None:
        self.wiring = wiring
        self._writer, self._stores = writer, stores
        self._commit_sequence = commit_sequence or CommitSequence()
        self._clock = clock
        watermarks = Watermarks(wiring.ports)
        watermarks.assume(position.event_time)
        watermarks.wake_sources()
        self._offsets = dict(position.offsets)
        self._committed = position
        self._prepared_bytes: int | None = None
        """Of the epoch whose commit is under way, on whatever thread; None between two commits."""
        self._watermark_emitter = WatermarkEmitter(wiring, clock)
        own, limits = dirty_stores(wiring, stores), size_limits or SizeLimits(None, clock)
        self.context = TaskContext(wiring, writer, own, watermarks, clock, limits, tables)
        self.context.limit_cache(read_cache_bytes)
        self._own = wiring, self.context, writer, stores
        self._enter(position.barrier_point)
        self.barrier_id_max = self.barrier_point.barrier_id if self.barrier_point else 0
        try:
            self._pipeline = wiring.stage.build(self.context)
        except BaseException:
            self.context.close()  # what its steps have opened beside it
            raise
        self._time = StageTime(wiring, watermarks, self.context, self._pipeline, position.ending_ms)
        self.calls_application = self._pipeline.calls_application
        self.records_total = self.commits_total = 0

    @property
    def out_of_bounds(self) -> OutOfBoundsRecords:
        """What it has met of records that were late or too far ahead."""
        return self.context.out_of_bounds

    @property
    def watermark_ms(self) -> int:
        """Event time up to which this task's input is complete."""
        return self._time.watermark_ms

    @property
    def has_pending_timers(self) -> bool:
        """True when the last turn left timers that are due: the host should not wait for input."""
        return self._time.has_pending_timers

    @property
    def needs_turns(self) -> bool:
        """True when the host's turns matter to it, though nothing comes and no timer is due."""
        return self._time.needs_turns

    @property
    def dirty_bytes(self) -> int:
        """Bytes of keys and values changed since the last commit."""
        prepared, stores = self._prepared_bytes, self.context.stores
        return sum([each.dirty_bytes for each in stores.values()]) if prepared is None else prepared

    def is_full(self, dirty_bytes_max: int) -> bool:
        """True when the epoch should be committed early, or the timers that are due cannot go on firing."""
        timers_max = DIRTY_BYTES_PER_TURN - 1 if self.has_pending_timers else dirty_bytes_max
        return self.dirty_bytes > min(dirty_bytes_max, timers_max)

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """Next offset to process of each input partition that has been read."""
        return self._offsets

    @property
    def is_dirty(self) -> bool:
        """True when a commit would change anything, or is under way: then no store is asked."""
        return self._has_news or any(store.is_dirty for store in self.context.stores.values())

    @property
    def is_awaited(self) -> bool:
        """True when others cannot see what was sent to them before the next commit."""
        return self.context.has_sent and self.wiring.guarantee == "exactly-once"

    @property
    def is_quiet(self) -> bool:
        """True when nothing is due, and a commit would tell others nothing; deleting what expired may go on."""
        is_new = self._watermark_emitter.is_new(self._time.news)
        return not (is_new or self.has_pending_timers or self._has_news)

    @property
    def _has_news(self) -> bool:
        is_due = self._prepared_bytes is not None or self._watermark_emitter.is_due(self._time.news)
        is_due |= self._committed.is_closing and not self.has_pending_timers  # the last windows have closed
        return is_due or self.context.has_sent or self._offsets != self._committed.offsets

    @property
    def has_ended(self) -> bool:
        """True when all input was declared to be at its end, and all that was pending has fired or closed."""
        return self._time.has_ended

    def process(self, batch: RecordBatch) -> RecordBatch | None:
        """Run one batch of one input partition through the stage; returns what of it has to wait.

        That is nothing, None, but where a record makes many timers due, which fire before it: a turn of them was done,
        and the position stands before that record. The host may commit, and calls again with what was returned,
        before it hands over anything else of that partition.

        Raises ``DecodeError``, ``ProcessingError`` or ``OffsetOutOfRange``'s relatives under the policy *fail*.
        """
        assert batch.source in self.wiring.inputs, f"{batch.source} is not an input of task {self.wiring.id}"
        self._assert_is_free()
        if not len(batch):
            return None
        reach("process.before_batch")
        self._announce_awake()
        waits_from = self._process_until_it_waits(self.wiring.port_of(batch.source), batch)
        reach("process.after_operators")
        self._offsets[batch.source] = batch.offsets[-1] + 1 if waits_from is None else waits_from
        reach("process.after_batch")
        return None if waits_from is None else batch.since(waits_from)

    def reached(self, source: TopicPartition, offset_next: int) -> None:
        """The host has read up to here without finding more records: markers and gaps are behind us."""
        if offset_next > self._offsets.get(source, 0):
            self._offsets[source] = offset_next

    def _in_step(self, port: int, part: RecordBatch) -> Iterable[RecordBatch]:
        """Records that may go through the stage together: one by one where they reach a step in several ways."""
        if self.wiring.ports[port].name not in self.wiring.stage.shared_inputs:
            return [part] if len(part) else []
        return (part.rows(row, row + 1) for row in range(len(part)))

    def _process_until_it_waits(self, port: int, batch: RecordBatch) -> int | None:
        """All of it, or what is before the offset that is returned."""
        until_seconds = self._clock.monotonic_seconds() + SECONDS_PER_TURN
        for part, mark in split_at_watermarks(batch):
            for rows in self._in_step(port, part):
                first, has_fired = 0, False
                while first < len(rows):
                    left = rows.rows(first, len(rows)) if first else rows
                    taken = self._process_some(port, left, has_fired=has_fired)
                    is_over = self.has_pending_timers or self._clock.monotonic_seconds() >= until_seconds
                    if not taken and is_over:
                        return left.offsets[0]
                    first, has_fired = first + taken, not taken
            if mark is not None:
                self._time.hear(port, Announced.decode(mark))
        return None

    def _process_some(self, port: int, rows: RecordBatch, *, has_fired: bool) -> int:
        """Process records between two watermarks, up to one that makes many timers due; returns how many.

        Where that is the first, event time moves as it will with it and a turn of its timers fires instead, unless
        they just have.
        """
        burst = self._time.begin_records(port, rows)
        if burst is not None and not burst.row and not has_fired:
            self._time.carry_to(burst.watermark_ms)
            return 0
        taken = rows if burst is None else rows.first(max(1, burst.row))
        self._pipeline.process(taken)
        self.records_total += len(taken)
        self._time.processed(port, taken)
        return len(taken)

    def _announce_awake(self) -> None:
        """Before the first record after a silence: the stages behind must wait for this task's event time again."""
        if self._watermark_emitter.is_left_out and not self.context.is_muted:
            self.context.begin_once()
            self._watermark_emitter.send(self._writer, EventTimeNews(self._time.fired_watermark_ms))

    def advance_time(self) -> None:
        """One turn of the host's loop: fire a bounded part of what is due. Raises what ``process`` raises."""
        self._assert_is_free()
        self._time.advance()

    def become_idle(self, source: TopicPartition) -> None:
        """A source partition has been silent at its end: event time does not wait for it until it speaks again.

        When all inputs are idle the stages behind need not wait for this task. Behind a re-key step it is the tasks of
        the stage before that say so.
        """
        self._time.become_idle(self.wiring.port_of(source))

    def end_input(self, source: TopicPartition) -> None:
        """A source partition is at its end for good, as far as this run goes.

        When all input has ended, all that waits for event time fires and closes, in turns of ``advance_time``, and the
        stages behind are told. Records that come nevertheless wake it, as after idleness.
        """
        self._time.end_input(self.wiring.port_of(source))

    def replay(self, replay: Replay, batches: Iterable[RecordBatch]) -> None:
        """Compute again what an eventual changelog has left out, before the first new record.

        ``batches`` are the records in its offsets. Outputs are dropped: they were committed when these records were
        processed first.
        """
        before = dict(self._offsets), self.records_total
        self.context.set_replaying(now=True)
        time_before = self._time.begin_replay(replay.event_time)
        for batch in batches:
            rest: RecordBatch | None = batch
            while rest is not None:
                rest = self.process(rest)
        self._time.end_replay(time_before, closes_all=replay.has_closed_all)
        self.context.set_replaying(now=False)
        self._offsets, self.records_total = before
        if replay.offsets.slots:
            _LOG.info("Task %s has replayed %d offsets of its input.", self.wiring.id, replay.offsets.slots)

    def commit(self, group: InputGroup, *, complete: bool = False) -> bool:
        """Commit the epoch; False when there was nothing to commit.

        ``complete`` brings eventual changelogs up to date, so that whoever comes next has nothing to replay.
        """
        if (prepared := self.prepare_commit(complete=complete)) is not None:
            self._commit(prepared, group)
        return prepared is not None

    def prepare_commit(self, *, complete: bool = False) -> PreparedCommit | None:
        """The part of a commit that runs the application's code, on the host's own thread; None when there is no need.

        ``write_commit`` and ``end_commit`` must follow before more is asked of this task than its properties.
        """
        self._assert_is_free()
        if not self.is_dirty and not (complete and replay_from(self.context) is not None):
            return None
        point = None if self.barrier_point is None else self.barrier_point.followed()
        return self._prepare(point, complete=complete)

    def write_commit(self, prepared: PreparedCommit, proof: Proof) -> None:
        """The part that waits for brokers and disk. On any thread, as long as no other is within this task."""
        commit_epoch(*self._own, proof, prepared.position, self._commit_sequence, prepared.chosen)

    def epoch(self, prepared: PreparedCommit) -> EpochCommit:
        """The same in pieces, for tasks that share a writer and commit together."""
        return EpochCommit(*self._own, prepared.position, self._commit_sequence, prepared.chosen)

    def end_commit(self, prepared: PreparedCommit, group: InputGroup) -> None:
        """The end of it, on the host's own thread again."""
        commit_offsets(self.wiring, group, prepared.position)
        self._committed, self._prepared_bytes = prepared.position, None
        self._enter(prepared.barrier_point)
        self.commits_total += 1
        reach("commit.done")

    def commit_barrier_point(
        self, barrier_id: int, group: InputGroup, starts: Mapping[TopicPartition, int]
    ) -> None:
        """Commit, whether or not there is anything to commit, as this task's barrier point.

        ``starts`` are the positions of inputs that nothing was read from yet. What is sent to the stages behind carries
        the barrier's id from here on, until ``leave_barrier``. The state, and the input offsets, are those of the
        savepoint until the next commit.
        """
        assert barrier_id > self.barrier_id_max, f"{self.wiring.id} is behind barrier {barrier_id} already"
        for source, offset_next in starts.items():
            self._offsets.setdefault(source, offset_next)
        self.context.begin_once()
        self._commit(self._prepare(BarrierPoint(barrier_id, is_last_commit=True), complete=True), group)
        self.barrier_id_max = barrier_id

    def leave_barrier(self) -> None:
        """The savepoint is complete or aborted: nothing carries the barrier's id any more."""
        self._enter(None)

    @property
    def stores(self) -> TaskStores:
        """The committed state."""
        return self._stores

    @property
    def committed(self) -> InputPosition:
        """What of the input the committed state stands for."""
        return self._committed

    def _commit(self, prepared: PreparedCommit, group: InputGroup) -> None:
        self.write_commit(prepared, CommitProof(group))
        self.end_commit(prepared, group)

    def _enter(self, point: BarrierPoint | None) -> None:
        self.barrier_point = point
        self.context.barrier_id = None if point is None else point.barrier_id

    def _prepare(self, point: BarrierPoint | None, *, complete: bool) -> PreparedCommit:
        reach("commit.before_drain")
        if not self.has_pending_timers:  # else the next turns go on: one more would make the epoch longer
            self.advance_time()  # 1: drain
        while point is not None and point.is_last_commit and self._is_closing:
            self.advance_time()  # a savepoint leaves nothing to replay
        reach("commit.after_drain")
        news = self._time.news
        if self._watermark_emitter.is_due(news):
            self.context.begin_once()
            self._watermark_emitter.send(self._writer, news)
        if point is not None and point.is_last_commit:
            reached_ms = max(0, self._time.fired_watermark_ms)
            send_barriers(self._writer, self.wiring.rekeys, point.barrier_id, reached_ms)
        time, is_closing = self._time, self._is_closing
        primary_next = self._offsets.get(self.wiring.inputs[0], 0)
        is_complete = complete or is_closing
        chosen = chosen_changes(self.context, primary_next, complete=is_complete, says_all=is_closing)
        replay = Moment(primary_next, time.fired) if is_closing else replay_from(self.context)
        at = dict(self._offsets)
        position = InputPosition(at, time.event_time, replay, point, time.ending_ms, is_closing)
        self._prepared_bytes = self.dirty_bytes
        return PreparedCommit(position, point, chosen)

    def _assert_is_free(self) -> None:
        assert self._prepared_bytes is None, f"a commit of {self.wiring.id} is under way"

    @property
    def _is_closing(self) -> bool:
        """True between two turns of closing windows whose changelog is eventual: then it must say all."""
        return self.has_pending_timers and bool(self.context.eventual_changelogs)

    def flush(self) -> None:
        """Make what was committed durable on the local disk, so that the next restore is short."""
        self._assert_is_free()
        reach("flush.before")
        self._stores.flush()
        reach("flush.after")

    def close(self) -> None:
        """Let go after a commit."""
        try:
            self.context.close()
            self._writer.close()
        finally:
            self._stores.close()

    def abandon(self) -> None:
        """Let go without committing: the open transaction is aborted, the dirty maps are dropped.

        Where the transaction cannot be aborted from here the broker does it, when its time is over or the next owner
        opens the task: it is no error that this one was fenced already, or that no broker answers.
        """
        try:
            self.context.close()
            for let_go in (self._writer.abort, self._writer.close):
                try:
                    let_go()
                except StateflowError as error:
                    _LOG.warning("Task %s leaves its transaction to the broker: %s", self.wiring.id, error)
        finally:
            self._stores.close()
