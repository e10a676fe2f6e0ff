"""One task's part of a micro-batch, on the memory log: run twice, killed, moved to another executor. No
session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stateflow.catalog.model import Guarantee
from stateflow.clock import ManualClock
from stateflow.lab.applications.words import Words, topology
from stateflow.log.base import Appended, Cluster, Writer
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.prepare import prepare
from stateflow.spark.connection import Connection
from stateflow.spark.epoch import EpochRange, EpochResult, run_epoch
from stateflow.spark.ranges import RangeOptions, RangePlanner, TaskInputs
from stateflow.store.rocks import RocksResources

pytestmark = pytest.mark.slow

PARTITIONS = 3
TOPOLOGY = topology("words")


class Killed(BaseException):
    """The executor is gone."""


class DyingWriter:
    """Passes everything on, and dies before or after its commit."""

    def __init__(self, writer: Writer, step: str) -> None:
        self._writer = writer
        self._step = step
        self._dead = False

    def __getattr__(self, name: str) -> object:
        return (lambda *_: None) if self._dead else getattr(self._writer, name)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        self._dead = self._step == "before commit"
        appended = {} if self._dead else self._writer.commit(timeout_seconds)
        self._dead = True
        assert appended is not None
        raise Killed


class DyingCluster:
    """The memory cluster, whose next transactional writer dies."""

    def __init__(self, inner: Cluster, step: str) -> None:
        self._inner = inner
        self._step = step

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def writer(self, transactional_id: str | None = None) -> DyingWriter:
        return DyingWriter(self._inner.writer(transactional_id), self._step)


class Query:
    """What Spark does: plans micro-batches and runs each row, with the state directories of one machine."""

    def __init__(
        self, cluster: MemoryCluster, folder: Path, guarantee: Guarantee = "exactly-once", slots: int = 40
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.clock = ManualClock(1_000_000)
        self.wiring: Wiring = prepare(cluster, TOPOLOGY, guarantee, PARTITIONS, self.clock)
        tasks = tuple(
            TaskInputs(task.stage.name, task.partition, task.inputs, bool(task.rekeys))
            for task in self.wiring.tasks()
        )
        options = RangeOptions(
            connection=Connection("memory"),
            group="words",
            tasks=tasks,
            slots_per_batch_max=slots,
            idle_seconds=5,
            from_end=False,
        )
        self.planner = RangePlanner(cluster, options, self.clock)
        self.offsets = self.planner.initial()

    def next_rows(self) -> list[EpochRange]:
        end = self.planner.latest(self.offsets)
        rows = self.planner.rows(self.offsets, end)
        self.offsets = end
        return [EpochRange.of_row(*row) for row in rows]

    def run(self, todo: EpochRange, *, machine: str = "a", cluster: Cluster | None = None) -> EpochResult:
        used = cluster or self.cluster
        settings = WorkerSettings(state_dir=self.folder / machine)
        opener = rocks_opener(self.cluster, settings, RocksResources())
        task = self.wiring.task(TOPOLOGY.stage(todo.stage), todo.partition)
        return run_epoch(used, task, todo, opener, settings, self.clock)

    def run_to_the_end(self, *, machine: str = "a") -> int:
        records = 0
        for _ in range(100):
            for todo in self.next_rows():
                records += self.run(todo, machine=machine).records_total
            if is_drained(self.cluster, self.wiring.catalog):
                return records
        raise AssertionError("100 micro-batches did not reach the end of the input")


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    made = MemoryCluster()
    yield made
    made.close()


@pytest.fixture
def words(cluster: MemoryCluster) -> Words:
    made = Words.create(cluster, "words")
    made.feed(60)
    return made


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_micro_batches_count_everything_once(
    cluster: MemoryCluster, words: Words, tmp_path: Path, guarantee: Guarantee
) -> None:
    query = Query(cluster, tmp_path, guarantee)
    query.run_to_the_end()
    words.assert_counted_once()
    words.feed(60, seed=2)
    query.run_to_the_end()
    words.assert_counted_once()


def test_an_epoch_that_is_run_twice_counts_once(cluster: MemoryCluster, words: Words, tmp_path: Path) -> None:
    query = Query(cluster, tmp_path)
    for _ in range(30):
        for todo in query.next_rows():
            query.run(todo)
            assert query.run(todo).records_total == 0
            assert query.run(todo, machine="b").records_total == 0
    assert is_drained(cluster, query.wiring.catalog)
    words.assert_counted_once()


@pytest.mark.parametrize("step", ["before commit", "after commit"])
@pytest.mark.parametrize("stage", ["lines", "by-word"])
def test_an_executor_killed_at_its_commit(
    cluster: MemoryCluster, words: Words, tmp_path: Path, step: str, stage: str
) -> None:
    query = Query(cluster, tmp_path)
    killed = 0
    for number in range(30):
        for todo in query.next_rows():
            if todo.stage == stage:
                with pytest.raises(Killed):
                    query.run(todo, machine=f"killed-{number}", cluster=DyingCluster(cluster, step))  # type: ignore[arg-type]
                killed += 1
            query.run(todo, machine="b")
    assert killed >= 2
    assert is_drained(cluster, query.wiring.catalog)
    words.assert_counted_once()


def test_a_query_without_its_checkpoint_goes_on_from_kafka(
    cluster: MemoryCluster, words: Words, tmp_path: Path
) -> None:
    Query(cluster, tmp_path).run_to_the_end()
    words.feed(60, seed=3)
    records = Query(cluster, tmp_path).run_to_the_end(machine="another")
    assert records == 60 + 300
    words.assert_counted_once()


def test_a_query_with_an_old_checkpoint_repeats_nothing(
    cluster: MemoryCluster, words: Words, tmp_path: Path
) -> None:
    query = Query(cluster, tmp_path)
    old = dict(query.offsets)
    query.run_to_the_end()
    query.offsets = old
    assert query.run_to_the_end() == 0
    words.assert_counted_once()


def test_a_silent_input_is_announced_to_the_stage_behind(
    cluster: MemoryCluster, words: Words, tmp_path: Path
) -> None:
    query = Query(cluster, tmp_path)
    query.run_to_the_end()
    query.clock.advance(seconds=6)
    idle = query.next_rows()
    assert {(todo.stage, todo.partition) for todo in idle if todo.idle == tuple(todo.targets)} == {
        ("lines", 0),
        ("lines", 1),
    }
    for todo in idle:
        query.run(todo)
    results = [query.run(todo) for todo in query.next_rows()]
    assert {result.task for result in results} == {f"by-word-{p}" for p in range(PARTITIONS)}
