"""How far each task may go in a micro-batch. Needs no session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stateflow.clock import ManualClock
from stateflow.log.base import Cluster, Committed, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.spark.connection import Connection
from stateflow.spark.ranges import IDLE, RangeOptions, RangePlanner, TaskInputs, offset_key

TASKS = (
    TaskInputs("source", 0, (TopicPartition("in", 0), TopicPartition("beside", 0)), announces=True),
    TaskInputs("source", 1, (TopicPartition("in", 1), TopicPartition("beside", 1)), announces=True),
    TaskInputs("behind", 0, (TopicPartition("again", 0),), announces=False),
)
NOT_IDLE = {offset_key(source): False for task in TASKS for source in task.inputs}


def options(**changes: object) -> RangeOptions:
    fields: dict[str, object] = {
        "connection": Connection("nowhere:1", {"sasl.password": "hush"}),
        "group": "app",
        "tasks": TASKS,
        "slots_per_batch_max": 100,
        "idle_seconds": 5.0,
        "from_end": False,
    }
    return RangeOptions(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    made = MemoryCluster()
    made.create([TopicSpec("in", 2), TopicSpec("beside", 2), TopicSpec("again", 1)])
    yield made
    made.close()


def produce(cluster: Cluster, topic: str, partition: int, count: int) -> None:
    writer = cluster.writer()
    writer.begin()
    writer.send_many(topic, [b"k"] * count, [b"v"] * count, partitions=partition, timestamps_ms=1)
    writer.commit()
    writer.close()


def test_options_survive_the_way_to_another_process() -> None:
    assert RangeOptions.from_json(options().to_json()) == options()
    assert "hush" not in repr(options())


def test_a_new_query_begins_at_the_committed_offsets(cluster: MemoryCluster) -> None:
    produce(cluster, "in", 0, 10)
    cluster.commit("app", {TopicPartition("in", 0): Committed(7)})
    start = RangePlanner(cluster, options(), ManualClock()).initial()
    assert start == {"in:0": 7, "in:1": 0, "beside:0": 0, "beside:1": 0, "again:0": 0, IDLE: NOT_IDLE}
    produce(cluster, "in", 1, 3)
    late = RangePlanner(cluster, options(from_end=True), ManualClock()).initial()
    assert (late["in:0"], late["in:1"]) == (7, 3)


def test_a_new_run_does_what_the_one_before_planned_and_left(cluster: MemoryCluster) -> None:
    produce(cluster, "in", 0, 10)
    produce(cluster, "in", 1, 10)
    before = RangePlanner(cluster, options(run="before"), ManualClock())
    planned = before.latest(before.initial())
    cluster.commit("app", {TopicPartition("in", 1): Committed(planned["in:1"])})
    # It was stopped then: Spark has written down that the micro-batch is done.
    after = RangePlanner(cluster, options(run="after"), ManualClock())
    then = after.latest(planned)
    assert [row[:2] for row in after.rows(planned, then)] == [("source", 0)]
    assert after.rows(then, after.latest(then)) == []


def test_a_row_for_each_task_that_has_something_to_do(cluster: MemoryCluster) -> None:
    planner = RangePlanner(cluster, options(), ManualClock())
    start = planner.initial()
    assert planner.rows(start, planner.latest(start)) == []
    produce(cluster, "in", 1, 3)
    produce(cluster, "again", 0, 2)
    end = planner.latest(start)
    assert planner.rows(start, end) == [
        ("source", 1, {"in:1": 3, "beside:1": 0}, [], [], False),
        ("behind", 0, {"again:0": 2}, [], [], False),
    ]
    assert planner.rows(end, planner.latest(end)) == []


def test_a_micro_batch_is_bounded(cluster: MemoryCluster) -> None:
    produce(cluster, "in", 0, 250)
    planner = RangePlanner(cluster, options(), ManualClock())
    offsets, ends = planner.initial(), []
    for _ in range(4):
        offsets = planner.latest(offsets)
        ends.append(offsets["in:0"])
    assert ends == [100, 200, 250, 250]


def test_a_silent_input_is_announced_once_and_speaks_again(cluster: MemoryCluster) -> None:
    clock = ManualClock()
    planner = RangePlanner(cluster, options(), clock)
    start = planner.initial()
    clock.advance(seconds=4)
    produce(cluster, "in", 0, 1)
    spoken = planner.latest(start)
    assert planner.rows(start, spoken) == [("source", 0, {"in:0": 1, "beside:0": 0}, [], [], False)]
    clock.advance(seconds=2)
    some_idle = planner.latest(spoken)
    assert planner.rows(spoken, some_idle) == [
        ("source", 0, {"in:0": 1, "beside:0": 0}, ["beside:0"], [], True),
        ("source", 1, {"in:1": 0, "beside:1": 0}, ["in:1", "beside:1"], [], True),
    ]
    assert planner.rows(some_idle, planner.latest(some_idle)) == []
    clock.advance(seconds=4)
    all_idle = planner.latest(some_idle)
    assert planner.rows(some_idle, all_idle) == [
        ("source", 0, {"in:0": 1, "beside:0": 0}, ["in:0", "beside:0"], [], True)
    ]
    produce(cluster, "in", 1, 1)
    awake = planner.latest(all_idle)
    assert planner.rows(all_idle, awake) == [
        ("source", 1, {"in:1": 1, "beside:1": 0}, ["beside:1"], [], False)
    ]
    assert awake[IDLE] == {key: key != "in:1" for key in NOT_IDLE}


def test_an_input_that_is_behind_is_not_idle_however_silent(cluster: MemoryCluster) -> None:
    """A transaction is open: its records are in the log, and no reader sees them yet."""
    clock = ManualClock()
    planner = RangePlanner(cluster, options(), clock)
    start = planner.initial()
    writer = cluster.writer("producer")
    writer.begin()
    writer.send("in", b"k", b"v", partition=0, timestamp_ms=1)
    writer.flush()
    clock.advance(seconds=20)
    end = planner.latest(start)
    assert end[IDLE] == {**dict.fromkeys(NOT_IDLE, True), "in:0": False}
    writer.commit()
    spoken = planner.latest(end)
    assert spoken["in:0"] == cluster.ranges([TopicPartition("in", 0)])[TopicPartition("in", 0)].offset_next
    assert not spoken[IDLE]["in:0"]


def test_the_end_of_the_input_is_told_once_and_new_records_wake_it(cluster: MemoryCluster) -> None:
    produce(cluster, "in", 0, 150)
    ends = {"in:0": 150, "beside:0": 0, "in:1": 0, "beside:1": 0}
    planner = RangePlanner(cluster, options(ends=ends, run="1"), ManualClock())
    start = planner.initial()
    first = planner.latest(start)
    assert [row[:2] + row[4:] for row in planner.rows(start, first)] == [
        ("source", 0, ["beside:0"], True),
        ("source", 1, ["in:1", "beside:1"], True),
    ]
    second = planner.latest(first)
    assert [row[:2] + row[4:] for row in planner.rows(first, second)] == [
        ("source", 0, ["in:0", "beside:0"], True)
    ]
    assert planner.rows(second, planner.latest(second)) == []
    produce(cluster, "in", 0, 1)
    third = planner.latest(second)
    assert [row[:2] + row[4:] for row in planner.rows(second, third)] == [("source", 0, ["beside:0"], False)]
    again = RangePlanner(cluster, options(ends={**ends, "in:0": 151}, run="2"), ManualClock())
    fourth = again.latest(third)
    assert [row[:2] + row[4:] for row in again.rows(third, fourth)] == [
        ("source", 0, ["in:0", "beside:0"], True),
        ("source", 1, ["in:1", "beside:1"], True),
    ]


def test_each_run_looks_once_at_all_tasks_with_timers(cluster: MemoryCluster) -> None:
    tasks = (TaskInputs("source", 0, (TopicPartition("in", 0),), announces=False, has_timers=True),)
    planner = RangePlanner(cluster, options(tasks=tasks, run="1"), ManualClock())
    start = planner.initial()
    first = planner.latest(start)
    assert planner.rows(start, first) == [("source", 0, {"in:0": 0}, [], [], True)]
    assert planner.rows(first, planner.latest(first)) == []
    again = RangePlanner(cluster, options(tasks=tasks, run="2"), ManualClock())
    assert len(again.rows(first, again.latest(first))) == 1


def test_records_that_retention_removed_are_passed_over(cluster: MemoryCluster) -> None:
    produce(cluster, "in", 0, 500)
    planner = RangePlanner(cluster, options(), ManualClock())
    start = planner.initial()
    cluster.trim({TopicPartition("in", 0): 300})
    assert planner.latest(start)["in:0"] == 400
