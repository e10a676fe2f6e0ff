"""A micro-batch whose tasks take long: commits at the interval, and attempts that go on where the last one came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.errors import TransactionAborted
from stateflow.lab.applications.words import Words
from stateflow.log.memory import MemoryCluster
from stateflow.operators.steps.context import Pipeline, StageContext
from stateflow.record import RecordBatch
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.spark.epoch import EpochRange, EpochResult, run_epoch
from stateflow.store.rocks import RocksResources
from tests.spark.test_epoch import TOPOLOGY, Killed, Query

pytestmark = pytest.mark.slow

EACH_MS = 20
COMMIT_SECONDS = 1.0
LINES = 400


class SlowQuery(Query):
    """Its tasks take 20 ms for each record, and may fail with any of them."""

    def __init__(self, cluster: MemoryCluster, folder: Path) -> None:
        super().__init__(cluster, folder, slots=500_000)
        self.processed_total = 0
        self.commits: list[float] = []
        """When what was committed was seen to have changed."""
        self.committed: object = None

    def begin_record(self) -> None:
        """Called before each record."""
        self.processed_total += 1
        self.clock.advance(ms=EACH_MS)
        inputs = [source for task in self.wiring.tasks() for source in task.inputs]
        committed = self.cluster.committed("words", inputs, stable=False)
        if committed != self.committed:
            self.committed = committed
            self.commits.append(self.clock.monotonic_seconds())

    def attempt(self, todo: EpochRange, machine: str, fail: Callable[[int], None]) -> EpochResult:
        """One Spark task; ``fail`` is given the number of each record, and raises what ends the task."""
        plain = TOPOLOGY.stage(todo.stage)
        begin, seen = self.begin_record, iter(range(1, 1_000_000))

        class Slow:
            def __init__(self, context: StageContext) -> None:
                self._inner: Pipeline = plain.build(context)

            def __getattr__(self, name: str) -> object:
                return getattr(self._inner, name)

            def process(self, batch: RecordBatch) -> None:
                for _ in range(len(batch)):
                    begin()
                    fail(next(seen))
                self._inner.process(batch)

        wiring = self.wiring.task(replace(plain, build=Slow), todo.partition)  # type: ignore[arg-type]
        settings = WorkerSettings(state_dir=self.folder / machine, commit_interval_seconds=COMMIT_SECONDS)
        opener = rocks_opener(self.cluster, settings, RocksResources())
        return run_epoch(self.cluster, wiring, todo, opener, settings, self.clock)


@pytest.fixture
def words(cluster: MemoryCluster) -> Words:
    made = Words.create(cluster, "words")
    made.feed(LINES)
    return made


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def never(_: int) -> None:
    """Nothing goes wrong."""


def test_a_long_range_is_committed_at_the_interval(
    cluster: MemoryCluster, words: Words, tmp_path: Path
) -> None:
    query = SlowQuery(cluster, tmp_path)
    for _ in range(3):
        for todo in query.next_rows():
            query.attempt(todo, "a", never)
    gaps = [later - earlier for earlier, later in zip(query.commits, query.commits[1:], strict=False)]
    assert len(gaps) > query.processed_total * EACH_MS / 1000 / 1.3
    assert max(gaps) <= COMMIT_SECONDS + 0.1 + 2 * EACH_MS / 1000
    assert is_drained(cluster, query.wiring.catalog)
    words.assert_counted_once()


@pytest.mark.parametrize("kind", ["killed", "aborted"])
def test_attempts_that_never_come_to_the_end_get_there(
    cluster: MemoryCluster, words: Words, tmp_path: Path, kind: str
) -> None:
    """Every attempt ends after three seconds of work, on another machine each time."""

    def fail(record: int) -> None:
        if record == 150:
            if kind == "killed":
                raise Killed
            raise TransactionAborted("too long", action="read it again")

    query, attempts = SlowQuery(cluster, tmp_path), 0
    for _ in range(3):
        for todo in query.next_rows():
            while True:
                attempts += 1
                try:
                    query.attempt(todo, f"{todo.stage}-{attempts % 3}", fail)
                    break
                except (Killed, TransactionAborted):
                    assert attempts < 200, "no attempt leaves anything behind"
    assert attempts > 10
    assert is_drained(cluster, query.wiring.catalog)
    words.assert_counted_once()
