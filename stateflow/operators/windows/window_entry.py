"""Which records enter a window: those with a key and an event time that are not late. Of the others people are told."""

from __future__ import annotations

from stateflow.errors import ProcessingError
from stateflow.operators.aggregates.aggregation import with_keys
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import DeadLetter, LatePolicy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.marks import marks_of, span_ms
from stateflow.operators.steps.rows import without
from stateflow.operators.windows.lateness import Lateness
from stateflow.operators.windows.windows import FixedWindow, TimeWindow
from stateflow.record import RecordBatch


class Entry:
    """The door of one windowed step."""

    def __init__(
        self, name: str, window: TimeWindow, late: LatePolicy, context: StageContext, guard: Guard
    ) -> None:
        self._name = name
        self._window = window
        self._late = late
        self._context = context
        self._guard = guard
        self._lateness = Lateness(window, context.watermark_ms)

    @property
    def reached_ms(self) -> int:
        """Event time up to which the step has closed its windows."""
        return self._lateness.reached_ms

    @reached_ms.setter
    def reached_ms(self, watermark_ms: int) -> None:
        self._lateness.reached_ms = watermark_ms

    def in_time(self, batch: RecordBatch) -> RecordBatch:
        """The records that have a key and a time and whose window still takes them; the others follow the policies."""
        batch = with_keys(batch, self._guard)
        refused = self._lateness.late_rows(batch)
        if refused:
            marks_ms = marks_of(batch)
            for row in refused:
                self._let_go(batch, row, marks_ms[row])
            batch = without(batch, refused)
        return without(batch, self._without_window(batch))

    def _without_window(self, batch: RecordBatch) -> list[int]:
        times_ms = batch.timestamps_ms
        if not times_ms:
            return []
        rows = []
        first_ms, last_ms = span_ms(times_ms)
        if first_ms < 0:
            rows = [row for row, when_ms in enumerate(times_ms) if when_ms < 0]
            for row in rows:
                self._guard.refuse(ValueError("the record has no event time"), batch.offsets[row])
        if not isinstance(self._window, FixedWindow):
            return rows
        start_ms = self._window.start_ms
        if start_ms(max(0, first_ms)) >= 0 and start_ms(last_ms) >= 0:
            return rows
        outside = [row for row, when_ms in enumerate(times_ms) if when_ms >= 0 and start_ms(when_ms) < 0]
        for row in outside:
            reason = f"the window of {times_ms[row]} ms would begin before 1970, or after the year 9995"
            self._guard.refuse(ValueError(reason), batch.offsets[row])
        return rows + outside

    def _let_go(self, batch: RecordBatch, row: int, mark_ms: int) -> None:
        offset, when_ms = batch.offsets[row], batch.timestamps_ms[row]
        reached_ms = max(mark_ms, self._lateness.reached_ms)
        self._context.late(self._name, batch.source, offset, when_ms, reached_ms)
        if isinstance(self._late, DeadLetter):
            late = ProcessingError(
                f"The record of {when_ms} ms is late: event time had reached {reached_ms} ms before it.",
                action="Give the window more grace.",
            )
            self._guard.dead_letter(self._late.topic, late, offset)
