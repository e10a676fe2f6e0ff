"""Which records come too late for their window.

A record is late when event time had gone on too far before it came, as the kind of window says (``late_from_ms``):
event time in the record's own source partition, which its mark tells, or event time of this step, up to which windows
are closed. The latter is never ahead of the marks of the records that come, but for an input that was idle and came
back. So what is late is the same however the input is cut into batches, and after every restart.
"""

from __future__ import annotations

from stateflow.operators.marks import marks_of
from stateflow.operators.windows import TimeWindow
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
        if min(times_ms) + self._grace_ms >= furthest_ms:
            return []  # a record's own time is in all of its windows: even those of the earliest are open
        reached_ms, late_from_ms = self.reached_ms, self._window.late_from_ms
        return [
            row
            for row, (when_ms, mark_ms) in enumerate(zip(times_ms, marks_of(batch), strict=True))
            if when_ms >= 0 and late_from_ms(when_ms) <= max(mark_ms, reached_ms)
        ]
