"""Days, weeks and months of a time zone, as spans of event time: daylight saving makes some longer and some shorter.

A day begins with the first instant at which its date and 00:00 are on the clocks, or with the one at which they are
passed over. It ends where the next one begins. So every instant is in exactly one day, also where clocks go back over
midnight (St. John's until 2011), have no midnight (São Paulo until 2018), or leave out a day (Samoa in 2011).
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Literal, get_args

from stateflow.errors import GraphError

CalendarUnit = Literal["day", "week", "month"]
_UNITS: tuple[CalendarUnit, ...] = get_args(CalendarUnit)
_DAY_MS = 86_400_000
_HOURS_MORE_MS = 6 * 3_600_000
"""More than by which a zone has been put back at once since 1970."""
_LONGEST_DAYS: dict[CalendarUnit, int] = {"day": 1, "week": 7, "month": 31}
_KEPT_DAYS = 4_096
_CALENDAR_END_MS = 253_300_000_000_000
"""In the year 9996: some years on, Python has no dates any more."""
NO_SPAN = -1


class CalendarSpans:
    """The spans of one unit in one time zone. Use :func:`spans_of`, which gives the same object for the same two."""

    def __init__(self, unit: CalendarUnit, zone: str) -> None:
        # It brings a good part of the standard library: only for those who need it.
        from zoneinfo import ZoneInfo

        self.unit = unit
        self.zone = zone
        self._zone = ZoneInfo(zone)
        self._starts_on = lru_cache(_KEPT_DAYS)(self._find_starts)

    @property
    def longest_ms(self) -> int:
        """No span is longer, ms."""
        return _LONGEST_DAYS[self.unit] * _DAY_MS + _HOURS_MORE_MS

    def start_ms(self, when_ms: int) -> int:
        """Where the span begins that an instant is in; negative before 1970, and after the calendar's end."""
        if not 0 <= when_ms < _CALENDAR_END_MS:
            return NO_SPAN
        starts_ms = self._starts_on(when_ms // _DAY_MS)
        return starts_ms[bisect_right(starts_ms, when_ms) - 1]

    def end_ms(self, start_ms: int) -> int:
        """Where the span ends that begins there: where the next one begins."""
        return self._begin_after(start_ms)

    def _find_starts(self, day: int) -> tuple[int, ...]:
        """Of one day of UTC: the start of the span that its first instant is in, and those that follow within it."""
        first_ms = day * _DAY_MS
        starts_ms = [self._begin_before(first_ms)]
        while (next_ms := self._begin_after(starts_ms[-1])) < first_ms + _DAY_MS:
            starts_ms.append(next_ms)
        return tuple(starts_ms)

    def _begin_before(self, when_ms: int) -> int:
        """The last start at or before an instant."""
        first = self._next(self._first_of(self._date_of(when_ms)))
        while (begin_ms := self._begin_ms(first)) > when_ms:
            first = self._first_of(first - timedelta(days=1))
        return begin_ms

    def _begin_after(self, when_ms: int) -> int:
        """The first start after an instant."""
        first = self._first_of(self._first_of(self._date_of(when_ms)) - timedelta(days=1))
        while (begin_ms := self._begin_ms(first)) <= when_ms:
            first = self._next(first)
        return begin_ms

    def _date_of(self, when_ms: int) -> date:
        return datetime.fromtimestamp(when_ms // 1000, self._zone).date()

    def _first_of(self, day: date) -> date:
        """The first day of the unit that a day is in."""
        if self.unit == "day":
            return day
        return day.replace(day=1) if self.unit == "month" else day - timedelta(days=day.weekday())

    def _next(self, first: date) -> date:
        return self._first_of(first + timedelta(days=_LONGEST_DAYS[self.unit]))

    def _begin_ms(self, first: date) -> int:
        # Of a midnight that comes twice the first; one that there is not is reckoned by the clocks as they were before.
        midnight = datetime(first.year, first.month, first.day, tzinfo=self._zone)
        return round(midnight.timestamp()) * 1000


@lru_cache(None)
def spans_of(unit: CalendarUnit, zone: str) -> CalendarSpans:
    """The spans of a unit (Monday begins a week) in a time zone of the IANA database.

    Raises ``GraphError`` for a unit or a zone that there is not.
    """
    if unit not in _UNITS:
        raise GraphError(
            f"There is no calendar window of a {unit!r}.", action="Give 'day', 'week' or 'month'."
        )
    try:
        return CalendarSpans(unit, zone)
    except (KeyError, ValueError, OSError, TypeError) as cause:  # KeyError: what ZoneInfoNotFoundError is
        raise GraphError(
            f"The time zone {zone!r} is not known here.",
            action="Give a name of the IANA database, as 'Europe/Berlin'; where the system has none, install tzdata.",
        ) from cause
