"""Stages with several inputs: each is a port with watermarks and idleness of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.changelog.event_time import Announced, header_value
from stateflow.changelog.format import WATERMARK_HEADER
from stateflow.log.reading import read_topic
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
MINUTE = 60_000


def merged_before_key_by() -> tuple[sf.App, Any, Any, Any]:
    """Two topics in one stage, keyed and counted behind it."""
    app = sf.App("m", guarantee="exactly-once", partitions=2)
    a, b = app.topic("a", value=dict), app.topic("b", value=dict)
    out = app.topic("out", key=str, value=int)
    windows = (
        app.stream(a)
        .merge(app.stream(b))
        .key_by("k", name="by-k", key=str)
        .window(sf.Tumbling(timedelta(minutes=1)), emit="on_close")
    )
    windows.count(name="n").to(out)
    return app, a, b, out


def merged_behind_key_by() -> tuple[sf.App, Any, Any, Any]:
    """Two topics, each behind a re-key step of its own, in one stage with state."""
    app = sf.App("m", guarantee="exactly-once", partitions=2)
    a, b = app.topic("a", value=dict), app.topic("b", value=dict)
    out = app.topic("out", key=str, value=int)
    first = app.stream(a).key_by("k", name="a-by-k", key=str)
    second = app.stream(b).key_by("k", name="b-by-k", key=str)
    first.merge(second).window(sf.Tumbling(timedelta(minutes=1)), emit="on_close").count(name="n").to(out)
    return app, a, b, out


GRAPHS = pytest.mark.parametrize("graph", [merged_before_key_by, merged_behind_key_by])


@GRAPHS
def test_a_silent_topic_does_not_stop_event_time(graph: Any) -> None:
    app, a, b, out = graph()
    driver = TestDriver(app, partitions=2)
    for minute in range(200):
        driver.send(a, {"k": "x"}, timestamp_ms=T0 + minute * MINUTE)
    driver.advance(seconds=60)
    assert len(driver.output(out)) == 199, "b has never spoken and is idle"
    driver.send(b, {"k": "y"}, timestamp_ms=T0 + 200 * MINUTE)
    driver.advance(seconds=60)
    assert [record.key for record in driver.output(out)].count("x") == 200


@GRAPHS
def test_a_topic_that_is_behind_holds_event_time_back(graph: Any) -> None:
    app, a, b, out = graph()
    driver = TestDriver(app, partitions=2)
    driver.send(b, {"k": "y"}, timestamp_ms=T0)
    for minute in range(10):
        driver.send(a, {"k": "x"}, timestamp_ms=T0 + minute * MINUTE)
    assert driver.output(out) == [], "b stands at the first minute and is not idle yet"
    driver.send(b, {"k": "y"}, timestamp_ms=T0 + 30_000)
    driver.advance(seconds=60)
    assert {(r.key, r.timestamp_ms): r.value for r in driver.output(out)}["y", T0] == 2


@GRAPHS
def test_both_inputs_survive_a_crash_and_a_repartition(graph: Any) -> None:
    app, a, b, out = graph()
    driver = TestDriver(app, partitions=2)
    for step in range(40):
        topic = (a, b)[step % 2]
        driver.send(topic, {"k": f"k{step % 5}"}, timestamp_ms=T0 + step * 10_000)
        if step in (13, 27):
            driver.crash(disk_lost=step == 27)
            driver.restore()
        if step == 20:
            driver.repartition(3)
    driver.advance_event_time(T0 + 3_600_000)
    counts = {(record.key, record.timestamp_ms): record.value for record in driver.output(out)}
    assert len(counts) == len(driver.output(out)), "every window closes once"
    expected: dict[tuple[str, int], int] = {}
    for step in range(40):
        window = (f"k{step % 5}", (T0 + step * 10_000) // MINUTE * MINUTE)
        expected[window] = expected.get(window, 0) + 1
    assert counts == expected


def test_a_new_owner_says_that_its_input_counts_again_before_its_first_record() -> None:
    """Its predecessor had announced that it was idle: records must not come while the stages behind leave it out."""
    app, a, _b, _out = merged_before_key_by()
    driver = TestDriver(app, partitions=1)
    driver.send(a, {"k": "x"}, timestamp_ms=T0)
    driver.advance(seconds=60)
    driver.crash()
    writer = driver.cluster.writer()
    writer.send("a", None, a.value.encode({"k": "x"}), partition=0, timestamp_ms=T0 + MINUTE)
    writer.commit()
    writer.close()
    driver.restore()
    rows = [row for batch in read_topic(driver.cluster, "m-by-k-repartition") for row in batch.records()]
    last = max(index for index, row in enumerate(rows) if row.key is not None)
    told = [header_value(row.headers, WATERMARK_HEADER) for row in rows[:last] if row.key is None]
    announced = [Announced.decode(mark) for mark in told if mark is not None]
    assert [each.idle for each in announced][-2:] == [True, False]


def test_a_stage_with_two_re_key_steps_names_both() -> None:
    app, *_ = merged_behind_key_by()
    stage = app.topology().stages[-1]
    assert [(port.name, port.upstream) for port in stage.inputs] == [("a-by-k", "a"), ("b-by-k", "b")]
