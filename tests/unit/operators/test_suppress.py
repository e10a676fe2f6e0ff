"""The newest of each key at intervals: what replaces what, deletions, headers, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError
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
