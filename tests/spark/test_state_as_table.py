"""``spark.read.format("stateflow")`` over a real broker: the rows of `state scan`."""

from __future__ import annotations

import json
import runpy
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import broadcast

import stateflow as sf
from stateflow.bootstrap.write import WrittenState
from stateflow.cli.main import run as command
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, EncodeError
from stateflow.lab.applications.words import Words, topology
from stateflow.lab.network.guarded_broker import PASSWORD, Guarded
from stateflow.log.kafka import KafkaCluster
from stateflow.log.reading import read_topic
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.runtime.process.launch import run_worker
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.prepare import prepare
from stateflow.savepoint.create import create
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from stateflow.spark.connection import Connection
from stateflow.spark.submit import write_copy
from stateflow.spark.table import StateSource, change_frame, register
from stateflow.spark.to_jdbc import JdbcWriter
from stateflow.spark.to_topic import TopicWriter
from stateflow.testing.broker import TestBroker
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PARTITIONS = 3


@pytest.fixture(scope="module", autouse=True)
def registered(session: SparkSession) -> None:
    register(session)


def process(words: Words, folder: Path) -> None:
    wiring = prepare(words.cluster, topology(words.app), "exactly-once", PARTITIONS, SystemClock())
    run_worker(words.cluster, wiring, WorkerSettings(state_dir=folder / "state"), until_drained=True)


