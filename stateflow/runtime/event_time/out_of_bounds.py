"""Records whose event time is out of bounds: late ones, and those of a future that nobody can mean.

None is dropped unseen. Each is counted by the step that it came to; a warning says so at once, and then at most once a
minute, with how many there were since, where the newest stood and how far off its time was. The same goes to the
members' topic, so that ``stateflow workers`` can show it (``runtime/worker/status_reports.py``).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

import msgspec

from stateflow.clock import Clock
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)

WARN_SECONDS = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_MS = 31_556_952_000
_NO_OFFSET = -1

Kind = Literal["late", "ahead", "jump"]
"""``late``: behind a closed window. ``ahead``: further ahead than the topic's ``max_ahead``, and not processed.
``jump``: far ahead of the clock, and processed, so that event time went there."""
KINDS: tuple[Kind, ...] = get_args(Kind)

_SENTENCES = {
    "late": "%d record(s) came too late for %r (%d since the task started); the newest, %s, has the time"
    " %s, %s behind event time.",
    "ahead": "%d record(s) of %r were further ahead than its max_ahead and left out of event time (%d since the task"
    " started); the newest, %s, has the time %s, %s ahead of its reference.",
    "jump": "%d time(s) event time of %r jumped far ahead of the clock (%d since the task started): last with %s, which"
    " has the time %s, %s ahead. What comes with an earlier time is late from then on; if that time is wrong, give the"
    " topic max_ahead=….",
}


class OutOfBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What one step of a task has met of one kind since the task started."""

    task: str
    step: str
    """A window's name; of a source the names of its topics."""
    kind: Kind
    records_total: int
    topic: str
    """Topic, partition and offset of the newest such record; the offset is −1 where a timer sent it."""
    partition: int
    offset: int
    timestamp_ms: int
    """Its event time."""
    reference_ms: int
    """Late: the event time that it came after. Else the time that it was compared with."""
    since_ms: int
    """When the task started, by the clock."""
    newest_ms: int
    """When the newest was met, by the clock."""

    @property
    def off_ms(self) -> int:
        """How far its time was from what it was compared with."""
        return abs(self.reference_ms - self.timestamp_ms)

    @property
    def place(self) -> str:
        """``topic[partition]@offset`` of the newest."""
        source = TopicPartition(self.topic, self.partition)
        return str(source) if self.offset == _NO_OFFSET else f"{source}@{self.offset}"


class OutOfBoundsRecords:
    """Counts and warns for one task. ``turn`` is called now and then, so that the last ones of a burst are told."""

    def __init__(self, task: str, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._since_ms = clock.now_ms()
        self._met: dict[tuple[Kind, str], _Met] = {}

    def note(
        self,
        kind: Kind,
        step: str,
        source: TopicPartition,
        offset: int,
        timestamp_ms: int,
        reference_ms: int,
    ) -> None:
        """One more, at this place."""
        met = self._met.get((kind, step))
        if met is None:
            met = self._met[kind, step] = _Met()
        met.total += 1
        met.newest = (source, offset, timestamp_ms, reference_ms)
        met.newest_ms = self._clock.now_ms()
        self._warn_if_due(kind, step, met)

    def turn(self) -> None:
        """Warn of what was met since the last warning, where that is long enough ago."""
        for (kind, step), met in self._met.items():
            self._warn_if_due(kind, step, met)

    def close(self) -> None:
        """Warn of whatever was not told yet."""
        for (kind, step), met in self._met.items():
            if met.total > met.told:
                self._warn(kind, step, met)

    def met(self) -> list[OutOfBounds]:
        """What was met so far, by kind and step."""
        return [self._out_of_bounds(kind, step, met) for (kind, step), met in self._met.items()]

    def _warn_if_due(self, kind: Kind, step: str, met: _Met) -> None:
        if met.total == met.told:
            return
        now_seconds = self._clock.monotonic_seconds()
        if met.told_seconds is None or now_seconds - met.told_seconds >= WARN_SECONDS:
            self._warn(kind, step, met)

    def _warn(self, kind: Kind, step: str, met: _Met) -> None:
        newest = self._out_of_bounds(kind, step, met)
        _LOG.warning(
            f"Task %s: {_SENTENCES[kind]}",
            self._task,
            met.total - met.told,
            step,
            met.total,
            newest.place,
            shown_instant(newest.timestamp_ms),
            shown_span(newest.off_ms),
        )
        met.told, met.told_seconds = met.total, self._clock.monotonic_seconds()

    def _out_of_bounds(self, kind: Kind, step: str, met: _Met) -> OutOfBounds:
        (topic, partition), offset, timestamp_ms, reference_ms = met.newest
        return OutOfBounds(
            task=self._task,
            step=step,
            kind=kind,
            records_total=met.total,
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            reference_ms=reference_ms,
            since_ms=self._since_ms,
            newest_ms=met.newest_ms,
        )


class _Met:
    """What was met of one kind at one step, and how much of it was told."""

    __slots__ = ("newest", "newest_ms", "told", "told_seconds", "total")

    def __init__(self) -> None:
        self.total = 0
        self.told = 0
        self.told_seconds: float | None = None
        self.newest = (TopicPartition("", 0), _NO_OFFSET, 0, 0)
        self.newest_ms = 0


def shown_instant(when_ms: int) -> str:
    """An event time for people, in UTC; as ms where it is beyond the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=when_ms)).isoformat(sep=" ", timespec="milliseconds")
    except OverflowError:
        return f"{when_ms} ms since 1970"


def shown_span(span_ms: int) -> str:
    """A distance in event time for people; in years where it is beyond what a calendar has."""
    try:
        return str(timedelta(milliseconds=span_ms))
    except OverflowError:
        return f"{span_ms / _YEAR_MS:,.0f} years"
