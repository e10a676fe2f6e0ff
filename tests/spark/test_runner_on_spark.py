"""An application as a Structured Streaming query on a real broker: the local runner's results, also when
killed.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from stateflow.clock import SystemClock
from stateflow.errors import PartitionCountChanged, ProcessingError, StillRunning
from stateflow.lab.applications.words import Count, Words, topology
from stateflow.log.kafka import KafkaCluster
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Stage, Topology
from stateflow.record import RecordBatch
from stateflow.routing import RoutingTable
from stateflow.runtime.process.launch import run_worker
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.prepare import prepare
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from stateflow.spark.connection import Connection
from stateflow.spark.driver import Pipeline
from stateflow.spark.java_log import java_log
from stateflow.spark.presence import presence
from stateflow.spark.runner import PipelineSettings, PipelineTotals, run_spark
from stateflow.testing.broker import TestBroker
from tests.spark.growing import expect_last_partition, feed_keys, growing, growing_under_state

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.usefixtures("session")]

# Executors cannot import a test module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(broker: TestBroker) -> Iterator[KafkaCluster]:
    made = KafkaCluster(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture
def words(cluster: KafkaCluster) -> Words:
    return Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")


def on_spark(
    words: Words, broker: TestBroker, folder: Path, graph: Topology | None = None, **options: object
) -> PipelineTotals:
    load = options.pop("load", functools.partial(topology, words.app))
    assert callable(load)
    pipeline = Pipeline(
        topology=graph or topology(words.app), guarantee="exactly-once", partitions=PARTITIONS, load=load
    )
    settings = PipelineSettings(trigger_seconds=0.2, slots_per_batch_max=400, **options)  # type: ignore[arg-type]
    worker = WorkerSettings(state_dir=folder / "state")
    return run_spark(pipeline, Connection(broker.bootstrap), worker, until_idle=True, settings=settings)


def on_a_local_worker(words: Words, folder: Path) -> None:
    wiring = prepare(words.cluster, topology(words.app), "exactly-once", PARTITIONS, SystemClock())
    settings = WorkerSettings(state_dir=folder / "state", commit_interval_seconds=0.2)
    run_worker(words.cluster, wiring, settings, until_drained=True)


def test_both_runners_give_the_same_state(
    cluster: KafkaCluster, broker: TestBroker, words: Words, tmp_path: Path
) -> None:
    words.feed(400)
    totals = on_spark(words, broker, tmp_path)
    words.assert_counted_once()
    assert totals.records_total == 400 + 2000
    assert totals.epochs_total >= 2

    other = Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")
    other.feed(400)
    on_a_local_worker(other, tmp_path)
    other.assert_counted_once()
    assert words.counted() == other.counted(), "partition by partition"


def test_an_application_changes_its_runner_and_its_partitions(
    cluster: KafkaCluster, broker: TestBroker, words: Words, tmp_path: Path
) -> None:
    words.feed(100, seed=1)
    on_a_local_worker(words, tmp_path / "machine-1")
    words.feed(100, seed=2)
    on_spark(words, broker, tmp_path / "machine-2")
    words.feed(100, seed=3)
    on_a_local_worker(words, tmp_path / "machine-1")  # whose local state is behind by then
    words.assert_counted_once()

    start(cluster, words.app, RoutingTable.modulo(5).entry(), InProcess(cluster), SystemClock())
    words.feed(100, seed=4)
    on_spark(words, broker, tmp_path / "machine-2")
    words.assert_counted_once(generation=1)
    for partition, counts in words.counted(1).items():
        assert {RoutingTable.modulo(5).partition_of(word) for word in counts} <= {partition}


class CountAndDie(Count):
    """Dies after a batch was processed and before it is committed, ``deaths`` times in all."""

    def __init__(self, context: StageContext, output: str, folder: Path, deaths: int) -> None:
        super().__init__(context, output)
        self._folder = folder
        self._deaths = deaths

    def process(self, batch: RecordBatch) -> None:
        super().process(batch)
        for number in range(self._deaths):
            marker = self._folder / f"death-{number}"
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def deadly_topology(app: str, folder: str, deaths: int) -> Topology:
    lines, counts = topology(app).stages

    def build(context: StageContext) -> CountAndDie:
        return CountAndDie(context, f"{app}-out", Path(folder), deaths)

    deadly = Stage(counts.name, counts.inputs, counts.stores, counts.outputs, (), build)
    return Topology(app, (lines, deadly))


def test_python_workers_killed_in_the_middle_of_an_epoch(
    broker: TestBroker, words: Words, tmp_path: Path
) -> None:
    words.feed(200)
    load = functools.partial(deadly_topology, words.app, str(tmp_path), 3)
    on_spark(words, broker, tmp_path, load=load)
    assert len(list(tmp_path.glob("death-*"))) == 3
    words.assert_counted_once()


class Refuse(Count):
    """Cannot process anything."""

    def process(self, batch: RecordBatch) -> None:
        raise ProcessingError("this record is no good.", action="fix the code.", step="counts")


def refusing_topology(app: str) -> Topology:
    lines, counts = topology(app).stages

    def build(context: StageContext) -> Refuse:
        return Refuse(context, f"{app}-out")

    return Topology(app, (lines, Stage(counts.name, counts.inputs, counts.stores, counts.outputs, (), build)))


def test_an_error_of_user_code_ends_the_query_with_its_own_type_and_no_traces(
    broker: TestBroker, words: Words, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words.feed(10)
    log = java_log("stateflow").file
    assert log is not None
    before = log.stat().st_size if log.exists() else 0
    with pytest.raises(ProcessingError, match="no good"):
        on_spark(words, broker, tmp_path, load=functools.partial(refusing_topology, words.app))
    assert "Traceback" not in caplog.text, "Py4J's"
    assert "MicroBatchExecution: Query" in log.read_text()[before:], "Java's"
    on_spark(words, broker, tmp_path)
    words.assert_counted_once()


def test_partitions_that_are_added_while_the_query_runs_are_read_before_it_has_drained(
    broker: TestBroker, words: Words, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words.feed(50)
    expect_last_partition(words)
    load = functools.partial(growing, words.app, str(tmp_path), broker.bootstrap)
    progress = tmp_path / "progress.jsonl"
    on_spark(words, broker, tmp_path, load=load, progress_file=progress)
    words.assert_counted_once()
    assert "partitions were added to the 2" in caplog.text
    last = json.loads(progress.read_text().splitlines()[-1])
    assert last["records_total"] == 3 * 50 + words.expected.total() - 50  # lines, half of them of two words


def test_where_state_depends_on_them_the_query_ends_as_a_start_would(
    broker: TestBroker, words: Words, tmp_path: Path
) -> None:
    feed_keys(words)
    load = functools.partial(growing_under_state, words.app, str(tmp_path), broker.bootstrap)
    with pytest.raises(PartitionCountChanged, match="2 partitions when the state of counts was built"):
        on_spark(words, broker, tmp_path, graph=load(), load=load)


def test_a_running_query_is_seen_by_a_repartition(
    cluster: KafkaCluster, broker: TestBroker, words: Words, tmp_path: Path
) -> None:
    words.feed(10)
    on_spark(words, broker, tmp_path)
    with presence(cluster, words.app), pytest.raises(StillRunning, match="1 Spark query"):
        start(cluster, words.app, RoutingTable.modulo(5).entry(), InProcess(cluster), SystemClock())
