"""Windows, as they are declared. What each kind means is in ``docs/windows.md``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, get_args

from stateflow.calendar_spans import CalendarSpans, CalendarUnit, spans_of
from stateflow.changelog.eventual import Eventual
from stateflow.codec.base import Codec
from stateflow.codec.windowed import CalendarCodec, WindowedCodec, WindowKeyCodec
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.classes.every import Every
from stateflow.operators.stateful.limits import OnClose, TimeLimit
from stateflow.operators.steps.error_policy import Skip, check_late_policy

Emit = Literal["on_update", "on_close"]
"""When windows tell by themselves."""
Delayed = Every | TimeLimit | OnClose
"""When what they tell on update is passed on."""
Emission = Emit | Delayed
_EMITS: tuple[Emit, ...] = get_args(Emit)

ZERO = timedelta(0)
OVERLAPPING_MAX = 10_000
"""Windows that one record may be in."""


class TimeWindow(ABC):
    """Windows in event time. Whether a record is late for them is told by its time and its mark alone."""

    __slots__ = ()
    grace: timedelta
    grace_ms: int
    """Grace, ms."""

    @abstractmethod
    def late_from_ms(self, when_ms: int) -> int:
        """The event time from which on a record of some time, which is not negative, is late."""

    def _set_ms(self, size_ms: int, **spans: timedelta) -> None:
        """Set ``grace_ms`` and others once, as they are asked for each record. Raises ``GraphError``."""
        for name, span in {"grace": self.grace, **spans}.items():
            object.__setattr__(self, f"{name}_ms", declared_ms(f"{name} of a window", span))
        if size_ms < 1 or self.grace_ms < 0:
            raise GraphError(
                f"A window of {timedelta(milliseconds=size_ms)} with a grace of {self.grace} cannot be.",
                action="Give a size of 1 ms or more and a grace that is not negative.",
            )


class FixedWindow(TimeWindow):
    """Windows that are there before any record is: a record's time alone tells those that it is in."""

    __slots__ = ()
    is_single = True
    """Whether a record is in one window, not in several that overlap."""

    @property
    @abstractmethod
    def longest_ms(self) -> int:
        """No window is longer, ms."""

    @abstractmethod
    def start_ms(self, when_ms: int) -> int:
        """Start of the latest window that a time is in; negative where there is none."""

    def starts_ms(self, when_ms: int) -> Sequence[int]:
        """Starts of all windows that a time is in, the earliest first; none is negative."""
        start_ms = self.start_ms(when_ms)
        return () if start_ms < 0 else (start_ms,)

    def starts_of(self, times_ms: Sequence[int]) -> list[int]:
        """``start_ms`` of each."""
        return list(map(self.start_ms, times_ms))

    @abstractmethod
    def end_ms(self, start_ms: int) -> int:
        """Where the window ends that starts there; it does not contain its end."""

    @abstractmethod
    def ended_ms(self, at_ms: int) -> int:
        """Windows that start at or before this have ended by then, and no others; negative for none."""

    @abstractmethod
    def key_codec(self, key: Codec[Any]) -> WindowKeyCodec[Any]:
        """How a key in a window is written."""

    def late_from_ms(self, when_ms: int) -> int:
        """When the last window that it is in takes no more records."""
        start_ms = self.start_ms(when_ms)
        return (when_ms + 1 if start_ms < 0 else self.end_ms(start_ms)) + self.grace_ms


@dataclass(frozen=True, slots=True)
class Tumbling(FixedWindow):
    """Windows of equal size, side by side: each record is in exactly one.

    They are aligned to 1970 UTC; with an ``offset`` they begin so much later: days at 6:00 UTC with one of six hours.
    ``grace`` is how long after its end a window still takes records; what comes later is late.
    Raises ``GraphError`` for a size below 1 ms, a negative grace or offset, an offset that is not below the size, or
    fractions of a millisecond.
    """

    size: timedelta
    grace: timedelta = ZERO
    offset: timedelta = ZERO
    size_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)
    offset_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set_ms(declared_ms("size of a window", self.size), size=self.size, offset=self.offset)
        _check_offset(self.offset, self.size)

    @property
    def longest_ms(self) -> int:
        """The size, ms."""
        return self.size_ms

    def start_ms(self, when_ms: int) -> int:
        """Where its window starts."""
        return when_ms - (when_ms - self.offset_ms) % self.size_ms

    def starts_of(self, times_ms: Sequence[int]) -> list[int]:
        """Where the window of each starts."""
        size_ms, offset_ms = self.size_ms, self.offset_ms
        return [when_ms - (when_ms - offset_ms) % size_ms for when_ms in times_ms]

    def end_ms(self, start_ms: int) -> int:
        """A size later."""
        return start_ms + self.size_ms

    def ended_ms(self, at_ms: int) -> int:
        """A size earlier."""
        return at_ms - self.size_ms

    def key_codec(self, key: Codec[Any]) -> WindowKeyCodec[Any]:
        """Key and start."""
        return WindowedCodec(key, self.size_ms)


