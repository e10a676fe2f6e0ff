"""Records of a future that nobody can mean, seen where they enter: refused, or at least not passed over in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stateflow.errors import ProcessingError
from stateflow.operators.steps.error_policy import DeadLetter, LatePolicy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import without
from stateflow.operators.steps.step import Environment
from stateflow.record import RecordBatch

JUMP_MS = 86_400_000
"""Event time that moves on by more than this, to more than this ahead of the clock, has jumped."""


class AheadLimit:
    """``max_ahead`` of a stream's topics, at work in one task."""

    def __init__(
        self, stream: str, max_ahead_ms: int | None, late: LatePolicy, env: Environment, guard: Guard
    ) -> None:
        self._stream = stream
        self._max_ahead_ms = max_ahead_ms
        self._late = late
        self._context = env.context
        self._origin = env.origin
        self._guard = guard

    def within_log(self, rows: RecordBatch) -> RecordBatch:
        """The rows that are not too far ahead of when Kafka got them, by their own timestamps: a matter of the log."""
        now_ms = self._context.clock.now_ms()
        if self._max_ahead_ms is not None:
            rows = self._kept(rows, self._known_ms(self._origin.sent_ms(rows), now_ms), self._max_ahead_ms)
        self._look_for_a_jump(rows, now_ms)
        return rows

    def within_clock(self, batch: RecordBatch) -> RecordBatch:
        """The rows of a raw batch that are not too far ahead of the clock, by their timestamps on Kafka."""
        times_ms = self._origin.sent_ms(batch)
        if times_ms != batch.timestamps_ms:  # another stream of the topic has left some out before
            batch = replace(batch, timestamps_ms=list(times_ms))
        now_ms = self._context.clock.now_ms()
        if self._max_ahead_ms is not None:
            batch = self._kept(batch, [now_ms] * len(batch), self._max_ahead_ms)
        self._look_for_a_jump(batch, now_ms)
        return batch

    def times_within(self, times_ms: Sequence[int], sent_ms: Sequence[int] | None) -> Sequence[int]:
        """Event times of raw records, −1 in the place of those that will be refused. Nobody is told.

        ``sent_ms`` are their timestamps on Kafka where these are what they are compared with, and not the clock.
        """
        if self._max_ahead_ms is None:
            return times_ms
        now_ms = self._context.clock.now_ms()
        reference_ms = [now_ms] * len(times_ms) if sent_ms is None else self._known_ms(sent_ms, now_ms)
        pairs = zip(times_ms, reference_ms, strict=True)
        return [-1 if when_ms > known_ms + self._max_ahead_ms else when_ms for when_ms, known_ms in pairs]

    def _known_ms(self, sent_ms: Sequence[int], now_ms: int) -> list[int]:
        return [now_ms if ms < 0 else ms for ms in sent_ms]

    def _kept(self, rows: RecordBatch, reference_ms: Sequence[int], ahead_ms: int) -> RecordBatch:
        """The rows within the limit; the others are counted and have followed the policy."""
        if not len(rows) or max(rows.timestamps_ms) <= min(reference_ms) + ahead_ms:
            return rows
        pairs = zip(rows.timestamps_ms, reference_ms, strict=True)
        refused = [row for row, (when_ms, known_ms) in enumerate(pairs) if when_ms > known_ms + ahead_ms]
        for row in refused:
            self._let_go(rows, row, reference_ms[row])
        return without(rows, refused)

    def _let_go(self, rows: RecordBatch, row: int, reference_ms: int) -> None:
        when_ms, offset = rows.timestamps_ms[row], rows.offsets[row]
        self._context.ahead(self._stream, rows.source, offset, when_ms, reference_ms, refused=True)
        if isinstance(self._late, DeadLetter):
            error = ProcessingError(
                f"The record of {when_ms} ms is {when_ms - reference_ms} ms ahead of {reference_ms} ms.",
                action="Correct its producer's clock, or give the topic a longer max_ahead.",
            )
            # Under its own time a broker might refuse the letter, as it should have refused the record.
            now_ms = self._context.clock.now_ms()
            self._guard.dead_letter(self._late.topic, error, offset, timestamp_ms=now_ms)

    def _look_for_a_jump(self, rows: RecordBatch, now_ms: int) -> None:
        """Where nothing forbids it, a record may still carry event time so far that all behind it is late."""
        furthest_ms = max(rows.timestamps_ms, default=-1)
        if furthest_ms > max(now_ms, self._context.part_mark_ms) + JUMP_MS:
            offset = rows.offsets[rows.timestamps_ms.index(furthest_ms)]
            self._context.ahead(self._stream, rows.source, offset, furthest_ms, now_ms, refused=False)
