"""Workers inside long-running Spark tasks over a real broker: one count per word, whoever is killed."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import cloudpickle

from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, GraphError, PartitionCountChanged
from stateflow.lab.applications.words import Count, Words, topology
from stateflow.log.kafka import KafkaCluster
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Stage, Topology
from stateflow.runtime.process.launch import run_worker
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.prepare import prepare
from stateflow.savepoint.create import create
from stateflow.scale.generation import load_catalog
from stateflow.spark.connection import Connection
from stateflow.spark.driver import Pipeline
from stateflow.spark.long_running import LongRunSettings, LongRunTotals, run_long
from stateflow.testing.broker import TestBroker
from tests.spark.growing import expect_last_partition, feed_keys, growing, growing_under_state
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.usefixtures("session")]

# Executors cannot import a test module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

PARTITIONS = 3
SLOTS = 2
"""Of the shared session."""
LOOKING_OFTEN = {"topic.metadata.refresh.interval.ms": 1000}
"""Clients look for new partitions every five minutes otherwise."""


@pytest.fixture(scope="module")
def cluster(broker: TestBroker) -> Iterator[KafkaCluster]:
    made = KafkaCluster(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture
def words(cluster: KafkaCluster) -> Words:
    return Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")


class CountAndTell(Count):
    """Tells in which process it runs."""

    def __init__(self, context: StageContext, output: str, folder: Path) -> None:
        super().__init__(context, output)
        (folder / f"{context.partition}-{os.getpid()}").touch()


def telling_topology(app: str, folder: str) -> Topology:
    lines, counts = topology(app).stages

    def build(context: StageContext) -> CountAndTell:
        return CountAndTell(context, f"{app}-out", Path(folder))

    return Topology(app, (lines, Stage(counts.name, counts.inputs, counts.stores, counts.outputs, (), build)))


def other_topology(app: str) -> Topology:
    lines, counts = topology(app).stages
    return Topology(app, (lines, Stage("by-letter", counts.inputs, counts.stores, (), (), counts.build)))


def on_spark(
    words: Words,
    broker: TestBroker,
    folder: Path,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    load: Callable[[], Topology] | None = None,
    workers: int | None = None,
) -> LongRunTotals:
    """Run on Spark until ``meanwhile``, on a thread of its own, has returned; its error is raised here."""
    pipeline = Pipeline(
        topology=topology(words.app),
        guarantee="exactly-once",
        partitions=PARTITIONS,
        load=load or functools.partial(topology, words.app),
    )
    worker = WorkerSettings(
        state_dir=folder / "state", commit_interval_seconds=0.2, savepoints=str(folder / "savepoints")
    )
    stopping = threading.Event()
    with stopped_after(meanwhile, stopping):
        return run_long(
            pipeline,
            Connection(broker.bootstrap, LOOKING_OFTEN),
            worker,
            settings=LongRunSettings(workers=workers),
            stopping=stopping,
        )


@contextmanager
def stopped_after(work: Callable[[], None], stopping: threading.Event) -> Iterator[None]:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            failures.append(error)
        finally:
            stopping.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]


def drained(words: Words) -> Callable[[], bool]:
    def look() -> bool:
        return is_drained(words.cluster, load_catalog(words.cluster, words.app))

    return look


def on_a_local_worker(words: Words, folder: Path) -> None:
    wiring = prepare(words.cluster, topology(words.app), "exactly-once", PARTITIONS, SystemClock())
    settings = WorkerSettings(state_dir=folder / "state", commit_interval_seconds=0.2)
    run_worker(words.cluster, wiring, settings, until_drained=True)


def test_killed_workers_come_back_and_the_application_moves_on_to_a_local_worker(
    broker: TestBroker, words: Words, tmp_path: Path
) -> None:
    words.feed(50, seed=1)
    on_a_local_worker(words, tmp_path / "here")
    told = tmp_path / "told"
    told.mkdir()

    def feed_and_kill() -> None:
        words.feed(200, seed=2)
        wait_until(lambda: len({partition_of(file) for file in told.iterdir()}) == PARTITIONS, "all to run")
        first = {int(file.name.partition("-")[2]) for file in told.iterdir()}
        wait_until(drained(words), "the first input to be processed", seconds=60)
        for number, pid in enumerate(first):
            os.kill(pid, signal.SIGKILL)
            words.feed(100, seed=3 + number)
            wait_until(drained(words), "the input after a kill to be processed", seconds=90)
        words.assert_counted_once()
        place = str(tmp_path / "spark" / "savepoints")
        savepoint = create(words.cluster, words.app, "amid", place, SystemClock())
        assert sum(task.image is not None for task in savepoint.tasks) == PARTITIONS

    load = functools.partial(telling_topology, words.app, str(told))
    totals = on_spark(words, broker, tmp_path / "spark", feed_and_kill, load=load)
    assert totals.workers == SLOTS
    assert totals.slots_total > 300
    words.feed(50, seed=9)
    on_a_local_worker(words, tmp_path / "here")  # whose local state is behind by then
    words.assert_counted_once()


def partition_of(file: Path) -> str:
    return file.name.partition("-")[0]


def test_partitions_that_are_added_are_read_by_all_workers(
    broker: TestBroker, words: Words, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words.feed(50)
    expect_last_partition(words)
    load = functools.partial(growing, words.app, str(tmp_path), broker.bootstrap)

    def counted() -> bool:
        return len(words.sent()) == words.expected.total()

    totals = on_spark(
        words, broker, tmp_path, lambda: wait_until(counted, "all input", seconds=120), load=load
    )
    words.assert_counted_once()
    assert caplog.text.count("All workers are started anew") == 1
    assert totals.restarts_total == 0, "none was lost"


def test_where_state_depends_on_them_the_workers_end_as_a_start_would(
    broker: TestBroker, words: Words, tmp_path: Path
) -> None:
    feed_keys(words)
    load = functools.partial(growing_under_state, words.app, str(tmp_path), broker.bootstrap)
    pipeline = Pipeline(topology=load(), guarantee="exactly-once", partitions=PARTITIONS, load=load)
    with pytest.raises(PartitionCountChanged, match="2 partitions when the state of counts was built"):
        run_long(
            pipeline,
            Connection(broker.bootstrap, LOOKING_OFTEN),
            WorkerSettings(state_dir=tmp_path / "state"),
        )


def test_more_workers_than_slots_are_refused(broker: TestBroker, words: Words, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"3 workers need 3 slots .* Spark has {SLOTS}"):
        on_spark(words, broker, tmp_path, workers=3)


def test_another_graph_on_an_executor_is_refused(broker: TestBroker, words: Words, tmp_path: Path) -> None:
    pipeline = Pipeline(
        topology=topology(words.app),
        guarantee="exactly-once",
        partitions=PARTITIONS,
        load=functools.partial(other_topology, words.app),
    )
    worker = WorkerSettings(state_dir=tmp_path)
    with pytest.raises(GraphError, match="differs in by-letter, by-word"):
        run_long(pipeline, Connection(broker.bootstrap), worker)