@dataclass(frozen=True, slots=True)
class Hopping(FixedWindow):
    """Windows of equal size, one beginning every ``advance``: they overlap, and each record is in several.

    Aligned as tumbling ones. None begins before 1970. A record is late when all of its windows are closed; while only
    some are, it counts in the others. Raises ``GraphError`` also for an advance that is below 1 ms, longer than the
    size, or so short that a record would be in more than 10,000 windows.
    """

    size: timedelta
    advance: timedelta
    grace: timedelta = ZERO
    offset: timedelta = ZERO
    size_ms: int = field(init=False, repr=False, compare=False)
    advance_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)
    offset_ms: int = field(init=False, repr=False, compare=False)

    is_single = False

    def __post_init__(self) -> None:
        spans = {"size": self.size, "advance": self.advance, "offset": self.offset}
        self._set_ms(declared_ms("size of a window", self.size), **spans)
        if not 1 <= self.advance_ms <= self.size_ms or self.size_ms > OVERLAPPING_MAX * self.advance_ms:
            raise GraphError(
                f"A hopping window of {self.size} cannot begin every {self.advance}.",
                action=f"Give an advance from a {OVERLAPPING_MAX:,}th of the size up to the size, 1 ms or more.",
            )
        _check_offset(self.offset, self.advance)

    @property
    def longest_ms(self) -> int:
        """The size, ms."""
        return self.size_ms

    def start_ms(self, when_ms: int) -> int:
        """Where the latest of its windows starts."""
        return when_ms - (when_ms - self.offset_ms) % self.advance_ms

    def starts_ms(self, when_ms: int) -> Sequence[int]:
        """Where they start, the earliest first."""
        advance_ms, last_ms = self.advance_ms, self.start_ms(when_ms)
        before_ms = max(-1, when_ms - self.size_ms)
        count = max(0, -((before_ms - last_ms) // advance_ms)) if last_ms >= 0 else 0
        return [last_ms - back * advance_ms for back in reversed(range(count))]

    def end_ms(self, start_ms: int) -> int:
        """A size later."""
        return start_ms + self.size_ms

    def ended_ms(self, at_ms: int) -> int:
        """A size earlier."""
        return at_ms - self.size_ms

    def key_codec(self, key: Codec[Any]) -> WindowKeyCodec[Any]:
        """Key and start."""
        return WindowedCodec(key, self.size_ms)


@dataclass(frozen=True, slots=True)
class Calendar(FixedWindow):
    """Days, weeks (from Monday) or months as the clocks of a time zone show them: ``Calendar("day", "Europe/Berlin")``.

    A day has 23 or 25 hours where daylight saving begins or ends. Raises ``GraphError`` for a zone that is not in the
    IANA database, or for a negative grace.
    """

    unit: CalendarUnit
    zone: str
    grace: timedelta = ZERO
    grace_ms: int = field(init=False, repr=False, compare=False)
    spans: CalendarSpans = field(init=False, repr=False, compare=False)
    """The calendar."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", spans_of(self.unit, self.zone))
        self._set_ms(self.longest_ms)

    @property
    def longest_ms(self) -> int:
        """No day, week or month is longer, ms."""
        return self.spans.longest_ms

    def start_ms(self, when_ms: int) -> int:
        """Where its day, week or month starts."""
        return self.spans.start_ms(when_ms)

    def end_ms(self, start_ms: int) -> int:
        """Where the next one starts."""
        return self.spans.end_ms(start_ms)

    def ended_ms(self, at_ms: int) -> int:
        """Just before the one starts that is running then."""
        return self.spans.start_ms(at_ms) - 1

    def key_codec(self, key: Codec[Any]) -> WindowKeyCodec[Any]:
        """Key and start."""
        return CalendarCodec(key, self.unit, self.zone)


@dataclass(frozen=True, slots=True)
class Session(TimeWindow):
    """Windows that last as long as a key's records follow each other within ``gap``, the gap included.

    A record is late when event time before it was more than ``grace`` ahead of it. A session is over when event time
    is more than gap + grace past its last record: nothing that is not late can prolong it then, on whatever partition
    it comes. Sessions that a record brings within a gap of each other become one. Needs an aggregate with a ``merge``.
    Raises ``GraphError`` for a gap below 1 ms or a negative grace.
    """

    gap: timedelta
    grace: timedelta = ZERO
    gap_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set_ms(declared_ms("gap of a session", self.gap), gap=self.gap)

    def late_from_ms(self, when_ms: int) -> int:
        """When event time is further ahead than the grace."""
        return when_ms + self.grace_ms + 1


@dataclass(frozen=True, slots=True)
class Sliding(TimeWindow):
    """Windows of records at most ``difference`` apart from each other, both ends included, as Kafka Streams has them.

    For each record there is the window that ends with it, and the one that begins just after it if it holds anything:
    so there is one for each different set of records that a span of this length can contain. A record is late when
    event time before it was more than ``grace`` ahead of it; a window is closed when event time is more than the grace
    past its end. Needs an aggregate with a ``merge``; records that are in one window are folded in the order of their
    times. Raises ``GraphError`` for a difference below 1 ms or a negative grace.
    """

    difference: timedelta
    grace: timedelta = ZERO
    difference_ms: int = field(init=False, repr=False, compare=False)
    grace_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        difference_ms = declared_ms("difference of a sliding window", self.difference)
        self._set_ms(difference_ms, difference=self.difference)

    def late_from_ms(self, when_ms: int) -> int:
        """When event time is further ahead than the grace."""
        return when_ms + self.grace_ms + 1


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of ``size`` records of a key, in the order of the log; one begins with every ``advance``-th of them.

    Without an advance they stand side by side. Time has no part in them: nothing is late, and they close when they are
    full. Raises ``GraphError`` for numbers below 1, or when a record would be in more than 10,000 windows.
    """

    size: int
    advance: int | None = None

    def __post_init__(self) -> None:
        numbers = (self.size, self.step)
        if not all(isinstance(number, int) and number >= 1 for number in numbers) or (
            self.size > OVERLAPPING_MAX * self.step
        ):
            raise GraphError(
                f"A window of {self.size} records cannot begin with every {self.step}.",
                action=f"Give whole numbers from 1 on, an advance of a {OVERLAPPING_MAX:,}th of the size or more.",
            )

    @property
    def step(self) -> int:
        """Records from the first of one window to that of the next."""
        return self.size if self.advance is None else self.advance


Window = Tumbling | Hopping | Calendar | Session | Sliding


def check_window(window: object, emit: object, late: object, changelog: object) -> None:
    """Raise ``GraphError`` for what ``.window(…)`` does not take: a misspelt word would swallow every result."""
    if not isinstance(window, TimeWindow | CountWindow):
        kinds = "sf.Hopping, sf.Calendar, sf.Session, sf.Sliding or sf.CountWindow"
        raise GraphError(f"{window!r} is no window.", action=f"Give sf.Tumbling(size, grace=…), {kinds}.")
    if not isinstance(emit, Delayed) and emit not in _EMITS:
        raise GraphError(
            f"A window was given emit={emit!r}.",
            action="Give emit='on_update' or 'on_close', or sf.Every(…), sf.TimeLimit(…) or sf.OnClose(…).",
        )
    check_late_policy("A window", late)
    if changelog is not None and not isinstance(changelog, Eventual):
        raise GraphError(
            f"A window was given changelog={changelog!r}.",
            action="Give sf.Eventual(intensity=…), or leave it out to have every change logged.",
        )
    if changelog is not None and isinstance(emit, Delayed):
        raise GraphError(
            f"A window was given changelog={changelog!r} and emit={emit!r}.",
            action="Leave one of them out: what is held back cannot be computed again from the input.",
        )
    if isinstance(window, CountWindow) and (late != Skip() or changelog is not None):
        raise GraphError(
            "A window of records was given late= or changelog=.",
            action="Leave both out: no record is late for it, and each change is logged.",
        )


def _check_offset(offset: timedelta, below: timedelta) -> None:
    if not ZERO <= offset < below:
        raise GraphError(
            f"Windows cannot have an offset of {offset}.",
            action=f"Give one from 0 up to, not including, {below}, from one start to the next.",
        )
