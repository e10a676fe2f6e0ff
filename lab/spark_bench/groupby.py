"""A keyed count by long-running workers on Spark, and by Spark's own `groupBy` with its RocksDB state, on one session.

Spark's side reads the same topic, by this project's source (pyspark has none), in micro-batches of a given size, and
writes no output; and, made as easy as can be, the same records from Parquet without any broker. Ours reads them from
Kafka and commits them with its changelog, exactly-once. No clock runs for the first fifth of the records.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stateflow as sf
from stateflow.errors import JobFailed
from stateflow.lab.bench.latency import LatencyLoad
from stateflow.lab.bench.latency_study import LatencySide, measure_latency
from stateflow.lab.bench.result import OURS
from stateflow.lab.spark_bench.hosted_latency import hosted_command
from stateflow.lab.spark_bench.own_repartition import rocks_state
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.operators.topology.topology import Topology
from stateflow.query.read import TableRequest, read_table
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.runtime.settings import worker_settings
from stateflow.spark.connection import Connection
from stateflow.spark.driver import Pipeline
from stateflow.spark.long_running import LongRunSettings, run_long
from stateflow.spark.session import SparkSettings, spark_session
from stateflow.spark.table import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PEER = "spark-groupby"
FROM_FILES = "spark-groupby-from-files"
_STORE = "counts"
_WARM_SHARE = 5
_LOOK_SECONDS = 0.02
_END_SECONDS_MAX = 600.0
_TRANSACTION_RECORDS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CountLoad:
    """What is counted."""

    records: int = 1_000_000
    keys: int = 100_000
    partitions: int = 4
    value_bytes: int = 100
    micro_batch_records: int = 100_000
    """Of Spark's side: what it takes at once."""
    rounds: int = 1
    cores: int = 2
    latency_seconds: float = 20.0
    commit_min_seconds: float = 0.02
    """Where latency is measured: `commit_interval_min_seconds`, as whoever wants results early sets it."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a side did."""

    records_per_second: float
    counts: dict[bytes, int]


def measure_groupby(
    brokers: str, load: CountLoad, folder: Path, tell: Callable[[str], None]
) -> dict[str, Any]:
    """All figures as JSON has them; a ratio above 1 says that this project is the faster."""
    found: dict[str, list[Counted]] = {OURS: [], PEER: [], FROM_FILES: []}
    with closing(connect(brokers)) as cluster, spark_session(SparkSettings(cores=load.cores)) as session:
        for number in range(load.rounds):
            place = folder / str(number)
            app_id = f"counted-{uuid.uuid4().hex[:8]}"
            _fill(cluster, app_id, load)
            turns: dict[str, Callable[[], Counted]] = {
                OURS: partial(count_here, cluster, brokers, app_id, load, place),
                PEER: partial(count_topic_by_spark, session, brokers, app_id, load, place),
                FROM_FILES: partial(count_files_by_spark, session, load, place),
            }
            names = list(turns)
            for name in (*names[number % 3 :], *names[: number % 3]):
                found[name].append(turns[name]())
            told = {name: round(runs[-1].records_per_second) for name, runs in found.items()}
            tell(f"round {number + 1}, records/s: {told}")
    side = LatencySide(OURS, hosted_command(load.cores))
    sent = LatencyLoad(
        seconds=load.latency_seconds,
        partitions=load.partitions,
        value_bytes=load.value_bytes,
        commit_min_seconds=load.commit_min_seconds,
    )
    latency = measure_latency(sent, [side], brokers, folder, 1, tell)["sides"][OURS]
    del latency["cpu_microseconds_per_record"]  # the driver's alone: the work is done in other processes
    return {
        "work": "spark",
        "vs": PEER,
        "workload": asdict(load),
        "records_per_second": {
            name: [round(each.records_per_second) for each in runs] for name, runs in found.items()
        },
        "ratios": {name: _ratio(found[OURS], runs) for name, runs in found.items() if name != OURS},
        "latency_ms_p50": latency["p50_ms"],
        "latency": latency,
        "same_result": all(
            run.counts == ours.counts
            for runs in found.values()
            for run, ours in zip(runs, found[OURS], strict=True)
        ),
    }


