"""Records in the order of event time, and duplicates: what is late, what is refused, what is counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000


def keyed() -> tuple[sf.App, sf.Topic[str, int], sf.Stream[str, int]]:
    app = sf.App("x")
    source = app.topic("in", key=str, value=int)
    return app, source, app.stream(source).key_by(lambda value: "even" if value % 2 == 0 else "odd", name="k")


def values(driver: TestDriver, topic: Any) -> list[int]:
    return [row.value for row in driver.rows(topic)]


def test_late_records_go_where_they_are_sent_and_results_keep_their_times() -> None:
    app, source, stream = keyed()
    out, late = app.topic("out", key=str, value=int), sf.DeadLetter("late")
    stream.in_order(name="sorted", grace=timedelta(seconds=1), late=late).to(out)
    driver = TestDriver(app, partitions=1)
    rows = [("p", value, T0 + ms) for value, ms in ((2, 3_000), (4, 2_000), (6, 1_999), (8, 2_500))]
    driver.send_many(source, rows)
    driver.end_input()
    assert [(row.value, row.timestamp_ms - T0) for row in driver.rows(out)] == [
        (4, 2_000),
        (8, 2_500),
        (2, 3_000),
    ]
    assert len(driver.output(app.topic("late"))) == 1


def test_what_stands_behind_is_not_late_for_having_waited() -> None:
    app, source, stream = keyed()
    out = app.topic("out", key=sf.WindowedKey(sf.String, 1_000), value=int)
    ordered = stream.in_order(name="sorted", grace=timedelta(seconds=5))
    ordered.window(sf.Tumbling(timedelta(seconds=1)), emit="on_close").count(name="n").to(out)
    driver = TestDriver(app, partitions=2)
    for number, ms in enumerate((0, 4_500, 100, 9_000, 4_600)):
        driver.send_many(source, [(str(number % 2), 2 * number, T0 + ms)])
    driver.end_input()
    assert {(row.key.start_ms - T0): row.value for row in driver.rows(out)} == {0: 2, 4_000: 2, 9_000: 1}


def test_waiting_records_survive_a_lost_disk_and_a_repartition() -> None:
    app, source, stream = keyed()
    out = app.topic("out", key=str, value=int)
    stream.in_order(name="sorted").to(out)
    driver = TestDriver(app, partitions=2)
    driver.send_many(source, [("p", 6, T0 + 60), ("p", 2, T0 + 20), ("p", 4, T0 + 40)], partitions=[0, 1, 0])
    driver.crash(disk_lost=True)
    driver.restore()
    driver.repartition(3)
    driver.end_input()
    assert values(driver, out) == [2, 6], "40 was behind 60 in its partition, and there is no grace"


def test_a_tie_break_that_fails_follows_the_policy() -> None:
    app, source, stream = keyed()
    out = app.topic("out", key=str, value=int)
    stream.in_order(name="sorted", tie_break=lambda value: 1 // (value - 4)).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(source, 2, 4, 6, key="p", timestamp_ms=T0)
    with pytest.raises(ProcessingError, match="ZeroDivisionError"):
        driver.end_input()


def test_duplicates_are_counted_and_whole_values_compared() -> None:
    app, source, stream = keyed()
    out = app.topic("out", key=str, value=int)
    stream.dedup(name="once", within=timedelta(seconds=1)).to(out)
    driver = TestDriver(app, partitions=1)
    rows = [
        ("p", value, T0 + ms)
        for value, ms in ((2, 0), (2, 999), (4, 999), (2, 1_000), (2, 1_500), (3, 1_500))
    ]
    driver.send_many(source, rows)
    assert values(driver, out) == [2, 4, 2, 3]
    counted = sum(task.context.counters["duplicate_records_total"] for task in driver._worker.tasks.values())
    assert counted == 2


def test_an_identity_of_none_follows_the_policy() -> None:
    app, source, stream = keyed()
    out = app.topic("out", key=str, value=int)
    stream.dedup(
        name="once", by=lambda value: value or None, within=timedelta(seconds=1), on_error=sf.Skip()
    ).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(source, 0, 2, 2, key="p", timestamp_ms=T0)
    assert values(driver, out) == [2]


def test_what_cannot_be_is_refused() -> None:
    _, _, stream = keyed()
    with pytest.raises(GraphError, match="negative"):
        stream.in_order(name="a", grace=timedelta(seconds=-1))
    with pytest.raises(GraphError, match="remembers nothing"):
        stream.dedup(name="b", within=timedelta(0))
    with pytest.raises(GraphError, match="order 'time'"):
        stream.process(sf.Operator, name="c", order="time")  # type: ignore[call-overload]
    app = sf.App("y")
    with pytest.raises(GraphError):
        app.stream(app.topic("in", key=str, value=int)).dedup(name="d", within=timedelta(seconds=1))
