"""The sessions of one key: what a record does to them, in memory."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stateflow.operators.aggregates.adding import Outgrown
from stateflow.operators.aggregates.stamped_accumulators import StampedAccumulators


@dataclass(slots=True)
class LiveSession:
    """From its first record to its last, both included, with all that is between folded."""

    start_ms: int
    end_ms: int
    accumulator: Any = None
    row: int = -1
    """Row of the newest record in it that came with this batch; −1 for none."""
    found: tuple[tuple[int, int], ...] = field(default=())
    """Start and end of the sessions that were stored before and are in it now."""


class KeySessions:
    """Sessions in the order of time; any two of them are further apart than the gap."""

    def __init__(self, gap_ms: int, accumulators: StampedAccumulators, stored: Sequence[LiveSession]) -> None:
        self._gap_ms = gap_ms
        self._accumulators = accumulators
        self._sessions = sorted(stored, key=_start_ms)

    def add(self, row: int, when_ms: int, value: Any, *, copied: bool = False) -> None:
        """Put a record into the session that it belongs to, or into a new one; sessions that it connects become one.

        ``copied``: what the sessions hold stays whole should the aggregate fail on the record. Else it may also raise
        ``Outgrown``.
        """
        first, after = self._touched(when_ms)
        touched = self._sessions[first:after]
        accumulator = None
        for session in touched:
            held = self._accumulators.copied(session.accumulator) if copied else session.accumulator
            accumulator = self._accumulators.merged(accumulator, held)
        accumulator = self._accumulators.added(accumulator, value)
        if copied:
            self._accumulators.encoded(0, accumulator)
        elif self._accumulators.outgrows(accumulator):
            raise Outgrown
        whole = LiveSession(
            min([when_ms, *(session.start_ms for session in touched)]),
            max([when_ms, *(session.end_ms for session in touched)]),
            accumulator,
            row,
            tuple(each for session in touched for each in session.found),
        )
        del self._sessions[first:after]
        insort(self._sessions, whole, key=_start_ms)

    def changed(self) -> Iterator[LiveSession]:
        """Those that a record of this batch is in, by time."""
        return (session for session in self._sessions if session.row >= 0)

    def _touched(self, when_ms: int) -> tuple[int, int]:
        """Which sessions a record at that time is within a gap of: from the first up to, not including, the second."""
        after = bisect_right(self._sessions, when_ms + self._gap_ms, key=_start_ms)
        first = after
        while first and self._sessions[first - 1].end_ms + self._gap_ms >= when_ms:
            first -= 1
        return first, after


def _start_ms(session: LiveSession) -> int:
    return session.start_ms
