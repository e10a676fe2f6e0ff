"""State as an Arrow table, in this process: columns, keys and partitions chosen. On the memory log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.locations import NO_LOCATIONS, AllowedLocations
from stateflow.clock import ManualClock, SystemClock
from stateflow.errors import CatalogMissing, ConfigError, SavepointMissing, TopicMissing
from stateflow.failpoints import handled
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.query.read import TableRequest, read_table, where
from stateflow.query.snapshot import Snapshot, savepoint_snapshot, store_snapshot
from stateflow.routing import RoutingTable
from stateflow.runtime.worker.prepare import prepare
from stateflow.savepoint.create import create
from stateflow.state.layout import window_key
from tests.sim import counting

PARTITIONS = 3
ROUTING = RoutingTable.modulo(PARTITIONS)
KEYS = [f"key-{number}" for number in range(40)]


@pytest.fixture
def app() -> Iterator[WrittenApp]:
    cluster = MemoryCluster()
    made = WrittenApp(cluster, "shop", ROUTING)
    made.create()
    rng = random.Random(7)
    totals = [(rng.choice(KEYS).encode(), None if rng.random() < 0.2 else b"%d" % n) for n in range(300)]
    made.write_state("totals", totals)
    hours = [(window_key(rng.choice(KEYS).encode(), hour * 3_600_000), b"w%d" % hour) for hour in range(90)]
    made.write_state("hourly", hours)
    made.commit_inputs(dict.fromkeys(range(PARTITIONS), 9))
    yield made
    cluster.close()


def request(store: str = "totals", *columns: str) -> TableRequest:
    return TableRequest(app="shop", store=store, columns=columns)


def test_all_rows_with_the_partition_of_each(app: WrittenApp) -> None:
    table = read_table(app.cluster, request())
    assert table.column_names == ["key", "value", "partition"]
    rows = table.to_pylist()
    assert {row["key"].encode(): row["value"].encode() for row in rows} == app.expected["totals"]
    assert all(row["partition"] == ROUTING.partition_of(row["key"].encode()) for row in rows)
    assert len(table.to_pandas()) == len(rows) == len(app.expected["totals"])


def test_while_the_first_start_has_not_created_the_changelogs_the_error_says_so() -> None:
    """The catalog is there before the topics are: what is missing was never written."""
    clock = ManualClock(1_700_000_000_000)
    cluster = MemoryCluster(clock=clock)
    cluster.create([TopicSpec(counting.SOURCE, 2), TopicSpec(counting.OUTPUT, 3)])
    wanted = TableRequest(app=counting.APP, store=counting.STORE)
    refused: list[CatalogMissing] = []

    def read(point: str) -> None:
        if point == "startup.before_topics":
            with pytest.raises(CatalogMissing, match=r"first start .* is under way") as caught:
                read_table(cluster, wanted)
            refused.append(caught.value)

    with handled(read):
        prepare(cluster, counting.topology(), "exactly-once", 2, clock)
    assert len(refused) == 1
    assert read_table(cluster, wanted).num_rows == 0
    cluster.delete([changelog_topic(counting.APP, counting.STORE, 0)])
    with pytest.raises(TopicMissing):
        read_table(cluster, wanted)
    cluster.close()


def test_only_some_columns(app: WrittenApp) -> None:
    whole = read_table(app.cluster, request("hourly")).to_pylist()
    for columns in (["window_start"], ["value", "key"], ["partition"], ["value"]):
        table = read_table(app.cluster, request("hourly", *columns))
        assert set(table.column_names) == set(columns)
        assert table.to_pylist() == [{name: row[name] for name in table.column_names} for row in whole]
    with pytest.raises(ConfigError, match="no column 'price'"):
        read_table(app.cluster, request("hourly", "price"))


def test_keys_are_read_from_their_partitions_alone(app: WrittenApp) -> None:
    snapshot = store_snapshot(app.cluster, ControlTopic(app.cluster, "shop").load(), "hourly")
    partition = ROUTING.partition_of(b"key-3")
    assert snapshot.of_keys(["key-3"]).partitions == [partition]
    assert snapshot.of_keys(["key-3"]).of_keys(["key-4"]).partitions == []
    assert snapshot.of_partitions([2]).partitions == [2]
    by_producers = replace(snapshot, routing=None)  # a store behind a source: its producers placed the keys
    assert by_producers.of_keys(["key-3"]).partitions == [0, 1, 2]

    everything = read_table(app.cluster, request("hourly")).to_pylist()
    some = ["key-3", "key-5", "of nobody"]
    found = read_table(app.cluster, request("hourly"), keys=some).to_pylist()
    assert found == [row for row in everything if row["key"] in some] != []
    assert read_table(app.cluster, request("hourly"), keys=[]).num_rows == 0


def test_keys_shown_otherwise_than_stored_are_compared_row_by_row(app: WrittenApp) -> None:
    control = ControlTopic(app.cluster, "shop")
    entry = control.load().stores["totals"]
    snapshot = store_snapshot(app.cluster, control.load(), "totals")
    table = replace(snapshot.table, key_codec={"codec": "ordered-float"})
    assert replace(snapshot, table=table).of_keys([1.5]).routing_keys is None
    assert entry.key_codec == {"codec": "string"}
    too_long = replace(snapshot.table, key_codec={"codec": "integer", "bits": 32})
    assert replace(snapshot, table=too_long).of_keys([1 << 40]).routing_keys is None


def test_a_snapshot_travels(app: WrittenApp) -> None:
    snapshot = store_snapshot(app.cluster, ControlTopic(app.cluster, "shop").load(), "hourly")
    arrived = Snapshot.from_json(snapshot.to_json())
    assert arrived.ranges == snapshot.ranges
    assert arrived.routing == snapshot.routing
    assert arrived.table.ddl == snapshot.table.ddl
    assert [*arrived.batches(app.cluster, 0)] == [*snapshot.batches(app.cluster, 0)]


@pytest.mark.parametrize("keys", [None, KEYS[:5]], ids=["all", "some"])
def test_rows_written_again_and_cleaned_before_they_are_read(app: WrittenApp, keys: list[str] | None) -> None:
    """A table of a running application is read some time after it was fixed: no key may be missing meanwhile."""
    catalog = ControlTopic(app.cluster, "shop").load()
    snapshot = store_snapshot(app.cluster, catalog, "totals")
    snapshot = Snapshot.from_json(snapshot.to_json()) if keys is None else snapshot.of_keys(keys)
    for _ in range(2):
        app.write_state("totals", [(key.encode(), b"again") for key in KEYS])
    assert isinstance(app.cluster, MemoryCluster)
    assert app.cluster.compact(snapshot.topic) > 0
    open_writer = app.cluster.writer("torn")
    open_writer.begin()
    open_writer.send(snapshot.topic, b"key-1", b"not committed", partition=1)
    found = [
        (row["key"], row["value"])
        for number in snapshot.partitions
        for batch in snapshot.batches(app.cluster, number)
        for row in batch.to_pylist()
    ]
    assert sorted(found) == sorted((key, "again") for key in keys or KEYS)
    open_writer.abort()
    open_writer.close()


def test_as_of_a_savepoint(app: WrittenApp, tmp_path: Path) -> None:
    before = dict(app.expected["totals"])
    place = str(tmp_path / "savepoints")
    allowed = AllowedLocations([place])
    create(app.cluster, "shop", "monday", place, SystemClock())
    app.write_state("totals", [(b"key-1", b"changed since"), (b"key-new", b"1")])
    catalog = ControlTopic(app.cluster, "shop").load()
    for location in (None, place):
        snapshot = savepoint_snapshot(catalog, "totals", "monday", location=location, allowed=allowed)
        rows = [
            row
            for number in snapshot.partitions
            for batch in snapshot.batches(app.cluster, number)
            for row in batch.to_pylist()
        ]
        assert {row["key"].encode(): row["value"].encode() for row in rows} == before
        one = snapshot.of_keys([rows[0]["key"]])
        assert one.partitions == [rows[0]["partition"]]
    with pytest.raises(ConfigError, match="do not allow"):
        savepoint_snapshot(catalog, "totals", "monday", allowed=NO_LOCATIONS)
    with pytest.raises(SavepointMissing):
        savepoint_snapshot(catalog, "totals", "tuesday", allowed=allowed)


def test_what_is_not_there_is_said(app: WrittenApp) -> None:
    with pytest.raises(ConfigError, match="hourly, recent, totals"):
        read_table(app.cluster, request("nonsense"))
    with pytest.raises(CatalogMissing):
        read_table(app.cluster, TableRequest(app="nobody", store="totals"))


def test_where_to_read_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=secure:9093\nsasl.password=hunter2\n")
    assert where("shop", None, file) == ("secure:9093", {"sasl.password": "hunter2"})
    assert where("shop", "other:9092", file)[0] == "other:9092"
    monkeypatch.setenv("STATEFLOW_BROKERS", "of-the-environment:9092")
    assert where("shop", None, None) == ("of-the-environment:9092", {})