def test_the_table_is_what_state_scan_shows(
    broker: TestBroker, session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    words = Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")
    words.feed(60)
    process(words, tmp_path)
    create(cluster, words.app, "before", str(tmp_path / "savepoints"), SystemClock())
    at_savepoint = {word.decode(): count for word, count in words.expected.items()}
    words.feed(40, words=30, seed=2)
    process(words, tmp_path)
    cluster.close()

    client_file = tmp_path / "client.properties"
    client_file.write_text("client.id=a-reader\n")
    options = {"app": words.app, "store": "counts", "brokers": broker.bootstrap}

    def frame(**more: str) -> DataFrame:
        reader = session.read.format("stateflow").options(**options, client_file=str(client_file))
        return reader.options(**more).load()

    scanned = state_scan(words.app, broker, tmp_path / "state", capsys)
    assert len(scanned) == 30
    counts = frame()
    assert counts.dtypes == [("key", "string"), ("value", "bigint"), ("partition", "int")]
    assert rows(counts) == scanned
    assert counts.rdd.getNumPartitions() == PARTITIONS

    def of(*keys: str) -> list[dict[str, object]]:
        return [row for row in scanned if row["key"] in keys]

    words_apart = [next(str(row["key"]) for row in scanned if row["partition"] == n) for n in range(2)]
    one, two = (counts.where(counts.key == word) for word in words_apart)
    assert rows(one) == of(words_apart[0])
    assert rows(counts) == scanned, "a condition of one frame is no other's"
    assert rows(one.union(two)) == of(*words_apart)
    assert counts.where("partition = 99").collect() == []
    alone = frame(keys='["w7", "of nobody"]')
    assert rows(alone) == of("w7")
    assert alone.rdd.getNumPartitions() < PARTITIONS, "only the partitions that have the keys are read"
    assert [row[0] for row in frame(columns="value").agg({"value": "sum"}).collect()] == [500]
    assert frame(columns="value").columns == ["value"]

    then = frame(as_of="before", location=str(tmp_path / "savepoints"))
    assert {row["key"]: row["value"] for row in rows(then)} == at_savepoint

    table = sf.read_state(words.app, "counts", brokers=broker.bootstrap, client_file=client_file)
    assert sorted(table.to_pylist(), key=lambda row: row["key"]) == scanned


def test_the_change_feed_goes_on_where_it_was_across_a_repartition(
    broker: TestBroker, session: SparkSession, tmp_path: Path
) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    words = Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")
    words.feed(40)
    process(words, tmp_path)
    out, checkpoint = str(tmp_path / "changes"), str(tmp_path / "query")

    def follow() -> None:
        frame = change_frame(session, Connection(broker.bootstrap), words.app, "counts", records_max=200)
        query = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        started = query.trigger(availableNow=True).start(out)
        started.awaitTermination()

    def told() -> tuple[dict[bytes, int], list[int]]:
        found = session.read.parquet(out).orderBy("generation", "partition", "offset").collect()
        assert len({(row.generation, row.partition, row.offset) for row in found}) == len(found)
        return {row.key.encode(): row.value for row in found}, [row.generation for row in found]

    follow()
    state, rows_before = told()
    assert state == words.expected
    follow()
    assert told()[1] == rows_before, "nothing comes twice"
    words.feed(40, words=30, seed=2)
    process(words, tmp_path)
    routing = RoutingTable.modulo(PARTITIONS + 1).entry()
    start(cluster, words.app, routing, InProcess(cluster), SystemClock())
    follow()
    state, generations = told()
    assert state == words.expected
    assert generations.count(1) == 30, "the moved state comes once more"
    assert generations.count(0) >= len(rows_before) + 30
    cluster.close()

    options = {"app": words.app, "store": "counts", "brokers": broker.bootstrap}
    with pytest.raises(ConfigError, match="rows"):
        StateSource(options).streamReader(None)
    with pytest.raises(ConfigError, match="as a table"):
        StateSource({**options, "rows": "changes"}).reader(None)
    for wrong in (
        {"rows": "all"},
        {"rows": "changes", "as_of": "x"},
        {"rows": "changes", "records_max": "0"},
    ):
        with pytest.raises(ConfigError):
            StateSource(options | wrong).schema()


APP = """
import stateflow as sf
from stateflow.bootstrap.write import WrittenState

app = sf.App("{app}", partitions=3)
lines = app.topic("{app}-in", value=str)
counts = app.topic("{app}-out", key=str, value=int)
app.stream(lines).flat_map(str.split).key_by(str, name="by-word", key=str).count(name="counts").to(counts)
"""


def test_an_application_starts_from_a_dataframe(
    broker: TestBroker, session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    words = Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")
    (tmp_path / "app.py").write_text(APP.format(app=words.app))
    app, place = f"{tmp_path / 'app.py'}:app", str(tmp_path / "savepoints")
    words.feed(40)
    rows = [(word.decode(), count) for word, count in words.expected.items()]
    frame = session.createDataFrame(rows, "key string, value bigint").repartition(3)

    def write(frame: DataFrame, *, dry_run: bool = False) -> WrittenState:
        tables, brokers = {"counts": frame}, broker.bootstrap
        return sf.write_state(app, tables, to=place, sources="latest", brokers=brokers, dry_run=dry_run)

    wrong = frame.selectExpr("key", "cast(value as string) AS value")
    with pytest.raises(EncodeError, match="does not fit"):
        write(wrong)
    would = write(frame, dry_run=True)
    assert not Path(place).exists(), "neither the wrong rows nor the dry run made a savepoint"
    done = write(frame)
    assert done.rows == would.rows == {"counts": 20}
    assert done.rows_by_task == would.rows_by_task

    words.feed(40, words=30, seed=2)  # the application counts these, the rows are of what was before
    restored = [app, "bootstrap", "--from", place, "--brokers", broker.bootstrap, "--json"]
    assert command(["savepoint", "restore", *restored]) == 0
    state = ["--brokers", broker.bootstrap, "--state-dir", str(tmp_path / "state")]
    assert command(["run", app, "--until-drained", *state]) == 0
    capsys.readouterr()
    table = sf.read_state(words.app, "counts", brokers=broker.bootstrap)
    assert {row["key"].encode(): row["value"] for row in table.to_pylist()} == words.expected
    before, told = dict(rows), [(key.decode(), int.from_bytes(value, "big")) for key, value in words.sent()]
    assert len(set(told)) == len(told)
    assert all(count > before.get(word, 0) for word, count in told), "it goes on from the rows"
    cluster.close()


def test_rows_of_a_stream_become_the_input_of_an_application(
    broker: TestBroker, session: SparkSession, tmp_path: Path
) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    words = Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")
    files, checkpoint = tmp_path / "files", tmp_path / "query"
    files.mkdir()
    kinds = session.createDataFrame([(n, f"n{n}", 10) for n in range(3)], "kind int, name string, price int")
    wanted: Counter[tuple[bytes, bytes]] = Counter()
    writer = TopicWriter(Connection(broker.bootstrap), f"{words.app}-in", f"{words.app}-files")

    def add(name: str) -> None:
        rows = [{"id": f"{name}-{number % 7}", "kind": number % 3, "amount": number} for number in range(30)]
        (files / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))
        values = [json.dumps({"name": f"n{n % 3}", "sum": n * 10}, separators=(",", ":")) for n in range(30)]
        wanted.update(
            (f"{row['id']}".encode(), value.encode()) for row, value in zip(rows, values, strict=True)
        )

    def run(place: Path) -> None:
        rows = session.readStream.schema("id string, kind int, amount int").json(str(files))
        frame = rows.join(broadcast(kinds), "kind").selectExpr(
            "id AS key", "to_json(named_struct('name', name, 'sum', amount * price)) AS value"
        )
        query = frame.writeStream.foreachBatch(writer).option("checkpointLocation", str(place))
        query.trigger(availableNow=True).start().awaitTermination()

    def written() -> Counter[tuple[bytes, bytes]]:
        topic = f"{words.app}-in"
        places = [
            TopicPartition(topic, number) for number in range(cluster.describe([topic])[topic].partitions)
        ]
        wait_until(  # the markers of a transaction follow a moment after its commit
            lambda: cluster.ranges(places) == cluster.ranges(places, stable=False), "the end of transactions"
        )
        found = read_topic(cluster, topic)
        return Counter((record.key, record.value) for batch in found for record in batch.records())

    add("one")
    run(checkpoint)
    add("two")
    run(checkpoint)
    assert written() == wanted
    for file in [*(checkpoint / "commits").glob("*1"), *(checkpoint / "commits").glob(".1*")]:
        file.unlink()  # as if the driver had died between the sink and its note of it
    add("three")
    run(checkpoint)
    assert written() == wanted, "the micro-batch that was run again wrote nothing twice"
    with pytest.raises(StreamingQueryException, match="another checkpoint"):
        run(tmp_path / "another")
    with pytest.raises(ConfigError, match="value"):
        writer(session.createDataFrame([("a", 1)], "key string, value int"), 0)
    cluster.close()


def test_a_stream_ends_in_files_and_in_a_database(
    broker: TestBroker, session: SparkSession, tmp_path: Path
) -> None:
    """The output of an application and the change feed of its state, with a table joined, each row once."""
    cluster = KafkaCluster(broker.bootstrap)
    words = Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")
    brokers, out, checkpoint = {"brokers": broker.bootstrap}, str(tmp_path / "out"), tmp_path / "query"
    records = {"topic": f"{words.app}-out", "key": "string", **brokers}
    database = {"url": f"jdbc:derby:{tmp_path / 'derby'};create=true"}
    database["createTableColumnTypes"] = "word VARCHAR(64), kind VARCHAR(64)"  # Derby compares no CLOB
    kinds = session.createDataFrame(
        [(f"w{n}", f"kind {n % 3}") for n in range(30)], "word string, kind string"
    )

    def rows_in(table: str) -> list[tuple[object, ...]]:
        found = session.read.format("jdbc").options(**database, dbtable=table).load()
        return sorted(tuple(row) for row in found.select("word", "value", "kind").collect())

    def run(writer: DataStreamWriter, place: Path) -> None:
        writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start().awaitTermination()

    def outputs() -> None:
        frame = session.readStream.format("stateflow").options(**records, records_max="300").load()
        run(frame.writeStream.format("parquet").option("path", out), tmp_path / "to-files")

    def totals(app: str = words.app, place: Path = checkpoint) -> None:
        feed = session.readStream.format("stateflow").options(
            app=app, store="counts", rows="changes", **brokers
        )
        joined = feed.load().withColumnRenamed("key", "word").join(broadcast(kinds), "word")
        newest = joined.select("word", "value", "kind", "deleted")
        everything = JdbcWriter(database, "history", name="all")
        last = JdbcWriter(database, "totals", name="newest", keys=["word"])

        def write(frame: DataFrame, batch: int) -> None:
            everything(frame, batch)
            last(frame.groupBy("word", "kind").agg({"value": "max"}).toDF("word", "kind", "value"), batch)

        run(newest.writeStream.foreachBatch(write), place)

    def expected() -> list[tuple[object, ...]]:
        return sorted((w.decode(), n, f"kind {int(w[1:]) % 3}") for w, n in words.expected.items())

    for seed in (1, 2):
        words.feed(40, seed=seed)
        process(words, tmp_path)
        outputs()
        totals()
        assert rows_in("totals") == expected()
    history = rows_in("history")
    assert len(set(history)) == len(history) > len(words.expected)
    for file in [*(checkpoint / "commits").glob("*1"), *(checkpoint / "commits").glob(".1*")]:
        file.unlink()  # as if the driver had died between the sink and its note of it
    totals()
    assert rows_in("history") == history, "the micro-batch that was run again wrote nothing twice"
    with pytest.raises(StreamingQueryException, match="another checkpoint"):
        totals(place=tmp_path / "another")
    with pytest.raises(ConfigError, match="no-such"):
        JdbcWriter(database, "totals", name="x", keys=["no-such"])(kinds, 0)

    told = [(row.key.encode(), bytes(row.value)) for row in session.read.parquet(out).collect()]
    assert Counter(told) == Counter(words.sent())
    now = session.read.format("stateflow").options(**records).load()
    assert {row.key.encode(): row["count"] for row in now.groupBy("key").count().collect()} == words.expected
    cluster.close()
    for wrong in ({"value": "avro"}, {"as_of": "x"}, {"starting": "now"}):
        with pytest.raises(ConfigError):
            StateSource(records | wrong).streamReader(None)


def test_copies_of_jobs_against_a_broker_with_tls_and_passwords(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this module's session; the study `spark-faults` runs them on a cluster, each with a driver of its own."""
    guarded = Guarded(tmp_path)
    client = tmp_path / "client.properties"
    settings = {**guarded.settings("SASL_SSL", "PLAIN"), "bootstrap.servers": guarded.address("SASL_SSL")}
    client.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    app = tmp_path / "app.py"
    app.write_text(APP.format(app="guarded"))
    with guarded.kafka, closing(KafkaCluster(guarded.kafka.bootstrap)) as cluster:
        words = Words.create(cluster, "guarded")
        words.feed(60)
        state = ["--brokers", guarded.kafka.bootstrap, "--state-dir", str(tmp_path / "state")]
        assert command(["run", f"{app}:app", "--until-drained", *state]) == 0
        expected = {word.decode(): count for word, count in words.expected.items()}
        rows = pa.table({"key": list(expected), "value": list(expected.values())})
        pq.write_table(rows, tmp_path / "rows.parquet")
        store, out = ["--app", "guarded", "--store", "counts"], str(tmp_path / "changes")
        table, place = f"counts={tmp_path / 'rows.parquet'}", str(tmp_path / "savepoints")
        for job, arguments in {
            "change-feed": [*store, "--out", out, "--checkpoint-dir", str(tmp_path / "query"), "--until-now"],
            "recover": ["--app", "guarded", "--images", str(tmp_path / "images")],
            "bootstrap": [f"{app}:app", "--table", table, "--to", place, "--sources", "latest"],
        }.items():
            copy = tmp_path / f"my_{job}.py"
            write_copy(job, copy)
            assert runpy.run_path(str(copy))["main"]([*arguments, "--client-config", str(client)]) == 0, job
        read = {"brokers": guarded.kafka.bootstrap, "as_of": "bootstrap", "location": place}
        saved = sf.read_state("guarded", "counts", **read).to_pylist()
    assert {row["key"]: row["value"] for row in saved} == expected
    changes = session.read.parquet(out).orderBy("offset").collect()
    assert {row["key"]: row["value"] for row in changes} == expected
    assert list((tmp_path / "images").rglob("manifests/*.json"))
    conf = session.sparkContext.getConf().getAll()
    assert not [setting for setting in conf if "canary" in str(setting)]
    assert "canary" not in "".join(capsys.readouterr())
    assert "canary" in PASSWORD


def state_scan(
    app: str, broker: TestBroker, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> list[dict[str, Any]]:
    """What the command prints, as rows of the table."""
    arguments = ["state", "scan", "counts", "--app", app, "--brokers", broker.bootstrap]
    capsys.readouterr()
    assert command([*arguments, "--state-dir", str(state_dir), "--limit", "1000", "--json"]) == 0
    found = [
        {"key": row["key"], "value": row["value"], "partition": int(row["task"].rpartition("-")[2])}
        for row in json.loads(capsys.readouterr().out)["rows"]
    ]
    return sorted(found, key=lambda row: str(row["key"]))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: str(row["key"]))
