"""Stages with several inputs: each is a port with watermarks and idleness of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.changelog.event_time import Announced, header_value
from stateflow.changelog.format import WATERMARK_HEADER
from stateflow.testing import TestDriver
from tests.sim.crashing import CrashPlan
from tests.sim.test_worker_crashes import WORDS, World

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
    world = World("exactly-once")
    world.set(idle_seconds=0.01)
    world.feed(WORDS[:4])
    world.run_to_the_end(world.worker(CrashPlan()))
    world.cluster.end_sessions(world.wiring.topology.app)
    world.set(commit_interval_seconds=1_000)  # records are processed long before the first commit
    world.feed(WORDS[4:8])
    successor = world.worker(CrashPlan())
    while sum(task.records_total for task in successor.tasks.values() if not task.wiring.is_rekeyed) < 4:
        successor.step()
    successor.stop()
    successor.run()
    rows = world.read(world.wiring.task(world.wiring.topology.stage("number"), 0).inputs[0].topic)
    for partition in range(3):
        awake = dict.fromkeys(range(2), False)
        for row in (row for row in rows if row.partition == partition):
            mark = header_value(row.headers, WATERMARK_HEADER)
            if mark is not None:
                announced = Announced.decode(mark)
                awake[announced.upstream] = not announced.idle
            elif row.key is not None:
                assert any(awake.values()), f"{row} came while its sender was left out"


def test_a_stage_with_two_re_key_steps_names_both() -> None:
    app, *_ = merged_behind_key_by()
    stage = app.topology().stages[-1]
    assert [(port.name, port.upstream) for port in stage.inputs] == [("a-by-k", "a"), ("b-by-k", "b")]
