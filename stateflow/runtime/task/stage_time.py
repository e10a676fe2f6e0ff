"""Event time of one task: what its inputs say, how far its stage has been told, and what of it is still due."""

from __future__ import annotations

from dataclasses import replace

from stateflow.changelog.event_time import UNKNOWN_MS, Announced, EventTime
from stateflow.operators.steps.context import Burst, Pipeline
from stateflow.operators.steps.marks import NO_OTHERS_MS
from stateflow.record import RecordBatch
from stateflow.runtime.event_time.watermarks import Watermarks
from stateflow.runtime.task.commit import EventTimeNews
from stateflow.runtime.task.context import TaskContext
from stateflow.runtime.task.wiring import TaskWiring, partitions_added


class StageTime:
    """Moves the event time of a stage as its inputs say, and lets it fire and close what is due, in bounded turns."""

    def __init__(
        self,
        wiring: TaskWiring,
        watermarks: Watermarks,
        context: TaskContext,
        pipeline: Pipeline,
        ending_ms: tuple[int, ...],
    ) -> None:
        self._wiring = wiring
        self._watermarks = watermarks
        self._context = context
        self._pipeline = pipeline
        self.fired_watermark_ms = UNKNOWN_MS
        """Event time whose timers have all fired and whose windows have closed: further behind nothing may be late."""
        self.has_pending_timers = False
        """True when the last turn left timers that are due."""
        self._ending_ms = list(ending_ms)

    @property
    def watermark_ms(self) -> int:
        """Event time up to which the task's input is complete."""
        return self._watermarks.value_ms

    @property
    def event_time(self) -> EventTime:
        """What a commit keeps of it."""
        return self._watermarks.event_time()

    @property
    def fired(self) -> EventTime:
        """Event time as it was when last nothing was due, as far as a replay has to know."""
        return replace(self.event_time, reached_ms=self.fired_watermark_ms)

    @property
    def ending_ms(self) -> tuple[int, ...]:
        """Since the input has ended, and nothing has come: how far event time was carried in each timed step."""
        return tuple(self._ending_ms)

    @property
    def news(self) -> EventTimeNews:
        """What the stages behind are to know."""
        all_ended = self._watermarks.all_ended
        idle = not all_ended and self._watermarks.all_idle
        return EventTimeNews(self.fired_watermark_ms, idle, all_ended and not self.has_pending_timers)

    @property
    def has_ended(self) -> bool:
        """True when all input was declared to be at its end, and all that was pending has fired or closed."""
        return self._watermarks.all_ended and not self.has_pending_timers

    @property
    def needs_turns(self) -> bool:
        """True where a turn may do something though event time has not moved: by the clock, or at the input's end."""
        return self._pipeline.needs_turns or bool(self._ending_ms) or self._watermarks.all_ended

    def advance(self) -> None:
        """One turn: fire what time has made due, a bounded part of it. Raises what the operators raise."""
        self._context.out_of_bounds.turn()
        self._context.others_ms = self.watermark_ms  # what timers send moves event time no further
        self.has_pending_timers = self._advance()
        if not self.has_pending_timers:
            self.fired_watermark_ms = self.watermark_ms

    def begin_records(self, port: int, part: RecordBatch) -> Burst | None:
        """Records between two watermarks come next; tells where timers must fire in turns before them."""
        self._watermarks.wake(port)
        if (
            self._ending_ms
        ):  # the input had ended: where that is not done, steps know of different event times
            self._move_on()
        self._context.begin_part(part.offsets[0])
        self._tell_marks(port)
        return self._pipeline.first_burst(part)

    def carry_to(self, watermark_ms: int) -> None:
        """Event time moves as the next record will move it, which is to be processed when all that is due has fired."""
        self._watermarks.raise_to(watermark_ms)
        self._move_on()

    def processed(self, port: int, part: RecordBatch) -> None:
        """Records were processed, which have their event times now; those of a source topic move event time."""
        if self._wiring.ports[port].is_source and self._watermarks.observe(
            self._watermarks.upstream(port), max(part.timestamps_ms)
        ):
            self._move_on()

    def hear(self, port: int, announced: Announced) -> None:
        """A task of the stage before has announced its event time.

        Raises ``PartitionsAdded`` for a task that there was not when this one was opened.
        """
        known = self._wiring.ports[port].upstreams
        if announced.upstream >= known:
            raise partitions_added(f"what feeds {self._wiring.ports[port].name}", known)
        upstream = self._watermarks.upstream(port, announced.upstream)
        if self._watermarks.observe(upstream, announced.mark_ms, idle=announced.idle, ended=announced.ended):
            self._move_on()
        elif self._watermarks.all_ended:
            self.advance()

    def become_idle(self, port: int) -> None:
        """A source partition has been silent at its end; behind a re-key step this changes nothing."""
        if self._wiring.ports[port].is_source:
            upstream = self._watermarks.upstream(port)
            ended = self._watermarks.has_ended(upstream)
            if self._watermarks.observe(upstream, UNKNOWN_MS, idle=True, ended=ended):
                self._move_on()

    def end_input(self, port: int) -> None:
        """A source partition is at its end for good, as far as this run goes."""
        upstream = self._watermarks.upstream(port)
        idle = self._watermarks.is_idle(upstream)
        if self._watermarks.observe(upstream, UNKNOWN_MS, idle=idle, ended=True):
            self._move_on()
        else:
            self.advance()

    def begin_replay(self, event_time: EventTime) -> tuple[EventTime, list[int]]:
        """Go back to an earlier event time, and tell the steps; what is returned is for ``end_replay``."""
        before = self.event_time, self._ending_ms
        self._ending_ms = []
        self._watermarks.assume(event_time)
        self._pipeline.advance(self.watermark_ms)
        return before

    def end_replay(self, before: tuple[EventTime, list[int]], *, closes_all: bool) -> None:
        """Event time is where it was. It also moves by word of the host, so that may make more due than the input.

        Without ``closes_all`` that is left to the turns of the opened task.
        """
        self.fired_watermark_ms = self.watermark_ms
        event_time, self._ending_ms = before
        self._watermarks.assume(event_time)
        self.has_pending_timers = not closes_all
        if closes_all:
            self._advance()
            self.fired_watermark_ms = self.watermark_ms

    def _move_on(self) -> None:
        self._ending_ms.clear()  # event time has come further than an end of the input before
        self.advance()

    def _advance(self) -> bool:
        if not self._ending_ms and not self._watermarks.all_ended:
            return bool(self._pipeline.advance(self.watermark_ms))
        is_left = bool(self._pipeline.finish(self.watermark_ms, self._ending_ms))
        self._watermarks.raise_to(max(self._ending_ms, default=UNKNOWN_MS))
        return is_left

    def _tell_marks(self, port: int) -> None:
        """Tell the operators how far event time may move with the next records."""
        if self._wiring.ports[port].is_source:
            upstream = self._watermarks.upstream(port)
            self._context.part_mark_ms = self._watermarks.mark_ms(upstream)
            self._context.others_ms = self._watermarks.least_of_others_ms(upstream)
        else:
            self._context.others_ms = NO_OTHERS_MS if self._wiring.is_in_order else UNKNOWN_MS
