"""How far each task may go in a micro-batch. Needs no session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stateflow.clock import ManualClock
from stateflow.log.base import Cluster, Committed, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.spark.connection import Connection
from stateflow.spark.ranges import IDLE, RangeOptions, RangePlanner, TaskInputs

TASKS = (
    TaskInputs("source", 0, (TopicPartition("in", 0), TopicPartition("beside", 0)), announces=True),
    TaskInputs("source", 1, (TopicPartition("in", 1), TopicPartition("beside", 1)), announces=True),
    TaskInputs("behind", 0, (TopicPartition("again", 0),), announces=False),
)
NOT_IDLE = {task.id: False for task in TASKS}


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


def test_a_row_for_each_task_that_has_something_to_do(cluster: MemoryCluster) -> None:
    planner = RangePlanner(cluster, options(), ManualClock())
    start = planner.initial()
    assert planner.rows(start, planner.latest(start)) == []
    produce(cluster, "in", 1, 3)
    produce(cluster, "again", 0, 2)
    end = planner.latest(start)
    assert planner.rows(start, end) == [
        ("source", 1, {"in:1": 3, "beside:1": 0}, False),
        ("behind", 0, {"again:0": 2}, False),
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
    assert [row[:2] for row in planner.rows(start, spoken)] == [("source", 0)]
    clock.advance(seconds=2)
    one_idle = planner.latest(spoken)
    assert planner.rows(spoken, one_idle) == [("source", 1, {"in:1": 0, "beside:1": 0}, True)]
    assert planner.rows(one_idle, planner.latest(one_idle)) == []
    clock.advance(seconds=4)
    both_idle = planner.latest(one_idle)
    assert [row[:2] for row in planner.rows(one_idle, both_idle)] == [("source", 0)]
    produce(cluster, "in", 1, 1)
    awake = planner.latest(both_idle)
    assert planner.rows(both_idle, awake) == [("source", 1, {"in:1": 1, "beside:1": 0}, False)]
    assert awake[IDLE] == {"source:0": True, "source:1": False, "behind:0": False}


def test_records_that_retention_removed_are_passed_over(cluster: MemoryCluster) -> None:
    produce(cluster, "in", 0, 500)
    planner = RangePlanner(cluster, options(), ManualClock())
    start = planner.initial()
    cluster.trim({TopicPartition("in", 0): 300})
    assert planner.latest(start)["in:0"] == 400
