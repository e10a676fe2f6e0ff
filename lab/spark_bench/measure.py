"""Move, recover and snapshot of one application's state, each beside plain PySpark, in one warm Spark session."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateflow.catalog.names import changelog_topic
from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.position import InputPosition
from stateflow.clock import SystemClock
from stateflow.lab.applications.written import STORES, WrittenApp
from stateflow.lab.bench.result import bytes_digest
from stateflow.lab.spark_bench.own_repartition import OwnRepartition, repartition_own_state
from stateflow.lab.spark_bench.plain import newest, writing
from stateflow.lab.spark_bench.tree_cpu import tree_cpu_seconds
from stateflow.log.base import Cluster, TopicSpec, Writer
from stateflow.log.kafka import connect
from stateflow.log.stable_ranges import stable_ranges
from stateflow.query.snapshot import store_snapshot
from stateflow.record import OffsetRange, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale.generation import load_catalog
from stateflow.scale.reading import live_state
from stateflow.scale.recover import recover
from stateflow.scale.start import Outcome, start
from stateflow.spark.connection import Connection
from stateflow.spark.engine import SparkEngine
from stateflow.spark.session import SparkSettings, spark_session
from stateflow.spark.table import snapshot_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STORE = "totals"
_TRANSACTION_RECORDS = 50_000
_WARM_RECORDS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkLoad:
    """What is moved, recovered and written."""

    records: int = 1_000_000
    keys: int = 250_000
    partitions_from: int = 1
    partitions_to: int = 5
    value_bytes: int = 100
    rounds: int = 1
    cores: int = 2
    warms_up: bool = True
    """False for who wants to see that all ways come to the same, and no figures."""


@dataclass(slots=True)
class Sums:
    """Seconds of each round by what was done, and whether all came to the same."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)
    """Of the whole tree of processes, the broker's among them if it is this one's."""
    digests: set[str] = field(default_factory=set)

    def add(self, name: str, seconds: float) -> None:
        """One round's."""
        self.seconds.setdefault(name, []).append(seconds)

    @contextmanager
    def cpu_of(self, name: str) -> Iterator[None]:
        """Count the CPU seconds of a block."""
        before = tree_cpu_seconds()
        yield
        self.cpu_seconds.setdefault(name, []).append(tree_cpu_seconds() - before)

    def median(self, name: str) -> float:
        """Of all rounds."""
        return statistics.median(self.seconds[name])


