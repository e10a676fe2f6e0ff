"""Windows that tell at intervals, after a time, or within bounds: what is told when, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import BufferFull, EncodeError, GraphError
from stateflow.testing import TestDriver

SECOND, NOON = 1_000, 1_700_049_600_000
MINUTE = timedelta(minutes=1)
TEN, FIVE = timedelta(seconds=10), timedelta(seconds=5)
TUMBLING = sf.Tumbling(MINUTE, grace=TEN)
PER_MINUTE = sf.WindowedKey(sf.String, 60_000)
Told = list[tuple[int, Any]]


def windows(
    window: Any, key: Any, emit: Any, ttl: timedelta | None = None
) -> tuple[TestDriver, sf.Topic[str, int], sf.Topic[Any, Any]]:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=int), app.topic("out", key=key, value=int)
    app.stream(source, co_partitioned=True).window(window, emit=emit).sum(name="sum", ttl=ttl).to(out)
    return TestDriver(app, partitions=1), source, out


def send(driver: TestDriver, source: Any, *rows: tuple[str, int, int]) -> None:
    """Each record on its own, at so many seconds after noon."""
    for key, value, second in rows:
        driver.send(source, value, key=key, timestamp_ms=NOON + second * SECOND)


def starts(driver: TestDriver, out: Any) -> Told:
    return [((row.key.start_ms - NOON) // SECOND, row.value) for row in driver.rows(out)]


def test_a_window_is_told_at_most_once_per_tick_and_when_it_closes() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.Every(TEN))
    send(driver, source, ("a", 1, 1), ("a", 2, 9))
    assert starts(driver, out) == []
    send(driver, source, ("a", 4, 10))
    assert starts(driver, out) == [(0, 3)], "what came before the tick"
    send(driver, source, ("b", 0, 45))
    assert starts(driver, out) == [(0, 3), (0, 7)], "one result, whatever ticks have passed"
    send(driver, source, ("a", 8, 58), ("b", 0, 65), ("a", 16, 59), ("b", 0, 69))
    assert starts(driver, out)[2:] == [(0, 0), (0, 15)], "at the tick of 60 s"
    send(driver, source, ("b", 0, 71))
    assert sorted(starts(driver, out)[4:]) == [(0, 31), (60, 0)], "one closes, at the other's tick"


def test_what_has_not_changed_since_is_not_told_on_close() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.Every(TEN))
    send(driver, source, ("a", 1, 1), ("a", 0, 200))
    assert starts(driver, out) == [(0, 1)]
    driver.end_input()
    assert starts(driver, out) == [(0, 1), (180, 0)]
    assert driver.state("sum", key="a") is None


def test_a_result_keeps_the_time_of_its_window() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.Every(TEN))
    send(driver, source, ("a", 1, 11), ("a", 1, 95))
    assert [row.timestamp_ms for row in driver.rows(out)] == [NOON]


def test_after_a_time_limit_or_on_close() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.TimeLimit(timedelta(seconds=20)))
    send(driver, source, ("a", 1, 1), ("a", 2, 20), ("b", 0, 20))
    assert starts(driver, out) == []
    send(driver, source, ("b", 5, 21))
    assert starts(driver, out) == [(0, 3)]
    send(driver, source, ("a", 4, 55), ("b", 0, 70))
    assert starts(driver, out) == [(0, 3), (0, 5), (0, 7)]


def test_a_session_withdraws_what_it_told_and_nothing_else() -> None:
    driver, source, out = windows(sf.Session(TEN), sf.SessionKey(sf.String), sf.Every(FIVE))
    send(driver, source, ("a", 1, 1), ("a", 2, 3), ("a", 4, 6))
    spans = [(row.key.start_ms - NOON, row.key.end_ms - NOON, row.value) for row in driver.rows(out)]
    assert spans == [(1_000, 3_000, 3)], "never that of 1 to 1"
    send(driver, source, ("a", 8, 8), ("b", 0, 10))
    spans = [(row.key.start_ms - NOON, row.key.end_ms - NOON, row.value) for row in driver.rows(out)]
    assert spans[1:] == [(1_000, 3_000, None), (1_000, 8_000, 15)], "never that of 1 to 6"
    driver.end_input()
    assert len(driver.rows(out)) == 4, "no window is told twice"
    assert list(driver.rows(out))[3].key.key == "b"
    assert held(driver, "a") is None


def test_a_session_that_grows_in_the_batch_that_would_close_it_is_not_told_before() -> None:
    for emit in (sf.OnClose(max_records=9), sf.Every(timedelta(hours=1))):
        driver, source, out = windows(sf.Session(TEN), sf.SessionKey(sf.String), emit)
        send(driver, source, ("a", 1, 1))
        rows = [("a", 1, NOON + second * SECOND) for second in (5, 12, 20, 29)]
        driver.send_many(source, rows)
        driver.end_input()
        assert [(row.key.end_ms - NOON, row.value) for row in driver.rows(out)] == [(29_000, 5)]


def test_what_closes_in_a_batch_makes_room_in_it() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.OnClose(max_records=2))
    rows = [("a", 1, 1), ("b", 2, 2), ("a", 4, 3), ("c", 8, 80), ("d", 16, 81)]
    driver.send_many(source, [(key, value, NOON + second * SECOND) for key, value, second in rows])
    driver.end_input()
    assert starts(driver, out) == [(0, 5), (0, 2), (60, 8), (60, 16)]


def test_records_without_a_value_are_not_aggregated() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.Every(TEN))
    nothing: Any = None
    send(driver, source, ("a", 1, 1), ("a", nothing, 2), ("a", 2, 3), ("b", 4, 99))
    assert starts(driver, out) == [(0, 3)]


def held(driver: TestDriver, key: str) -> Any:
    return driver.state("sum-held", key=key)


def test_windows_of_records_are_told_at_ticks() -> None:
    driver, source, out = windows(sf.CountWindow(3), sf.CountedKey(sf.String, 3), sf.Every(TEN))
    send(driver, source, ("a", 1, 1), ("a", 2, 2), ("a", 4, 12), ("a", 8, 13), ("a", 0, 20))
    found = [(row.key.first, row.value, (row.timestamp_ms - NOON) // SECOND) for row in driver.rows(out)]
    assert found[:1] == [(0, 3, 2)]
    assert sorted(found[1:]) == [(0, 7, 12), (3, 8, 13)]


def test_a_ttl_keeps_the_state_of_a_window_that_was_told() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.Every(TEN), ttl=timedelta(hours=1))
    send(driver, source, ("a", 5, 1), ("a", 0, 100))
    assert starts(driver, out) == [(0, 5)]
    assert driver.state("sum", key="a")[NOON] == 5


def test_on_close_within_bounds() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.OnClose(max_records=3))
    send(driver, source, ("a", 1, 1), ("b", 2, 2), ("a", 4, 69), ("a", 8, 3))
    assert starts(driver, out) == []
    send(driver, source, ("b", 16, 70), ("b", 32, 71))
    assert starts(driver, out) == [(0, 9), (0, 2)]
    driver.end_input()
    assert starts(driver, out)[2:] == [(60, 4), (60, 48)]


def test_more_open_windows_than_allowed_stop_the_task() -> None:
    driver, source, out = windows(TUMBLING, PER_MINUTE, sf.OnClose(max_records=2))
    send(driver, source, ("a", 1, 1), ("b", 2, 2), ("b", 4, 71))
    assert starts(driver, out) == [(0, 1), (0, 2)]
    send(driver, source, ("a", 1, 72))
    with pytest.raises(
        BufferFull, match="'sum-held' is to hold more in one task than it may: 3 rows"
    ) as failure:
        send(driver, source, ("c", 1, 73))
    assert failure.value.fields["records"] == 3


def test_bounds_in_bytes() -> None:
    driver, source, _ = windows(TUMBLING, PER_MINUTE, sf.OnClose(max_bytes=80))
    send(driver, source, ("a", 1, 1))
    with pytest.raises(BufferFull):
        send(driver, source, ("b", 1, 1))


def test_what_a_time_limit_has_no_room_for_is_told_early_the_earliest_first() -> None:
    limit = sf.TimeLimit(timedelta(seconds=30), max_records=2)
    driver, source, out = windows(TUMBLING, PER_MINUTE, limit)
    send(driver, source, ("a", 1, 1), ("b", 2, 2), ("b", 4, 3))
    assert starts(driver, out) == []
    send(driver, source, ("c", 8, 4))
    assert [(row.key.key, row.value) for row in driver.rows(out)] == [("a", 1)]
    driver.crash(disk_lost=True)
    driver.restore()
    send(driver, source, ("d", 16, 5))
    assert [(row.key.key, row.value) for row in driver.rows(out)] == [("a", 1), ("b", 6)], "counted anew"


@pytest.mark.parametrize(
    ("window", "emit", "options", "reason"),
    [
        (TUMBLING, sf.Every(TEN, time="processing"), {}, "intervals of processing time"),
        (sf.CountWindow(3), sf.OnClose(max_records=1), {}, "no end in time"),
        (TUMBLING, sf.Every(TEN), {"changelog": sf.Eventual(0.5)}, "changelog="),
        (TUMBLING, TEN, {}, "was given emit="),
    ],
)
def test_what_is_refused(window: Any, emit: Any, options: Any, reason: str) -> None:
    app = sf.App("x")
    stream = app.stream(app.topic("in", key=str, value=int), co_partitioned=True)
    with pytest.raises(GraphError, match=reason):
        stream.window(window, emit=emit, **options).count(name="n")


@pytest.mark.parametrize(
    "declare",
    [
        lambda: sf.TimeLimit(timedelta(0)),
        lambda: sf.TimeLimit(TEN, max_records=0),
        lambda: sf.TimeLimit(TEN, when_full="stop"),  # type: ignore[arg-type]
        lambda: sf.OnClose(max_bytes=-1),
        lambda: sf.TimeLimit(timedelta(microseconds=1)),
    ],
)
def test_what_cannot_be_declared(declare: Any) -> None:
    with pytest.raises(GraphError):
        declare()


@dataclass
class Span:
    """What a fold gives, of a type that is known by an annotation alone."""

    least: int
    most: int


def span_of(values: list[int]) -> Span:
    return Span(min(values), max(values))


def test_results_of_a_type_of_their_own_come_back_as_such() -> None:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=int), app.topic("out", key=PER_MINUTE, value=int)
    spans: Any = sf.fold(list, lambda all_, value: [*all_, value], result=span_of, type=list[int])
    windows = app.stream(source, co_partitioned=True).window(TUMBLING, emit=sf.Every(TEN))
    windows.aggregate(spans, name="spans").map(lambda span: span.most - span.least, value=int).to(out)
    driver = TestDriver(app, partitions=1)
    send(driver, source, ("a", 1, 1), ("a", 7, 2))
    driver.crash(disk_lost=True)
    driver.restore()
    send(driver, source, ("b", 1, 30))
    assert starts(driver, out) == [(0, 6)]


@pytest.mark.parametrize("is_skipped", [False, True])
def test_a_result_that_cannot_be_written_follows_the_policy(is_skipped: bool) -> None:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=int), app.topic("out", key=PER_MINUTE, value=int)
    odd: Any = sf.fold(
        0, lambda total, value: total + value, result=lambda total: total if total < 5 else object(), type=int
    )
    windows = app.stream(source, co_partitioned=True).window(TUMBLING, emit=sf.Every(TEN))
    windows.aggregate(odd, name="odd", on_error=sf.Skip() if is_skipped else sf.Fail()).map(
        int, value=int
    ).to(out)
    driver = TestDriver(app, partitions=1)
    send(driver, source, ("a", 1, 1))
    if not is_skipped:
        with pytest.raises(EncodeError, match="'odd'"):
            send(driver, source, ("a", 7, 2))
        return
    send(driver, source, ("a", 7, 2), ("b", 1, 30))
    assert starts(driver, out) == [], "what was held before it is not the newest any more"