def _ratio(ours: list[Counted], theirs: list[Counted]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return round(statistics.median(one.records_per_second / two.records_per_second for one, two in pairs), 2)


# --- ours ---------------------------------------------------------------------------------------------


def graph(app_id: str, partitions: int) -> Topology:
    """The application, as executors build it."""
    return application(sf.AppOptions(partitions=partitions), app_id).topology()


def application(options: sf.AppOptions, app_id: str) -> sf.App:
    """Counts the records of each key."""
    app = sf.App(app_id, options=options)
    app.stream(app.topic(f"{app_id}-in"), co_partitioned=True).count(name=_STORE)
    return app


def count_here(cluster: Cluster, brokers: str, app_id: str, load: CountLoad, place: Path) -> Counted:
    """By long-running workers in the session, one for each core. Raises ``JobFailed`` when they take too long."""
    app = application(sf.AppOptions(partitions=load.partitions, state_dir=place / "state"), app_id)
    build = partial(graph, app_id, load.partitions)
    pipeline = Pipeline(
        topology=build(), guarantee=app.options.guarantee, partitions=load.partitions, load=build
    )
    stopping, watch = threading.Event(), _Watch(cluster, app_id, load)
    thread = threading.Thread(target=watch.run, args=(stopping,), daemon=True)
    thread.start()
    try:
        settings = LongRunSettings(workers=load.cores)
        run_long(
            pipeline, Connection(brokers), worker_settings(app.options), settings=settings, stopping=stopping
        )
    finally:
        stopping.set()
        thread.join()
    rows = read_table(cluster, TableRequest(app=app_id, store=_STORE)).to_pylist()
    return Counted(watch.rate(), {bytes(row["key"]): row["value"] for row in rows})


class _Watch:
    """Looks at what is committed of the input, and stops the workers when all is."""

    def __init__(self, cluster: Cluster, app_id: str, load: CountLoad) -> None:
        self._cluster = cluster
        self._app = app_id
        self._load = load
        self._looks: list[tuple[float, int]] = []
        """When, and how many records were committed by then; from the first fifth on."""

    def run(self, stopping: threading.Event) -> None:
        """Until all is committed."""
        topic = f"{self._app}-in"
        sources = [TopicPartition(topic, number) for number in range(self._load.partitions)]
        ends = self._cluster.ranges(sources)
        deadline = time.monotonic() + _END_SECONDS_MAX
        warm = sum(log.slots for log in ends.values()) // _WARM_SHARE
        while not stopping.wait(_LOOK_SECONDS) and time.monotonic() < deadline:
            found = self._cluster.committed(self._app, sources, stable=False)
            done = sum(each.offset_next for each in found.values())
            if done >= warm and (not self._looks or done > self._looks[-1][1]):
                self._looks.append((time.monotonic(), done))
            if len(found) == len(sources) and all(
                found[source].offset_next >= log.offset_next - 1 for source, log in ends.items()
            ):
                break
        stopping.set()

    def rate(self) -> float:
        """Records per second between the first look that counts and the last."""
        if len(self._looks) < 2:
            raise JobFailed(
                "the application committed all in one go, or nothing at all.",
                action="measure with more records.",
            )
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        return (last - first) / (ended - began)


# --- Spark's ------------------------------------------------------------------------------------------


def count_topic_by_spark(
    session: SparkSession, brokers: str, app_id: str, load: CountLoad, place: Path
) -> Counted:
    """From the topic that our side reads."""
    register(session)
    options = {"topic": f"{app_id}-in", "brokers": brokers, "records_max": str(load.micro_batch_records)}
    return _counted(
        session, session.readStream.format("stateflow").options(**options).load(), load, place / PEER
    )


def count_files_by_spark(session: SparkSession, load: CountLoad, place: Path) -> Counted:
    """From Parquet files, of which a micro-batch takes as many as there are cores."""
    source = place / "source"
    for number, (keys, values) in enumerate(_chunks(load, load.micro_batch_records)):
        rows = session.createDataFrame(_table(keys, values))
        rows.coalesce(load.cores).write.parquet(str(source / f"batch-{number}"))
    stream = session.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", load.cores)
    return _counted(session, stream.parquet(str(source / "*")), load, place / FROM_FILES)


def _counted(session: SparkSession, stream: DataFrame, load: CountLoad, place: Path) -> Counted:
    """By `groupBy` with the RocksDB provider, in as many state partitions as there are cores."""
    checkpoint = str(place / "checkpoint")
    with rocks_state(session, load.cores):
        writer = stream.groupBy("key").count().writeStream.outputMode("update").format("noop")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        state = session.read.format("statestore").load(checkpoint).selectExpr("key.key", "value.count")
        counts = {bytes(row.key): int(row["count"]) for row in state.collect()}
    measured = progress[max(1, len(progress) // _WARM_SHARE) :]
    if not measured:
        raise JobFailed("all was one micro-batch.", action="measure with more records.")
    seconds = sum(each["durationMs"]["triggerExecution"] for each in measured) / 1000
    return Counted(sum(each["numInputRows"] for each in measured) / seconds, counts)


def _table(keys: list[bytes], values: list[bytes]) -> Any:
    import pyarrow as pa

    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


# --- the records --------------------------------------------------------------------------------------


def _chunks(load: CountLoad, each: int) -> list[tuple[list[bytes], list[bytes]]]:
    """Keys and values, the same for both sides."""
    rng, found = random.Random(11), []  # noqa: S311 - data to measure with
    for first in range(0, load.records, each):
        count = min(each, load.records - first)
        keys = [b"user-%011d" % rng.randrange(load.keys) for _ in range(count)]
        found.append((keys, [b"%0*d" % (load.value_bytes, first + at) for at in range(count)]))
    return found


def _fill(cluster: Cluster, app_id: str, load: CountLoad) -> None:
    topic, routing = f"{app_id}-in", RoutingTable.modulo(load.partitions)
    cluster.create([TopicSpec(topic, load.partitions)])
    with closing(cluster.writer(f"{app_id}-fill")) as writer:
        for keys, values in _chunks(load, _TRANSACTION_RECORDS):
            writer.begin()
            writer.send_many(topic, keys, values, partitions=routing.partitions_of(keys))
            writer.commit()
