"""The kinds of windows: what can be declared, and what each of them makes of a few records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import reduce
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.testing import TestDriver

T0 = 1_700_000_040_000
Row = tuple[str, int, int]
"""Key, value, and time in ms after T0."""


def span(ms: float) -> timedelta:
    return timedelta(milliseconds=ms)


def told(
    window: Any, rows: list[Row], *, emit: Any = "on_close", key: Any = None, aggregate: Any = None
) -> list[tuple[Any, ...]]:
    """Key, start and end (ms after T0), and value of each result, in order; each row is a batch of its own."""
    app = sf.App("kinds")
    source = app.topic("in", key=str, value=int)
    out = app.topic("out", key=key or sf.WindowedKey(sf.String, 10), value=sf.Json)
    late = app.topic("late", key=str, value=int)
    windowed = app.stream(source, co_partitioned=True).window(window, emit=emit)
    windowed.aggregate(aggregate or sf.sum(), name="n", on_error=sf.Skip()).to(out)
    windowed.late().to(late)
    driver = TestDriver(app, partitions=1)
    for name, value, when_ms in rows:
        driver.send(source, value, key=name, timestamp_ms=T0 + when_ms)
    driver.advance_event_time(T0 + 1_000_000)
    found = [
        (record.key.key, record.key.start_ms - T0, record.key.end_ms - T0, record.value)
        for record in driver.output(out)
    ]
    return [*found, *(("late", record.value) for record in driver.output(late))]


def test_a_record_is_in_every_hopping_window_around_it() -> None:
    rows = [("a", 1, 12), ("a", 2, 14)]
    windows = [("a", 3, 13, 1), ("a", 6, 16, 3), ("a", 9, 19, 3), ("a", 12, 22, 3)]
    assert told(sf.Hopping(span(10), span(3)), rows) == windows


def test_a_record_that_is_late_for_some_hopping_windows_counts_in_the_others() -> None:
    rows = [("a", 1, 4), ("b", 8, 16), ("a", 2, 7), ("a", 4, 3)]
    assert told(sf.Hopping(span(10), span(5), grace=span(2)), rows) == [
        ("a", -5, 5, 1),
        ("a", 0, 10, 1),
        ("a", 5, 15, 2),
        ("b", 10, 20, 8),
        ("b", 15, 25, 8),
        ("late", 4),
    ]


def test_windows_begin_an_offset_later() -> None:
    rows = [("a", 1, 2), ("a", 2, 3), ("a", 4, 12)]
    assert told(sf.Tumbling(span(10), offset=span(3)), rows) == [("a", -7, 3, 1), ("a", 3, 13, 6)]
    assert told(sf.Hopping(span(10), span(5), offset=span(3)), rows) == [
        ("a", -7, 3, 1),
        ("a", -2, 8, 3),
        ("a", 3, 13, 6),
        ("a", 8, 18, 4),
    ]


def test_sessions_are_prolonged_connected_and_closed() -> None:
    key: Any = sf.SessionKey(sf.String)
    rows = [("a", 1, 0), ("a", 2, 10), ("a", 4, 31), ("a", 8, 21), ("a", 16, 20), ("b", 32, 42)]
    window = sf.Session(span(10), grace=span(12))
    assert told(window, rows, key=key) == [("a", 0, 31, 31), ("b", 42, 42, 32)]
    assert told(window, rows, key=key, emit="on_update") == [
        ("a", 0, 0, 1),
        ("a", 0, 0, None),
        ("a", 0, 10, 3),
        ("a", 31, 31, 4),
        ("a", 31, 31, None),
        ("a", 21, 31, 12),
        ("a", 0, 10, None),
        ("a", 21, 31, None),
        ("a", 0, 31, 31),
        ("b", 42, 42, 32),
    ]


def test_a_session_takes_what_comes_exactly_a_gap_later_and_is_as_far_behind_as_the_grace() -> None:
    rows = [
        ("a", 1, 0),
        ("a", 2, 10),
        ("b", 4, 20),
        ("a", 8, 20),
        ("b", 32, 25),
        ("a", 64, 19),
        ("a", 128, 18),
    ]
    sessions = [("a", 0, 20, 75), ("b", 20, 25, 36), ("late", 128)]
    assert told(sf.Session(span(10), grace=span(6)), rows, key=sf.SessionKey(sf.String)) == sessions


def test_a_sliding_window_that_begins_after_one_record_and_ends_with_another_is_one() -> None:
    """The early record comes last: the window just after it, from 1 to 11, is there already, and holds all three."""
    rows = [("a", 1, 2), ("a", 2, 9), ("a", 4, 11), ("a", 8, 0)]
    found = told(sf.Sliding(span(10), grace=span(100)), rows, emit="on_update")
    assert [value for _, start_ms, _, value in found if start_ms == 1] == [7]
    assert ("a", -10, 0, 8) in found


def test_a_sliding_window_is_there_for_each_set_of_records() -> None:
    rows = [("a", 1, 0), ("a", 2, 6), ("a", 4, 11)]
    assert told(sf.Sliding(span(10)), rows) == [
        ("a", -10, 0, 1),
        ("a", -4, 6, 3),
        ("a", 1, 11, 6),
        ("a", 7, 17, 4),
    ]


@pytest.mark.parametrize("values", [(0.1, 0.2, 0.3, 1e16, -1e16), (5, 7, 11, 13, 17)])
def test_what_slides_out_leaves_no_trace(values: tuple[float, ...]) -> None:
    """Floats are never subtracted: each window is what its records alone would be."""
    app = sf.App("slides")
    source = app.topic("in", key=str, value=float)
    out = app.topic("out", key=sf.WindowedKey(sf.String, 10), value=float)
    means = app.stream(source, co_partitioned=True).window(sf.Sliding(span(10)), emit="on_close")
    means.aggregate(sf.sum(), name="n").to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, [("a", float(value), T0 + 6 * at) for at, value in enumerate(values)])
    driver.end_input()
    found = {record.key.start_ms - T0: record.value for record in driver.output(out)}
    at_ms = [6 * at for at in range(len(values))]
    assert found
    for start_ms, result in found.items():
        held = [value for at, value in zip(at_ms, values, strict=True) if start_ms <= at <= start_ms + 10]
        assert result == reduce(float.__add__, map(float, held))


def test_days_of_a_time_zone() -> None:
    app = sf.App("days")
    source = app.topic("in", key=str, value=int)
    out = app.topic("out", key=sf.CalendarKey(sf.String, "day", "Europe/Berlin"), value=int)
    days = app.stream(source, co_partitioned=True).window(
        sf.Calendar("day", "Europe/Berlin"), emit="on_close"
    )
    days.count(name="n").to(out)
    driver = TestDriver(app, partitions=1)
    hour_ms, start_ms = 3_600_000, 1_711_839_600_000  # 31 March 2024, 00:00 in Berlin: a day of 23 hours
    driver.send_many(source, [("a", 1, start_ms + hour * hour_ms) for hour in range(50)])
    driver.end_input()
    assert [(record.key.start_ms, record.key.end_ms, record.value) for record in driver.output(out)] == [
        (start_ms, start_ms + 23 * hour_ms, 23),
        (start_ms + 23 * hour_ms, start_ms + 47 * hour_ms, 24),
        (start_ms + 47 * hour_ms, start_ms + 71 * hour_ms, 3),
    ]


def test_a_record_without_a_window_follows_the_policy() -> None:
    app = sf.App("early")
    source = app.topic("in", key=str, value=int)
    out = app.topic("out", key=sf.WindowedKey(sf.String, 10), value=int)
    windowed = app.stream(source, co_partitioned=True).window(sf.Tumbling(span(10), offset=span(3)))
    windowed.count(name="n", on_error=sf.DeadLetter("bad")).to(out)
    driver = TestDriver(app, partitions=1)
    for when_ms in (2, 3):
        driver.send(source, 1, key="a", timestamp_ms=when_ms)
    assert [record.key.start_ms for record in driver.output(out)] == [3]
    (bad,) = driver.output(type(source)("bad", sf.String, sf.Integer))
    assert b"before 1970" in dict(bad.headers)["sf-error-message"]


def failing(total: int, value: int) -> int:
    if value == 7:
        raise ValueError("seven")
    return total + value


@pytest.mark.parametrize(
    ("window", "key"),
    [
        (sf.Hopping(span(10), span(5)), None),
        (sf.Session(span(10)), sf.SessionKey(sf.String)),
        (sf.Sliding(span(10)), None),
    ],
)
def test_a_record_that_an_aggregate_fails_on_is_in_no_window(window: Any, key: Any) -> None:
    aggregate = sf.fold(0, failing, merge=int.__add__, type=int)
    rows = [("a", 1, 1), ("a", 7, 2), ("b", 7, 2), ("a", 2, 3)]
    with_it = told(window, rows, key=key, aggregate=aggregate)
    assert with_it == told(window, [row for row in rows if row[1] != 7], key=key, aggregate=aggregate)
    assert with_it


def test_one_failed_record_is_one_dead_letter_however_many_windows_it_is_in() -> None:
    app = sf.App("failing")
    source = app.topic("in", key=str, value=int)
    windowed = app.stream(source, co_partitioned=True).window(sf.Hopping(span(10), span(1)))
    windowed.aggregate(sf.fold(0, failing, type=int), name="n", on_error=sf.DeadLetter("bad")).to(
        app.topic("out", key=sf.WindowedKey(sf.String, 10), value=int)
    )
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, [("a", value, T0) for value in (1, 7, 2, 7)])
    assert len(driver.output(type(source)("bad", sf.String, sf.Integer))) == 2
    assert set(driver.state("n", key="a").values()) == {3}


@pytest.mark.parametrize(
    "declared",
    [
        lambda: sf.Tumbling(span(10), offset=span(10)),
        lambda: sf.Tumbling(span(10), offset=span(-1)),
        lambda: sf.Hopping(span(10), span(11)),
        lambda: sf.Hopping(span(10), span(0)),
        lambda: sf.Hopping(timedelta(days=1), span(1)),
        lambda: sf.Hopping(span(10), span(5), offset=span(5)),
        lambda: sf.Hopping(span(10), span(5), grace=span(-1)),
        lambda: sf.Session(span(0)),
        lambda: sf.Session(span(0.5)),
        lambda: sf.Sliding(span(10), grace=span(-1)),
        lambda: sf.Sliding(5),  # type: ignore[arg-type]
        lambda: sf.Calendar("day", "Europe/Bonn"),
        lambda: sf.Calendar("year", "UTC"),  # type: ignore[arg-type]
        lambda: sf.Calendar("day", "UTC", grace=span(-1)),
        lambda: sf.CountWindow(0),
        lambda: sf.CountWindow(5, 0),
        lambda: sf.CountWindow(100_000, 9),
        lambda: sf.CountWindow(2.5),  # type: ignore[arg-type]
    ],
)
def test_a_window_that_cannot_be_is_refused(declared: Callable[[], object]) -> None:
    with pytest.raises(GraphError):
        declared()


@pytest.mark.parametrize("window", [sf.Session(span(10)), sf.Sliding(span(10))])
def test_sessions_and_sliding_windows_need_a_merge_and_log_every_change(window: Any) -> None:
    app = sf.App("refused")
    stream = app.stream(app.topic("in", key=str, value=int), co_partitioned=True)
    with pytest.raises(GraphError, match="merge"):
        stream.window(window).aggregate(sf.fold(0, failing, type=int), name="n")
    with pytest.raises(GraphError, match="eventual"):
        stream.window(window, changelog=sf.Eventual()).count(name="m")


def test_keys_of_other_windows_are_refused() -> None:
    app = sf.App("keys")
    stream = app.stream(app.topic("in", key=str, value=int), co_partitioned=True)
    sessions = stream.window(sf.Session(span(10))).count(name="n")
    days = stream.window(sf.Calendar("day", "UTC")).count(name="d")
    pairs: list[tuple[Any, Any]] = [
        (sessions, sf.WindowedKey(sf.String, 10)),
        (days, sf.WindowedKey(sf.String, 86_400_000)),
        (days, sf.CalendarKey(sf.String, "day", "Europe/Berlin")),
    ]
    for number, (results, key) in enumerate(pairs):
        with pytest.raises(GraphError, match="not all of the window"):
            results.to(app.topic(f"out-{number}", key=key, value=int))


def test_a_function_of_the_value_is_spared_what_is_withdrawn() -> None:
    app = sf.App("spared")
    key: Any = sf.SessionKey(sf.String)
    source, out = app.topic("in", key=str, value=int), app.topic("out", key=key, value=int)
    counts = app.stream(source, co_partitioned=True).window(sf.Session(span(10))).count(name="n")
    counts.map(lambda count: count * 10, value=int).to(out)
    driver = TestDriver(app, partitions=1)
    for when_ms in (0, 5):
        driver.send(source, 1, key="a", timestamp_ms=T0 + when_ms)
    assert [record.value for record in driver.output(out)] == [10, 20]


def test_many_sessions_of_a_key_are_found_from_the_end() -> None:
    app = sf.App("many")
    source = app.topic("in", key=str, value=int)
    key: Any = sf.SessionKey(sf.String)
    out = app.topic("out", key=key, value=int)
    window = sf.Session(span(10), grace=timedelta(days=1))
    app.stream(source, co_partitioned=True).window(window).count(name="n").to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, [("a", 1, T0 + 20 * number) for number in range(500)])
    driver.send_many(source, [("a", 1, T0 + 20 * 400 + 10), ("a", 1, T0 + 5), ("a", 1, T0 + 20 * 499 + 9)])
    spans = {
        (record.key.start_ms - T0, record.key.end_ms - T0): record.value for record in driver.output(out)
    }
    assert spans[8000, 8020] == 3
    assert spans[0, 5] == 2
    assert spans[9980, 9989] == 2
    assert len(driver.state("n", key="a")) == 499


# --- windows of records ----------------------------------------------------------------------------------


def counted(
    window: sf.CountWindow, values: list[int], *, emit: Any, batch: int, crashes: bool = False
) -> list[tuple[int, int, int]]:
    """First, after and sum of each result of the key "a", whose records come with others between them."""
    app = sf.App("counted")
    source = app.topic("in", key=str, value=int)
    key: Any = sf.CountedKey(sf.String, window.size)
    out = app.topic("out", key=key, value=int)
    stream = app.stream(source).key_by(lambda value: "a" if value else "b", name="by-k", key=str, value=int)
    aggregate = sf.fold(0, failing, merge=int.__add__, type=int)
    stream.window(window, emit=emit).aggregate(aggregate, name="n", on_error=sf.Skip()).to(out)
    driver = TestDriver(app, partitions=1)
    rows = [("k", each, T0) for value in values for each in (value, 0)]
    for first in range(0, len(rows), batch):
        driver.send_many(source, rows[first : first + batch])
        if crashes:
            driver.crash(disk_lost=first % 2 == 0)
            driver.restore()
            driver.repartition(2 + first // batch % 2)
    found = [record for topic in [out] for record in driver.output(topic) if record.key.key == "a"]
    return sorted((record.key.first, record.key.after, record.value) for record in found)


@pytest.mark.parametrize(("size", "advance"), [(3, None), (4, 2), (5, 3), (2, 3), (1, 1), (6, 1)])
@pytest.mark.parametrize("batch", [1, 5, 100])
def test_windows_of_records_are_slices_of_a_keys_records(size: int, advance: int | None, batch: int) -> None:
    values = [1 << number for number in range(14)]
    starts = range(0, len(values), advance or size)
    whole = [(at, at + size, sum(values[at : at + size])) for at in starts if at + size <= len(values)]
    window = sf.CountWindow(size, advance)
    assert counted(window, values, emit="on_close", batch=batch) == whole
    newest = {
        (first, after): result
        for first, after, result in counted(window, values, emit="on_update", batch=batch)
    }
    assert newest == {(at, at + size): sum(values[at : at + size]) for at in starts}


def test_windows_of_records_survive_crashes_and_repartitions_and_count_no_failed_record() -> None:
    values = [1, 7, 2, 4, 7, 8, 16, 32]
    expected = [(0, 3, 7), (3, 6, 56)]
    for crashes in (False, True):
        assert counted(sf.CountWindow(3), values, emit="on_close", batch=3, crashes=crashes) == expected


def test_windows_of_records_have_no_late_ones_and_no_time_to_live() -> None:
    app = sf.App("refused")
    stream = app.stream(app.topic("in", key=str, value=int), co_partitioned=True)
    window: Any = sf.CountWindow(3)
    with pytest.raises(GraphError, match="late"):
        stream.window(window, late=sf.DeadLetter("late"))
    with pytest.raises(GraphError, match="changelog"):
        stream.window(window, changelog=sf.Eventual())
    with pytest.raises(GraphError, match="ttl"):
        stream.window(window).count(name="n", ttl=timedelta(days=1))
