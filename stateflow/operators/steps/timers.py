"""What a record may ask of time: setting timers through the context; and how much of what is due is done in a turn.

A record may make more timers due than fire in one piece. Event time moves with each record before it is processed, and
the timers of its key that are due by then fire first (``operators/classes/operator_step.py``): a few of them in the
midst of the batch. Many must not: nothing would be committed meanwhile. So whoever hands records to a stage asks for
the first *burst*, processes what is before it, lets event time move as the record behind it would move it, and has the
timers fire in turns, with commits between. The input position then stands exactly before that record, with event time
as it is with the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate

from stateflow.clock import Clock
from stateflow.codec.timer import TimerTime
from stateflow.duration import whole_ms
from stateflow.errors import GraphError
from stateflow.operators.steps.context import Burst, StageContext
from stateflow.record import RecordBatch
from stateflow.store.base import StateStore
from stateflow.times import whole_time_ms

TIMERS_PER_TURN = 2_000
TIMERS_PER_RECORD = 100_000
"""Timers of its key that fire before one record; timers that set themselves again for ever must not hold the task."""
REPEATING_MS_MAX = 60_000
"""How far rows of one piece may carry event time past a timer that is due. One that sets itself again each 30 ms fires
as often meanwhile as in a turn; shorter would divide the batches of sparse input for nothing."""
WINDOWS_PER_TURN = 2_000
WINDOWS_PER_CHUNK = 500
"""Windows that close together, between two looks at what is left of the turn."""
SECONDS_PER_TURN = 0.25
DIRTY_BYTES_PER_TURN = 8 << 20
"""A turn does no more while the step's stores hold so much that is not committed."""


class Turn:
    """How much of what is due may still be done before the host gets its turn: to poll, and to commit."""

    def __init__(self, clock: Clock, stores: Sequence[StateStore], done_max: int) -> None:
        self._clock = clock
        self._stores = stores
        self._done = 0
        self._done_max = done_max
        self._until_seconds = clock.monotonic_seconds() + SECONDS_PER_TURN

    def is_over(self, done: int = 1) -> bool:
        """Count what has fired or closed; True when the others have to wait."""
        self._done += done
        if self._done >= self._done_max or self._clock.monotonic_seconds() >= self._until_seconds:
            return True
        dirty_bytes = 0
        for store in self._stores:  # for each timer that fires: a generator would take twice as long
            dirty_bytes += store.dirty_bytes
        return dirty_bytes >= DIRTY_BYTES_PER_TURN


EventTimes = Callable[[RecordBatch], Sequence[int]]
"""How far each raw row carries event time by itself, −1 for one that does not; changes nothing."""


def first_burst(
    batch: RecordBatch, event_times: EventTimes, context: StageContext, until_ms: int
) -> Burst | None:
    """The first row with which event time is past ``until_ms``; None when it comes no further than that."""
    reached_ms, others_ms = context.watermark_ms, context.others_ms
    if others_ms <= reached_ms:  # no row moves it
        return Burst(0, reached_ms) if reached_ms > until_ms else None
    if others_ms <= until_ms:
        return None
    marks_ms: Iterable[int] = accumulate(event_times(batch), max, initial=context.part_mark_ms)
    for row, mark_ms in enumerate(marks_ms, -1):
        watermark_ms = max(reached_ms, min(mark_ms, others_ms))
        if watermark_ms > until_ms:
            return Burst(max(0, row), watermark_ms)
    return None


def due_ms_of(
    after: timedelta | None, at: int | datetime | None, time: TimerTime, event_ms: int, now_ms: int
) -> int:
    """When a timer is due. Raises ``ValueError`` for arguments that do not say exactly one time in ms.

    Raises ``GraphError`` for an unknown word, or an ``after`` that is no span of time: no record is to blame, so no
    policy lets one go for it.
    """
    if time not in ("event", "processing"):
        raise GraphError(
            f"A timer follows 'event' or 'processing' time, not {time!r}.",
            action="Correct time=… in the code.",
        )
    if (after is None) == (at is None):
        raise ValueError("give a timer either after=… or at=…")
    if after is not None:
        begin_ms = now_ms if time == "processing" else event_ms
        if begin_ms < 0:
            raise ValueError("the record has no event time: give the timer at=…, or time='processing'")
        if not isinstance(after, timedelta):
            raise GraphError(
                f"A timer is set after={after!r}.",
                action="Give a datetime.timedelta: after=timedelta(seconds=5).",
            )
        return max(0, begin_ms + whole_ms(after))
    return max(0, whole_time_ms(at, "at"))