def measure_spark(brokers: str, load: SparkLoad, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """All figures as JSON has them. A ratio above 1 says that this project is the faster."""
    sums, connection = Sums(), Connection(brokers)
    own: list[OwnRepartition] = []
    with closing(connect(brokers)) as cluster, spark_session(SparkSettings(cores=load.cores)) as session:
        engine = SparkEngine(session, connection)
        engine.run(_warm_up, list(range(2 * load.cores)))
        # Whoever comes first would pay for what Spark compiles and loads: all of it is done once on little.
        little = replace(load, records=_WARM_RECORDS, keys=min(load.keys, _WARM_RECORDS // 4))
        if load.warms_up:
            _round(cluster, engine, session, connection, little, folder / "warm-up", Sums())
        for number in range(load.rounds):
            own.append(_round(cluster, engine, session, connection, load, folder / str(number), sums))
            told = ", ".join(f"{name} {seconds[-1]:.1f} s" for name, seconds in sums.seconds.items())
            tell(f"round {number + 1}: {told}")
    return _figures(load, sums, own[-1].keys)


def _round(
    cluster: Cluster,
    engine: SparkEngine,
    session: SparkSession,
    connection: Connection,
    load: SparkLoad,
    place: Path,
    sums: Sums,
) -> OwnRepartition:
    """Everything once, on an application of its own."""
    app = f"spark-bench-{random.randrange(1 << 32):x}"  # noqa: S311 - a name nobody has
    fill(cluster, app, load)
    _ours(cluster, engine, session, connection, app, load, place, sums)
    _plain(cluster, session, connection, app, load, place, sums)
    numbers = load.partitions_from, load.partitions_to
    own = repartition_own_state(session, place / "own", load.keys, load.value_bytes, numbers)
    sums.add("own_repartition", own.seconds)
    sums.cpu_seconds.setdefault("own_repartition", []).append(own.cpu_seconds)
    return own


def _figures(load: SparkLoad, sums: Sums, own_keys: int) -> dict[str, Any]:
    names = ("move", "recover", "snapshot", "plain_move", "plain_snapshot")
    keys_per_second = {
        "move": load.keys / sums.median("move"),
        "move_audited": load.keys / sums.median("move_audited"),
        "own_repartition": own_keys / sums.median("own_repartition"),
    }
    own = keys_per_second["own_repartition"]
    return {
        "records": load.records,
        "keys": load.keys,
        "partitions": [load.partitions_from, load.partitions_to],
        "cores": load.cores,
        "runs": load.rounds,
        "seconds": {name: round(sums.median(name), 2) for name in sums.seconds},
        "cpu_seconds": {name: round(statistics.median(all_), 2) for name, all_ in sums.cpu_seconds.items()},
        "records_per_second": {name: round(load.records / sums.median(name)) for name in names},
        "keys_per_second": {name: round(rate) for name, rate in keys_per_second.items()},
        "ratios": {
            "move_to_plain": round(sums.median("plain_move") / sums.median("move"), 2),
            "recover_to_plain": round(sums.median("plain_snapshot") / sums.median("recover"), 2),
            "snapshot_to_plain": round(sums.median("plain_snapshot") / sums.median("snapshot"), 2),
            "move_to_own_repartition": round(keys_per_second["move"] / own, 2),
            "move_audited_to_own_repartition": round(keys_per_second["move_audited"] / own, 2),
        },
        "same_result": len(sums.digests) == 1,
    }


def _warm_up(cluster: Cluster, number: int) -> str:
    """Have Python workers started and connected before the time counts."""
    return f"{cluster.cluster_id}-{number}"


def fill(cluster: Cluster, app: str, load: SparkLoad) -> None:
    """A new application's changelogs, of so many records and keys."""
    routing = RoutingTable.modulo(load.partitions_from)
    WrittenApp(cluster, app, routing).create()
    topic, rng = changelog_topic(app, _STORE), random.Random(7)  # noqa: S311 - data to measure with
    with closing(cluster.writer(f"{app}-fill")) as writer:
        for first in range(0, load.records, _TRANSACTION_RECORDS):
            count = min(_TRANSACTION_RECORDS, load.records - first)
            # Every key once, so that the number of keys is the one that is named; then any.
            numbers = [
                at if at < load.keys else rng.randrange(load.keys) for at in range(first, first + count)
            ]
            keys = [b"user-%011d" % number for number in numbers]
            values = [rng.randbytes(load.value_bytes // 2).hex().encode() for _ in range(count)]
            writer.begin()
            writer.send_many(topic, keys, values, partitions=routing.partitions_of(keys))
            _end_commit(writer, app, first // _TRANSACTION_RECORDS, load.partitions_from)
            writer.commit()


def _end_commit(writer: Writer, app: str, sequence: int, partitions: int) -> None:
    """As tasks end their commits: without these records whoever looks for the newest one reads the whole log."""
    record = CommitRecord(0, sequence, 0, InputPosition()).encode()
    for store in STORES:
        for partition in range(partitions):
            writer.send(changelog_topic(app, store.name), COMMIT_KEY, record, partition=partition)


def _ours(
    cluster: Cluster,
    engine: SparkEngine,
    session: SparkSession,
    connection: Connection,
    app: str,
    load: SparkLoad,
    place: Path,
    sums: Sums,
) -> None:
    catalog, clock = load_catalog(cluster, app), SystemClock()
    with sums.cpu_of("recover"):
        done = recover(
            cluster, catalog, engine, clock, scratch=str(place / "images"), images=str(place / "images")
        )
    sums.add("recover", done.seconds_reading + done.seconds_merging)
    began = time.monotonic()
    out = str(place / "snapshot")
    with sums.cpu_of("snapshot"):
        snapshot_rows(session, connection, store_snapshot(cluster, catalog, _STORE)).write.parquet(out)
    sums.add("snapshot", time.monotonic() - began)
    rows = session.read.parquet(out).select("key", "value").collect()
    sums.digests.add(bytes_digest({row.key.encode(): row.value.encode() for row in rows}))
    routing = RoutingTable.modulo(load.partitions_to).entry()
    with sums.cpu_of("move_audited"):
        outcome: Outcome = start(cluster, app, routing, engine, clock)
    sums.add("move", outcome.seconds_moving)
    sums.add("move_audited", outcome.seconds_total)
    sums.digests.add(_digest(cluster, changelog_topic(app, _STORE, 1), load.partitions_to))


def _plain(
    cluster: Cluster,
    session: SparkSession,
    connection: Connection,
    app: str,
    load: SparkLoad,
    place: Path,
    sums: Sums,
) -> None:
    logs = _logs(cluster, changelog_topic(app, _STORE), load.partitions_from)
    began = time.monotonic()
    with sums.cpu_of("plain_snapshot"):
        newest(session, connection, logs).write.parquet(str(place / "plain"))
    sums.add("plain_snapshot", time.monotonic() - began)
    target = f"{app}-plain"
    cluster.create([TopicSpec(target, load.partitions_to)])
    began = time.monotonic()
    write = writing(connection, target, RoutingTable.modulo(load.partitions_to))
    with sums.cpu_of("plain_move"):
        newest(session, connection, logs).foreachPartition(write)
    sums.add("plain_move", time.monotonic() - began)
    sums.digests.add(_digest(cluster, target, load.partitions_to))


def _logs(cluster: Cluster, topic: str, partitions: int) -> dict[TopicPartition, OffsetRange]:
    return stable_ranges(cluster, [TopicPartition(topic, number) for number in range(partitions)])


def _digest(cluster: Cluster, topic: str, partitions: int) -> str:
    entries: dict[bytes, bytes] = {}
    for source, offsets in _logs(cluster, topic, partitions).items():
        for state in live_state(cluster, source, offsets):
            entries |= state
    return bytes_digest(entries)
