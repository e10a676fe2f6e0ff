"""The newest of each key at intervals: what replaces what, deletions, headers, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import BufferFull, GraphError
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
TEN = timedelta(seconds=10)


def suppressed(every: sf.Every) -> tuple[TestDriver, sf.Topic[str, str], sf.Topic[str, str]]:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=str)
    app.table(source, name="table").to_stream().suppress(every, name="newest").to(out)
    return TestDriver(app, partitions=1, now_ms=T0 + 1), source, out


def rows(driver: TestDriver, out: sf.Topic[str, str]) -> list[tuple[str, str | None, int]]:
    return [(row.key, row.value, (row.timestamp_ms - T0) // 1_000) for row in driver.rows(out)]


def test_only_the_newest_is_told_and_a_deletion_too() -> None:
    driver, source, out = suppressed(sf.Every(TEN))
    sent: list[tuple[str, Any, int]] = [
        ("a", "1", T0),
        ("a", "2", T0 + 9_000),
        ("b", "3", T0),
        ("b", None, T0 + 1),
    ]
    driver.send_many(source, sent)
    driver.send_many(source, [("a", "4", T0 + 10_000), ("c", "5", T0 + 35_000)])
    driver.end_input()
    assert rows(driver, out) == [("a", "2", 10), ("b", None, 10), ("a", "4", 20), ("c", "5", 40)]
    assert driver.state("newest", "held", key="a") is None


def test_by_the_clock_it_is_told_without_input() -> None:
    driver, source, out = suppressed(sf.Every(TEN, time="processing"))
    driver.send_many(source, [("a", "1", T0), ("a", "2", T0)])
    driver.crash(disk_lost=True)
    driver.restore()
    assert rows(driver, out) == []
    driver.advance(seconds=10)
    assert [row[:2] for row in rows(driver, out)] == [("a", "2")]
    driver.advance(seconds=100)
    assert len(rows(driver, out)) == 1, "nothing new has come"


def test_the_headers_are_those_of_the_newest() -> None:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=str)
    app.stream(source).key_by(str, name="by").suppress(sf.Every(TEN), name="newest").to(out)
    driver = TestDriver(app, partitions=1)
    for trace in (b"one", b"two"):
        driver.send(source, "v", key="k", timestamp_ms=T0, headers={"trace": trace})
    driver.end_input()
    assert [record.headers for record in driver.output(out)] == [(("trace", b"two"),)]


def test_windows_are_refused() -> None:
    app = sf.App("x")
    counts = (
        app.stream(app.topic("in", key=str, value=str))
        .key_by(str, name="by")
        .window(sf.Tumbling(TEN))
        .count(name="n")
    )
    with pytest.raises(GraphError, match="keeps state by a window's key"):
        counts.suppress(sf.Every(TEN), name="newest")


def until(limit: sf.TimeLimit) -> tuple[TestDriver, sf.Topic[str, str], sf.Topic[str, str]]:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=str)
    app.table(source, name="table").to_stream().suppress(limit, name="newest").to(out)
    return TestDriver(app, partitions=1), source, out


def test_the_limit_counts_from_the_first_that_is_held() -> None:
    driver, source, out = until(sf.TimeLimit(TEN))
    sent: list[tuple[str, Any, int]] = [("a", "1", T0), ("a", "2", T0 + 6_000)]
    driver.send_many(source, [*sent, ("b", "0", T0 + 8_000), ("b", None, T0 + 9_000)])
    assert rows(driver, out) == []
    driver.send_many(source, [("c", "3", T0 + 10_000)])
    assert rows(driver, out) == [("a", "2", 6)], "with the time of its newest record"
    driver.end_input()
    assert rows(driver, out)[1:] == [("b", None, 9), ("c", "3", 10)]


def test_batches_do_not_show() -> None:
    sent = [("ab"[number % 2], str(number), T0 + 3_700 * number) for number in range(30)]
    found = []
    for size in (1, 4, 30):
        driver, source, out = until(sf.TimeLimit(TEN))
        for first in range(0, len(sent), size):
            driver.send_many(source, sent[first : first + size])
        driver.end_input()
        found.append(sorted(rows(driver, out), key=lambda row: row[2]))
    assert found[0] == found[1] == found[2]
    assert 10 < len(found[0]) < 30


def test_the_headers_and_the_time_are_those_of_the_newest_also_after_a_crash() -> None:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=str)
    app.stream(source).key_by(str, name="by").suppress(sf.TimeLimit(TEN), name="newest").to(out)
    driver = TestDriver(app, partitions=1)
    for second, trace in enumerate((b"one", b"two")):
        driver.send(source, "v", key="k", timestamp_ms=T0 + second, headers={"trace": trace})
    driver.crash(disk_lost=True)
    driver.restore()
    driver.repartition(3)
    driver.end_input()
    (record,) = driver.output(out)
    assert (record.headers, record.timestamp_ms) == ((("trace", b"two"),), T0 + 1)


def test_windows_behind_it_find_nothing_late() -> None:
    app = sf.App("x")
    source, out = (
        app.topic("in", key=str, value=str),
        app.topic("out", key=sf.WindowedKey(sf.String, 1_000), value=int),
    )
    held = app.stream(source, co_partitioned=True).suppress(sf.TimeLimit(TEN), name="newest")
    windows = held.window(sf.Tumbling(timedelta(seconds=1)), emit="on_close")
    late = app.topic("late", key=str, value=str)
    windows.count(name="n").to(out)
    windows.late().to(late)
    driver = TestDriver(app, partitions=1)
    for second in range(20):
        driver.send(source, "v", key=f"k{second % 3}", timestamp_ms=T0 + second * 1_000)
    driver.end_input()
    assert driver.rows(late) == []
    assert sum(row.value for row in driver.rows(out)) == 6


def test_bounded_by_records_the_earliest_goes_or_the_task_stops() -> None:
    driver, source, out = until(sf.TimeLimit(TEN, max_records=2))
    driver.send_many(source, [("b", "1", T0 + 2), ("a", "2", T0 + 1), ("b", "3", T0 + 3), ("c", "4", T0 + 9)])
    assert [row[:2] for row in rows(driver, out)] == [("a", "2")]
    driver, source, out = until(sf.TimeLimit(TEN, max_records=2, when_full="fail"))
    driver.send_many(source, [("b", "1", T0), ("a", "2", T0), ("b", "3", T0 + 3)])
    driver.send_many(source, [("c", "4", T0 + 10_000)])
    assert [row[:2] for row in rows(driver, out)] == [("a", "2"), ("b", "3")], "what is due makes room"
    with pytest.raises(BufferFull):
        driver.send_many(source, [("d", "5", T0 + 10_001), ("e", "6", T0 + 10_001)])


def test_behind_several_partitions_it_waits_for_the_slowest() -> None:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=str)
    app.stream(source).key_by(str, name="by").suppress(sf.TimeLimit(TEN), name="newest").to(out)
    driver = TestDriver(app, partitions=2)
    driver.send_many(source, [("x", "v", T0), ("x", "v", T0 + 60_000)], partitions=[0, 0])
    assert rows(driver, out) == []
    driver.send_many(source, [("y", "w", T0 + 11_000)], partitions=[1])
    assert rows(driver, out) == [("v", "v", 60)], "of which the first was due"
    driver.end_input()
    assert sorted(rows(driver, out)) == [("v", "v", 60), ("w", "w", 11)]


def test_only_intervals_and_limits_are_taken() -> None:
    app = sf.App("x")
    stream = app.stream(app.topic("in", key=str, value=str)).key_by(str, name="by")
    with pytest.raises(GraphError, match="hold records back until"):
        stream.suppress(TEN, name="newest")  # type: ignore[arg-type]
