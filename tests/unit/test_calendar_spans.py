"""Days, weeks and months of time zones: every instant is in exactly one, whatever the clocks do."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateflow.calendar_spans import NO_SPAN, CalendarUnit, spans_of
from stateflow.errors import GraphError

HOUR_MS = 3_600_000
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/Los_Angeles",
    "America/St_Johns",  # until 2011 clocks went back over midnight
    "America/Sao_Paulo",  # until 2018 there was no midnight on the first day of summer
    "America/Havana",  # midnight comes twice in autumn
    "Pacific/Apia",  # had no 30 December 2011
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # half an hour
)
Units = st.sampled_from(("day", "week", "month"))
Instants = st.integers(86_400_000 * 40, 2_000_000_000_000)


def ms(zone: str, *parts: int) -> int:
    return round(datetime(*parts, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[misc,arg-type]


@given(unit=Units, zone=st.sampled_from(ZONES), when_ms=Instants)
@settings(max_examples=300, deadline=None)
def test_spans_stand_side_by_side(unit: CalendarUnit, zone: str, when_ms: int) -> None:
    spans = spans_of(unit, zone)
    start_ms = spans.start_ms(when_ms)
    end_ms = spans.end_ms(start_ms)
    assert start_ms <= when_ms < end_ms <= start_ms + spans.longest_ms
    assert spans.start_ms(start_ms) == spans.start_ms(end_ms - 1) == start_ms
    assert spans.start_ms(end_ms) == end_ms


@given(unit=Units, zone=st.sampled_from(("UTC", "Europe/Berlin", "Asia/Kathmandu")), when_ms=Instants)
@settings(max_examples=300, deadline=None)
def test_they_are_what_the_clocks_show(unit: CalendarUnit, zone: str, when_ms: int) -> None:
    """In zones whose clocks change at other hours than midnight."""
    day = datetime.fromtimestamp(when_ms // 1000, ZoneInfo(zone)).date()
    first = {"day": day, "week": day - timedelta(days=day.weekday()), "month": day.replace(day=1)}[unit]
    assert spans_of(unit, zone).start_ms(when_ms) == ms(zone, first.year, first.month, first.day)


@pytest.mark.parametrize(
    ("day", "hours"), [(date(2024, 3, 31), 23), (date(2024, 10, 27), 25), (date(2024, 7, 1), 24)]
)
def test_a_day_is_as_long_as_its_clocks_say(day: date, hours: int) -> None:
    spans = spans_of("day", "Europe/Berlin")
    start_ms = ms("Europe/Berlin", day.year, day.month, day.day)
    assert spans.start_ms(start_ms + hours * HOUR_MS - 1) == start_ms
    assert spans.end_ms(start_ms) == start_ms + hours * HOUR_MS


def test_a_day_without_midnight_begins_when_the_clocks_pass_over_it() -> None:
    spans = spans_of("day", "America/Sao_Paulo")
    first_ms = ms("America/Sao_Paulo", 2017, 10, 15, 1)
    assert spans.start_ms(first_ms) == first_ms
    assert spans.start_ms(first_ms - 1) == ms("America/Sao_Paulo", 2017, 10, 14)


def test_a_day_that_was_left_out_is_none() -> None:
    spans = spans_of("day", "Pacific/Apia")
    start_ms = spans.start_ms(ms("Pacific/Apia", 2011, 12, 29, 12))
    assert spans.end_ms(start_ms) == ms("Pacific/Apia", 2011, 12, 31)


def test_what_is_before_1970_or_behind_the_calendar_has_no_span() -> None:
    spans = spans_of("month", "America/Los_Angeles")
    assert spans.start_ms(-1) == NO_SPAN
    assert spans.start_ms(1 << 60) == NO_SPAN
    assert spans.start_ms(5) < 0


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(GraphError, match="fortnight"):
        spans_of("fortnight", "UTC")
    for zone in ("Europe/Bonn", "", "../x", 5):
        with pytest.raises(GraphError, match="time zone"):
            spans_of("day", zone)
