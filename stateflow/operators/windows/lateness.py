"""Which records come too late for their window, or for a step that waits so long for those behind.

A record is late when event time had gone on too far before it came, as the kind of window says (``late_from_ms``):
event time in the record's own source partition, which its mark tells, or event time of this step, up to which windows
are closed. The latter is never ahead of the marks of the records that come, but for an input that was idle and came
back. So what is late is the same however the input is cut into batches, and after every restart.
"""

from __future__ import annotations

from stateflow.errors import ProcessingError
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import DeadLetter, LatePolicy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.marks import marks_of, span_ms
from stateflow.operators.steps.rows import without
from stateflow.operators.windows.windows import TimeWindow
from stateflow.record import RecordBatch


class Lateness:
    """Judges the records of one step, which tells it of event time as the step itself is told."""

    def __init__(self, window: TimeWindow, reached_ms: int) -> None:
        self._window = window
        self._grace_ms = window.grace_ms
        self.reached_ms = reached_ms
        """Event time up to which the step has closed its windows."""

    def late_rows(self, batch: RecordBatch) -> list[int]:
        """The rows that are late. A record without an event time is not: it has no window at all."""
        times_ms, marks_ms = batch.timestamps_ms, batch.marks_ms
        if not times_ms:
            return []
        furthest_ms = self.reached_ms if marks_ms is None else max(self.reached_ms, max(marks_ms))
        if span_ms(times_ms)[0] + self._grace_ms >= furthest_ms:
            return []  # a record's own time is in all of its windows: even those of the earliest are open
        reached_ms, late_from_ms = self.reached_ms, self._window.late_from_ms
        return [
            row
            for row, (when_ms, mark_ms) in enumerate(zip(times_ms, marks_of(batch), strict=True))
            if when_ms >= 0 and late_from_ms(when_ms) <= max(mark_ms, reached_ms)
        ]


class GraceCheck:
    """Leaves out the records that are further behind event time than a step waits, as its policies say."""

    def __init__(
        self, step: str, grace_ms: int, late: LatePolicy, context: StageContext, guard: Guard
    ) -> None:
        self._step = step
        self._grace_ms = grace_ms
        self._late = late
        self._context = context
        self._guard = guard

    def in_time(self, batch: RecordBatch, reached_ms: int) -> RecordBatch:
        """The rows that are not late, in a step at which event time is ``reached_ms``."""
        if self._is_all_in_time(batch, reached_ms):
            return batch
        refused = []
        rows = zip(batch.offsets, batch.timestamps_ms, marks_of(batch), strict=True)
        for row, (offset, at_ms, mark_ms) in enumerate(rows):
            if at_ms < 0:
                self._guard.refuse(ValueError("the record has no event time"), offset)
                refused.append(row)
            elif at_ms + self._grace_ms < max(mark_ms, reached_ms):
                self._let_go(batch, row, max(mark_ms, reached_ms))
                refused.append(row)
        return without(batch, refused)

    def _is_all_in_time(self, batch: RecordBatch, reached_ms: int) -> bool:
        """Whether the earliest row is in time at the furthest mark."""
        if not len(batch):
            return True
        first_ms, last_ms = span_ms(batch.timestamps_ms)
        furthest_ms = last_ms if batch.marks_ms is None else max(batch.marks_ms)
        return first_ms >= 0 and first_ms + self._grace_ms >= max(furthest_ms, reached_ms)

    def _let_go(self, batch: RecordBatch, row: int, reached_ms: int) -> None:
        offset, at_ms = batch.offsets[row], batch.timestamps_ms[row]
        self._context.late(self._step, batch.source, offset, at_ms, reached_ms)
        if isinstance(self._late, DeadLetter):
            late = ProcessingError(
                f"The record of {at_ms} ms is late: event time had reached {reached_ms} ms before it.",
                action=f"Give {self._step!r} more grace.",
            )
            self._guard.dead_letter(self._late.topic, late, offset)
