"""Late records and those of a far future: counted by step, said at once and then once in a while."""

from __future__ import annotations

import logging

import pytest

from stateflow.clock import ManualClock
from stateflow.record import TopicPartition
from stateflow.runtime.event_time.out_of_bounds import OutOfBoundsRecords, shown_instant, shown_span

T0 = 1_700_000_040_000
SOURCE = TopicPartition("orders", 2)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return said


def test_the_first_is_said_at_once_and_the_others_once_a_minute(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    records = OutOfBoundsRecords("orders-2", clock)
    records.note("late", "per-minute", SOURCE, 7, T0 - 35_000, T0)
    (first,) = warnings(caplog)
    assert first == (
        "Task orders-2: 1 record(s) came too late for 'per-minute' (1 since the task started); the"
        " newest, orders[2]@7, has the time 2023-11-14 22:13:25.000+00:00, 0:00:35 behind event time."
    )
    for offset in range(8, 20):
        records.note("late", "per-minute", SOURCE, offset, T0 - 1_000, T0)
    clock.advance(seconds=59)
    records.turn()
    assert warnings(caplog) == []
    clock.advance(seconds=1)
    records.turn()
    (second,) = warnings(caplog)
    assert "12 record(s)" in second
    assert "(13 since" in second
    assert "orders[2]@19" in second
    assert "0:00:01 behind" in second
    clock.advance(seconds=600)
    records.turn()
    assert warnings(caplog) == [], "nothing new is nothing to say"


def test_a_record_long_after_the_last_warning_is_said_at_once(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    records = OutOfBoundsRecords("orders-2", clock)
    records.note("late", "per-minute", SOURCE, 7, 0, T0)
    clock.advance(seconds=61)
    records.note("late", "per-minute", SOURCE, 8, 0, T0)
    assert len(warnings(caplog)) == 2


def test_steps_and_kinds_do_not_hide_each_other(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    records = OutOfBoundsRecords("orders-2", clock)
    records.note("late", "one", SOURCE, 1, T0 - 5, T0)
    records.note("late", "two", TopicPartition("sessions", 2), -1, T0 - 5, T0)
    records.note("ahead", "orders", SOURCE, 3, T0 + 7_200_000, T0)
    records.note("jump", "orders", SOURCE, 4, T0 + 400 * 86_400_000, T0)
    late, of_a_timer, ahead, jump = warnings(caplog)
    assert "'one'" in late
    assert "the newest, sessions[2]," in of_a_timer
    assert "max_ahead and left out" in ahead
    assert "2:00:00 ahead" in ahead
    assert "400 days" in jump
    assert "give the topic max_ahead" in jump
    assert [(met.kind, met.step, met.records_total, met.off_ms) for met in records.met()] == [
        ("late", "one", 1, 5),
        ("late", "two", 1, 5),
        ("ahead", "orders", 1, 7_200_000),
        ("jump", "orders", 1, 400 * 86_400_000),
    ]


def test_what_was_not_told_is_told_at_the_end(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    records = OutOfBoundsRecords("orders-2", clock)
    for offset in range(3):
        records.note("late", "per-minute", SOURCE, offset, T0 - 5, T0)
    assert len(warnings(caplog)) == 1
    records.close()
    (last,) = warnings(caplog)
    assert "2 record(s)" in last
    records.close()
    assert warnings(caplog) == []


def test_times_beyond_the_calendar_can_be_shown() -> None:
    assert shown_instant((1 << 63) - 1) == "9223372036854775807 ms since 1970"
    assert shown_instant(0) == "1970-01-01 00:00:00.000+00:00"
    assert shown_span((1 << 63) - 1) == "292,277,025 years"
    assert shown_span(61_500) == "0:01:01.500000"
