"""Repartition and snapshot as real Spark jobs over a real broker."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.image_selection import install_best
from stateflow.checkpoint.jobs import RestoreJob, jobs_of
from stateflow.checkpoint.recovery import run_job
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, OffsetOutOfRange
from stateflow.lab.applications.written import STORES, WrittenApp
from stateflow.lab.spark_bench.measure import SparkLoad, measure_spark
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.query.columns import TableSpec
from stateflow.query.snapshot import store_snapshot, topic_snapshot
from stateflow.record import OffsetRange, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.scale import progress
from stateflow.scale.progress import Progress
from stateflow.scale.progress_group import SliceProgress
from stateflow.scale.ranges import ChangelogRange, RangeRead
from stateflow.scale.recover import RecoverSettings, recover
from stateflow.scale.settings import RangeSettings, ScaleSettings
from stateflow.scale.shuffle import Inbox, Sending
from stateflow.scale.start import start
from stateflow.scale.state_move import RangeJob, SliceDone, SliceJob, send_state, write_slice
from stateflow.spark.connection import Connection
from stateflow.spark.engine import SparkEngine
from stateflow.spark.jobs.snapshot import write_snapshot
from stateflow.spark.programs import spark_home
from stateflow.spark.submit import Submission, template
from stateflow.spark.table import snapshot_frame
from stateflow.spark.worker_daemon import NEEDED
from stateflow.state.layout import index_bytes, prefixed_key, routing_key, window_key
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
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


def test_python_processes_import_the_pyspark_that_is_installed(session: SparkSession) -> None:
    """And not the sources in Spark's pyspark.zip, which each would compile; forked, with what they need imported."""
    found = session.sparkContext.parallelize([0]).map(
        lambda _: (importlib.import_module("pyspark").__file__, {*NEEDED} <= sys.modules.keys())
    )
    assert found.collect() == [(str(spark_home() / "__init__.py"), True)]


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
    assert seen[-1].step == "auditing"
    moved = [each for each in seen if each.step == "moving"]
    assert moved[-1].slots_done == moved[-1].slots_total > 3000
    assert moved[-1].records_read_total > 3000
    live = sum(map(len, app.expected.values()))
    assert moved[-1].records_written_total == live + 40, "told by executors, unread records included"


@dataclass(frozen=True)
class KilledReader:
    """Sends a part of a sub-range, then dies as an executor does, once per topic; later attempts go through."""

    folder: str

    def __call__(self, cluster: Cluster, job: RangeJob) -> Sending[RangeRead]:
        marker = Path(self.folder) / f"read-{job.parts[0].source.topic}"
        sending = send_state(cluster, job)
        if not marker.exists():
            marker.touch()
            yield next(sending)
            os.kill(os.getpid(), signal.SIGKILL)
        return (yield from sending)


@dataclass(frozen=True)
class KilledWriter:
    """Dies in the open transaction of one slice of each store, as an executor does; later attempts go through."""

    folder: str

    def __call__(self, cluster: Cluster, job: SliceJob, inbox: Inbox) -> SliceDone:
        marker = Path(self.folder) / f"written-{job.target_topic}"
        if not marker.exists():
            marker.touch()
            writer = cluster.writer(job.transactional_id)
            writer.begin()
            writer.send(job.target_topic, b"key-1", b"of a dead attempt", partition=0, timestamp_ms=1)
            writer.send_offsets({job.slot.partition: SliceProgress(1, 1).committed()}, job.slot.group, None)
            os.kill(os.getpid(), signal.SIGKILL)
        return write_slice(cluster, job, inbox)


class KillingEngine(SparkEngine):
    """Moves through :class:`KilledReader` and :class:`KilledWriter`."""

    def __init__(
        self, session: SparkSession, connection: Connection, folder: Path, *, by_spark: bool
    ) -> None:
        super().__init__(session, connection, by_spark)
        self._folder = str(folder)

    def shuffle(self, send: Any, senders: Any, receive: Any, receivers: Any, on_done: Any = None) -> Any:
        if receive is write_slice:
            send, receive = KilledReader(self._folder), KilledWriter(self._folder)
        return super().shuffle(send, senders, receive, receivers, on_done)


