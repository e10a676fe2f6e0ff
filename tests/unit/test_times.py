"""Times that the application gives, as event times, for what is emitted and for timers: taken, or refused by name."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError
from stateflow.testing import TestDriver
from stateflow.times import TIME_MS_MAX, emitted_ms, time_ms


class Noon(IntEnum):
    TODAY = 43_200_000


TAKEN = [
    (0, 0),
    (5.0, 5),
    (1.7e12, 1_700_000_000_000),
    (Noon.TODAY, 43_200_000),
    (datetime(1970, 1, 2, tzinfo=UTC), 86_400_000),
    (datetime(2024, 1, 1, 11, 59, 59, 999_600, tzinfo=UTC), 1_704_110_399_999),
    (datetime(2004, 11, 1, 1, 37, 50, 728_000, tzinfo=UTC), 1_099_273_070_728),
    (TIME_MS_MAX, TIME_MS_MAX),
]
REFUSED = [
    (1.5, "whole milliseconds"),
    (math.nan, "whole milliseconds"),
    (math.inf, "whole milliseconds"),
    (Decimal(5), "Decimal"),
    ("5", "str"),
    (None, "NoneType"),
    (True, "bool"),
    (-1.0, "before 1970"),
    (-5, "before 1970"),
    (2**70, "beyond"),
    (2.0**70, "beyond"),
    (TIME_MS_MAX + 1, "beyond"),
    (datetime(2024, 1, 1), "no time zone"),
    (timedelta(seconds=1), "timedelta"),
]


@pytest.mark.parametrize(("given", "ms"), TAKEN)
def test_whole_milliseconds_and_datetimes_are_times(given: Any, ms: int) -> None:
    assert time_ms(given) == emitted_ms(given) == ms
    assert type(time_ms(given)) is int


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_anything_else_is_refused(given: Any, why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        time_ms(given)
    with pytest.raises((ValueError, TypeError), match=why):
        emitted_ms(given)


def test_what_has_no_time_may_be_emitted_without_one() -> None:
    assert emitted_ms(-1) == -1


TIMES: dict[str, Any] = {"decimal": Decimal("1.5"), "huge": 2**70}


def told_time(value: dict[str, Any]) -> Any:
    return TIMES.get(value["ts"], value["ts"])


def timed(on_error: Any) -> tuple[sf.App, Any, Any, Any]:
    app = sf.App("timed")
    source = app.topic("in", key=str, value=dict, timestamp=told_time)
    out, dead = app.topic("out", key=str, value=sf.Json), app.topic("dead", key=str, value=dict)
    app.stream(source, co_partitioned=True, on_error=on_error).to(out)
    return app, source, out, dead


@pytest.mark.parametrize("bad", [1.5, -3, "soon", None, "decimal", "huge"])
def test_a_record_without_a_usable_time_follows_the_policy_of_its_stream(bad: Any) -> None:
    app, source, out, dead = timed(sf.DeadLetter("dead"))
    driver = TestDriver(app)
    driver.send(source, {"ts": 1000.0}, {"ts": bad}, {"ts": 2000}, key="k")
    assert [row.timestamp_ms for row in driver.rows(out)] == [1000, 2000]
    (letter,) = driver.output(dead)
    told = dict(letter.headers)
    assert (told["sf-topic"], told["sf-offset"], told["sf-step"]) == (b"in", b"1", b"in")
    assert b"event time" in told["sf-error-message"]


def test_without_a_policy_the_error_names_the_record() -> None:
    app, source, _, _ = timed(sf.Fail())
    with pytest.raises(
        ProcessingError, match=r"step 'in' at in\[\d\] offset 0: .*event time 1\.5 is a float"
    ):
        TestDriver(app).send(source, {"ts": 1.5}, key="k")


class Emitting(sf.Operator[str, dict, Any]):  # type: ignore[type-arg]
    def on_record(self, value: dict[str, Any], ctx: sf.Context[Any]) -> None:
        ctx.emit(1, timestamp_ms=TIMES.get(value["at"], value["at"]))


def emitting(on_error: Any) -> tuple[TestDriver, Any, Any]:
    app = sf.App("emitting")
    source, out = app.topic("in", key=str, value=dict), app.topic("out", key=str, value=int)
    stream = app.stream(source, co_partitioned=True)
    stream.process(Emitting, name="op", on_error=on_error).to(out)
    return TestDriver(app), source, out


@pytest.mark.parametrize("bad", [1.5, -3, "soon", "decimal", "huge"])
def test_what_is_emitted_has_a_time_or_follows_the_policy(bad: Any) -> None:
    driver, source, out = emitting(sf.Skip())
    driver.send(source, {"at": 7.0}, {"at": bad}, {"at": None}, key="k")
    assert [row.timestamp_ms for row in driver.rows(out)][:1] == [7]
    assert len(driver.rows(out)) == 2
    driver, source, _ = emitting(sf.Fail())
    with pytest.raises(ProcessingError, match=r"step 'op' at in\[\d\] offset 0: .*timestamp_ms"):
        driver.send(source, {"at": bad}, key="k")


class SettingTimers(sf.Operator[str, str, str]):
    def on_record(self, value: str, ctx: sf.Context[str]) -> None:
        arguments: dict[str, dict[str, Any]] = {
            "after": {"name": "t", "after": 5},
            "at": {"name": "t", "at": 1.5},
            "huge": {"name": "t", "at": 2**70},
            "name": {"name": 5, "at": 5},
            "fine": {"name": "t", "at": 10_000.0},
            "past": {"name": "t", "at": -5},
        }
        ctx.timer(**arguments[value])

    def on_timer(self, name: str, ctx: sf.Context[str]) -> None:
        ctx.emit(f"{name} {ctx.timestamp_ms}")


def timers() -> tuple[TestDriver, Any, Any]:
    app = sf.App("timers")
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=str)
    app.stream(source, co_partitioned=True).process(SettingTimers, name="op").to(out)
    return TestDriver(app), source, out


@pytest.mark.parametrize(
    ("value", "error", "why"),
    [
        ("after", GraphError, r"A timer is set after=5\..*timedelta"),
        ("name", GraphError, r"A timer has the name 5\."),
        ("at", ProcessingError, r"step 'op' at in\[\d\] offset 0: .*at 1\.5 is a float"),
        ("huge", ProcessingError, r"step 'op' at in\[\d\] offset 0: .*beyond"),
    ],
)
def test_a_timer_that_cannot_be_set_is_told_as_such(value: str, error: type[Exception], why: str) -> None:
    driver, source, _ = timers()
    with pytest.raises(error, match=why):
        driver.send(source, value, key="k")


def test_a_timer_is_set_for_whole_milliseconds() -> None:
    driver, source, out = timers()
    driver.send(source, "fine", key="a", timestamp_ms=1000)
    driver.send(source, "past", key="b", timestamp_ms=1000)
    driver.advance_event_time(20_000)
    assert sorted(row.value for row in driver.rows(out)) == ["t 0", "t 10000"]
