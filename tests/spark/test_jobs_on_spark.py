"""Repartition and snapshot as real Spark jobs over a real broker."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from stateflow.catalog.names import changelog_topic
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, OffsetOutOfRange
from stateflow.lab.applications.written import STORES, WrittenApp
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.scale import progress
from stateflow.scale.progress import Progress
from stateflow.scale.repartition import MoveJob, MoveResult, move_partition
from stateflow.scale.start import ScaleSettings, start
from stateflow.spark.columns import TableSpec
from stateflow.spark.connection import Connection
from stateflow.spark.engine import SparkEngine
from stateflow.spark.jobs.snapshot import write_snapshot
from stateflow.spark.session import spark_session
from stateflow.spark.submit import Submission, template
from stateflow.spark.table import snapshot_frame, store_snapshot, topic_snapshot
from stateflow.state.layout import index_bytes, prefixed_key, routing_key, window_key
from stateflow.testing.broker import TestBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]

# Executors cannot import a test module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def cluster(broker: TestBroker) -> Iterator[KafkaCluster]:
    made = KafkaCluster(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with spark_session() as made:
        yield made


def written(cluster: Cluster, partitions: int) -> WrittenApp:
    app = WrittenApp(cluster, f"jobs-{uuid.uuid4().hex[:8]}", RoutingTable.modulo(partitions))
    app.create()
    rng = random.Random(5)
    keys = [f"key-{number}" for number in range(200)]

    def changes(to_key: object) -> list[tuple[bytes, bytes | None]]:
        assert callable(to_key)
        return [
            (to_key(rng.choice(keys).encode()), None if rng.random() < 0.2 else b"%d" % n)
            for n in range(1000)
        ]

    app.write_state("totals", changes(lambda key: key))
    app.write_state("hourly", changes(lambda key: window_key(key, rng.randrange(3) * 3_600_000)))
    app.write_state("recent", changes(lambda key: prefixed_key(key, index_bytes(rng.randrange(3)))))
    app.commit_inputs(dict.fromkeys(range(partitions), 9))
    app.write_unread([(rng.choice(keys).encode(), b"%d" % number, 100 + number) for number in range(40)])
    return app


def assert_everything_kept(app: WrittenApp, generation: int, routing: RoutingTable) -> None:
    for store in STORES:
        merged: dict[bytes, bytes] = {}
        for partition, state in app.found_state(store.name, generation).items():
            assert {routing.partition_of(routing_key(store.layout, key)) for key in state} <= {partition}
            merged.update(state)
        assert merged == app.expected[store.name]
    unread = [record for records in app.found_unread(generation).values() for record in records]
    assert sorted(int(record.value) for record in unread) == list(range(40))


# --- repartition ----------------------------------------------------------------------------------------


def test_repartition_keeps_everything(
    cluster: KafkaCluster, broker: TestBroker, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "WORTH_SHOWING_SECONDS", 0.0)
    app = written(cluster, 4)
    engine = SparkEngine(session, Connection(broker.bootstrap))
    seen: list[Progress] = []
    routing = RoutingTable.modulo(6)
    outcome = start(cluster, app.app, routing.entry(), engine, SystemClock(), on_progress=seen.append)
    assert outcome.engine == "spark"
    assert_everything_kept(app, 1, routing)
    assert seen[-1].slots_done == seen[-1].slots_total > 3000


@dataclass(frozen=True)
class KilledOnce:
    """Moves a part of partition 1 of each topic, then dies as an executor does; later attempts go through."""

    folder: str

    def __call__(self, cluster: Cluster, job: MoveJob) -> MoveResult:
        marker = Path(self.folder) / f"{job.source.topic}-{job.source.partition}"
        if job.source.partition == 1 and not marker.exists():
            marker.touch()
            half = (job.offsets.offset_first + job.offsets.offset_next) // 2
            writer = cluster.writer(job.transactional_id)
            writer.begin()
            writer.send(job.target_topic, b"key-1", b"of a dead attempt", partition=0, timestamp_ms=1)
            writer.send_offsets({job.source: job.progress(half)}, job.group, None)
            os.kill(os.getpid(), signal.SIGKILL)
        return move_partition(cluster, job)


class KillingEngine(SparkEngine):
    """Runs moves through :class:`KilledOnce`."""

    def __init__(self, session: SparkSession, connection: Connection, folder: Path) -> None:
        super().__init__(session, connection)
        self._work = KilledOnce(str(folder))

    def run(self, work: Any, jobs: Any) -> Any:
        return super().run(self._work if work is move_partition else work, jobs)


def test_killed_python_workers_are_replaced_and_count_once(
    cluster: KafkaCluster, broker: TestBroker, session: SparkSession, tmp_path: Path
) -> None:
    app = written(cluster, 3)
    engine = KillingEngine(session, Connection(broker.bootstrap), tmp_path)
    routing = RoutingTable.modulo(5)
    settings = ScaleSettings(chunk_records_max=100)
    start(cluster, app.app, routing.entry(), engine, SystemClock(), settings=settings)
    assert len(list(tmp_path.iterdir())) == len(STORES) + 1, "one executor was killed per topic"
    assert_everything_kept(app, 1, routing)


def test_an_error_that_no_attempt_cures_comes_back_typed(
    cluster: KafkaCluster, broker: TestBroker, session: SparkSession
) -> None:
    name = f"gone-{uuid.uuid4().hex[:8]}"
    cluster.create([TopicSpec(name, 1)])
    job = MoveJob(
        app=name,
        generation=1,
        source=TopicPartition(name, 0),
        offsets=OffsetRange(50, 60),
        target_topic=name,
        layout=None,
        routing=RoutingTable.modulo(1).entry(),
    )
    with pytest.raises(OffsetOutOfRange):
        SparkEngine(session, Connection(broker.bootstrap)).run(move_partition, [job])


# --- snapshot -------------------------------------------------------------------------------------------


def test_a_store_as_a_dataframe(cluster: KafkaCluster, broker: TestBroker, session: SparkSession) -> None:
    app = written(cluster, 3)
    connection = Connection(broker.bootstrap)
    catalog = generations.load_catalog(cluster, app.app)

    totals = snapshot_frame(session, connection, store_snapshot(cluster, catalog, "totals"))
    rows = {row.key.encode(): row.value.encode() for row in totals.collect()}
    assert rows == app.expected["totals"]
    assert totals.where("key = 'key-1'").count() == (b"key-1" in rows)

    hourly = snapshot_frame(session, connection, store_snapshot(cluster, catalog, "hourly"))
    found = hourly.selectExpr("key", "unix_millis(window_start) AS start_ms", "value", "partition").collect()
    assert {window_key(r.key.encode(), r.start_ms): bytes(r.value) for r in found} == app.expected["hourly"]
    assert all(RoutingTable.modulo(3).partition_of(row.key.encode()) == row.partition for row in found)

    recent = snapshot_frame(session, connection, store_snapshot(cluster, catalog, "recent"))
    elements = {
        prefixed_key(row.key.encode(), index_bytes(row["index"])): bytes(row.value)
        for row in recent.collect()
    }
    assert elements == app.expected["recent"]
    with pytest.raises(ConfigError, match="hourly, recent, totals"):
        store_snapshot(cluster, catalog, "nonsense")


def test_a_foreign_topic_to_parquet(
    cluster: KafkaCluster, broker: TestBroker, session: SparkSession, tmp_path: Path
) -> None:
    topic = f"foreign-{uuid.uuid4().hex[:8]}"
    cluster.create([TopicSpec(topic, 2, 1, {"cleanup.policy": "compact"})])
    writer = cluster.writer()
    writer.begin()
    for number in range(100):
        value = json.dumps({"n": number}).encode()
        writer.send(topic, b"k%d" % (number % 10), value, partition=number % 2, timestamp_ms=1)
    writer.send(topic, b"k3", None, partition=1, timestamp_ms=1)
    writer.commit()
    writer.close()
    table = TableSpec(
        kind="value", layout="plain", key_codec={"codec": "string"}, value_codec={"codec": "json"}
    )
    connection, out = Connection(broker.bootstrap), str(tmp_path / "out")
    written = write_snapshot(connection, topic_snapshot(cluster, topic, table), out)
    assert written["rows"] == 9
    rows = {row.key: json.loads(row.value)["n"] for row in session.read.parquet(out).collect()}
    assert rows == {f"k{number}": 90 + number for number in range(10) if number != 3}
    with pytest.raises(ConfigError, match="exists already"):
        write_snapshot(connection, topic_snapshot(cluster, topic, table), out)


def test_the_templates_run_under_spark_submit(
    cluster: KafkaCluster, broker: TestBroker, tmp_path: Path
) -> None:
    app = written(cluster, 2)
    arguments = ["--app", app.app, "--partitions", "3", "--brokers", broker.bootstrap]
    submitted = _submit("repartition", arguments)
    outcome = json.loads(submitted.stdout.strip().splitlines()[-1])
    assert (outcome["engine"], outcome["partitions_to"]) == ("spark", 3)
    assert_everything_kept(app, 1, RoutingTable.modulo(3))

    again = _submit("repartition", arguments, exit_code=ConfigError.exit_code)
    assert "already has 3 partitions" in again.stdout  # spark-submit merges a program's two outputs

    out = str(tmp_path / "totals")
    arguments = ["--app", app.app, "--store", "totals", "--brokers", broker.bootstrap, "--out", out, "--json"]
    written_rows = json.loads(_submit("snapshot", arguments).stdout.strip().splitlines()[-1])
    assert written_rows["rows"] == len(app.expected["totals"])
    assert written_rows["topic"] == changelog_topic(app.app, "totals", 1)


def _submit(job: str, arguments: list[str], exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    submission = Submission(program=template(job).path, arguments=arguments, conf={})
    done = subprocess.run(
        submission.command(), env=submission.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == exit_code, done.stderr[-3000:]
    return done