@pytest.mark.parametrize("by_spark", [True, False], ids=["Spark's shuffle", "files"])
def test_killed_python_workers_are_replaced_and_count_once(
    cluster: KafkaCluster, broker: TestBroker, session: SparkSession, tmp_path: Path, by_spark: bool
) -> None:
    app = written(cluster, 3)
    engine = KillingEngine(session, Connection(broker.bootstrap), tmp_path, by_spark=by_spark)
    routing = RoutingTable.modulo(5)
    settings = ScaleSettings(chunk_records_max=700, ranges=RangeSettings(slots_min=200))
    start(cluster, app.app, routing.entry(), engine, SystemClock(), settings=settings)
    assert len(list(tmp_path.iterdir())) == 2 * len(STORES), "executors were killed reading and writing"
    assert_everything_kept(app, 1, routing)


@pytest.mark.parametrize("by_spark", [True, False], ids=["Spark's shuffle", "files"])
def test_readers_that_fail_for_good_let_no_slice_be_written(
    cluster: KafkaCluster, broker: TestBroker, session: SparkSession, by_spark: bool
) -> None:
    app = written(cluster, 2)
    engine = SparkEngine(session, Connection(broker.bootstrap), by_spark)
    source = TopicPartition(changelog_topic(app.app, "totals"), 0)
    cluster.create([TopicSpec(f"{app.app}-target", 1)])
    job = SliceJob(
        app=app.app,
        generation=1,
        target_topic=f"{app.app}-target",
        layout="plain",
        routing=RoutingTable.modulo(1).entry(),
        number=0,
        slices=1,
        slots=60,
        transaction_bytes_max=1 << 20,
    )
    parts = [OffsetRange(0, 10), OffsetRange(99_950, 99_960)]
    senders = [
        RangeJob(
            parts=(ChangelogRange(source, part, None),), slices=1, receivers={0: 0}, memory_bytes_max=1 << 20
        )
        for part in parts
    ]
    with pytest.raises(OffsetOutOfRange):
        engine.shuffle(send_state, senders, write_slice, [job])
    target = TopicPartition(f"{app.app}-target", 0)
    assert cluster.ranges([target], stable=False)[target] == OffsetRange(0, 0)


def test_the_benchmark_comes_to_the_same_in_every_way(
    broker: TestBroker, session: SparkSession, tmp_path: Path
) -> None:
    load = SparkLoad(records=2_000, keys=300, partitions_from=1, partitions_to=3, warms_up=False)
    found = measure_spark(broker.bootstrap, load, tmp_path, lambda _: None)
    assert found["same_result"] is True
    assert found["keys_per_second"]["own_repartition"] > 0
    assert set(found["ratios"]) == {
        "move_to_plain",
        "recover_to_plain",
        "snapshot_to_plain",
        "move_to_own_repartition",
        "move_audited_to_own_repartition",
    }
    assert set(found["cpu_seconds"]) == set(found["seconds"]) - {"move"}


# --- recovery -------------------------------------------------------------------------------------------


def test_images_recovered_by_spark_tasks_equal_a_replay(
    cluster: KafkaCluster, broker: TestBroker, session: SparkSession, tmp_path: Path
) -> None:
    app, images = written(cluster, 2), str(tmp_path / "images")
    catalog = generations.load_catalog(cluster, app.app)
    engine = SparkEngine(session, Connection(broker.bootstrap))
    settings = RecoverSettings(slots_min=100, ranges_per_lane=8)
    done = recover(cluster, catalog, engine, SystemClock(), scratch=images, images=images, settings=settings)
    assert done.ranges >= 4 * done.tasks
    for job in jobs_of(catalog, cluster.cluster_id, tmp_path / "fresh"):
        fetched = install_best(cluster, job, images, SystemClock(), lambda: False)
        assert fetched is not None
        replay = replace(job, directory=replace(job.directory, path=tmp_path / "replayed" / job.task))
        run_job(cluster, replay, RocksResources(), lambda _: None, lambda: False)
        assert _content(job) == _content(replay)


def _content(job: RestoreJob) -> dict[str, object]:
    stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources())
    try:
        return {name: (stores.position(name), [*stores.reader(name).scan()]) for name in job.changelogs}
    finally:
        stores.close()


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
