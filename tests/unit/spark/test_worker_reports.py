"""What hosted workers tell their driver: records of each task over all its openings, those of lost workers included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from stateflow.catalog.names import control_topic
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.progress.lag import InputLag
from stateflow.runtime.worker.member_records import ProgressReport, TaskProgress
from stateflow.spark.progress import tasks, workers
from stateflow.spark.worker_reports import CommittedRecords, WorkerReports, reporting


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    made = MemoryCluster()
    made.create([TopicSpec(control_topic("shop"), 1)])
    yield made
    made.close()


def test_records_are_counted_over_all_openings_of_a_task() -> None:
    committed = CommittedRecords()
    committed.on_running("s-0")
    committed.on_commit("s-0", 10, 3)
    committed.on_commit("s-0", 15, 4)
    committed.on_released("s-0")
    committed.on_running("s-0")  # its counters begin anew
    committed.on_commit("s-0", 7, 1)
    expected = {"s-0": TaskProgress(records_total=22, sent_total=5, commits_total=3)}
    assert committed.totals() == (expected, ("s-0",))


def test_the_driver_adds_up_what_the_lives_of_its_workers_have_told(cluster: MemoryCluster) -> None:
    clock = ManualClock()
    with closing(WorkerReports(cluster, "shop", "run")) as reports:
        assert reports.read() == []
        for run, records in (("another", 1_000), ("run", 10), ("run", 5)):
            committed = CommittedRecords()
            with reporting(cluster, "shop", committed, run, 0, clock):
                committed.on_running("s-0")
                committed.on_commit("s-0", records, 2 * records)
            clock.advance(seconds=1)
        told = reports.read()
    assert [report.tasks["s-0"].records_total for report in told] == [10, 5]
    lag = InputLag("s-0", TopicPartition("orders", 0), 15, OffsetRange(0, 40))
    idle = InputLag("s-1", TopicPartition("orders", 1), 0, OffsetRange(0, 0))
    nothing = {"records_total": 0, "sent_total": 0, "epochs_total": 0, "behind_slots": 0, "workers_total": 0}
    assert tasks(told, [lag, idle]) == {
        "s-0": {
            "records_total": 15,
            "sent_total": 30,
            "epochs_total": 2,
            "behind_slots": 25,
            "workers_total": 2,
        },
        "s-1": nothing,
    }
    assert workers(told) == {"0": {"restarts_total": 1, "tasks": ["s-0"]}}


def test_the_newest_life_of_a_lane_says_which_tasks_it_has() -> None:
    def report(lane: int, life: str, written_ms: int, *running: str) -> ProgressReport:
        return ProgressReport(run="r", lane=lane, life=life, tasks={}, running=running, written_ms=written_ms)

    told = [report(1, "c", 9, "s-1"), report(0, "b", 7, "s-0", "s-2"), report(0, "a", 5)]
    assert workers(told) == {
        "0": {"restarts_total": 1, "tasks": ["s-0", "s-2"]},
        "1": {"restarts_total": 0, "tasks": ["s-1"]},
    }
