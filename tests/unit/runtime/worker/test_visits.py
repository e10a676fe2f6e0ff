"""Which task reads an input that is not its primary one: looked for once, and not believed when the task is gone."""

from __future__ import annotations

from collections.abc import ItemsView
from types import SimpleNamespace
from typing import Any, cast

from stateflow.clock import ManualClock
from stateflow.record import TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.commits import RunningTask
from stateflow.runtime.worker.visits import Visits

TASKS = 100


class Tasks(dict[TopicPartition, RunningTask]):
    """Counts how often all of them are gone through."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0

    def items(self) -> Any:
        self.rounds += 1
        return cast("ItemsView[TopicPartition, RunningTask]", super().items())

    def begin(self, number: int) -> None:
        inputs = [TopicPartition("first", number), TopicPartition("second", number)]
        task = SimpleNamespace(task=SimpleNamespace(wiring=SimpleNamespace(inputs=inputs)))
        self[inputs[0]] = cast("RunningTask", task)


def test_the_reader_of_a_further_input_is_looked_for_once() -> None:
    tasks = Tasks()
    visits = Visits(tasks, WorkerSettings(), ManualClock())
    for number in range(TASKS):
        tasks.begin(number)
    for _ in range(10):
        for number in range(TASKS):
            assert visits.primary_of(TopicPartition("first", number)) == TopicPartition("first", number)
            assert visits.primary_of(TopicPartition("second", number)) == TopicPartition("first", number)
    assert tasks.rounds == TASKS


def test_a_task_that_is_gone_reads_nothing_until_it_is_back() -> None:
    tasks = Tasks()
    visits = Visits(tasks, WorkerSettings(), ManualClock())
    second, first = TopicPartition("second", 0), TopicPartition("first", 0)
    assert visits.primary_of(second) is None
    tasks.begin(0)
    assert visits.primary_of(second) == first
    del tasks[first]
    assert visits.primary_of(second) is None
    tasks.begin(0)
    assert visits.primary_of(second) == first
