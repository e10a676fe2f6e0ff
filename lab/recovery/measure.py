"""One partition's state rebuilt by one reader in order, and by several jobs over sub-ranges of its offsets."""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.jobs import jobs_of
from stateflow.checkpoint.recovery import run_job
from stateflow.clock import SystemClock
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.base import Cluster
from stateflow.log.kafka import connect
from stateflow.routing import RoutingTable
from stateflow.scale.engine import Engine
from stateflow.scale.processes import Processes
from stateflow.scale.recover import recover
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_TRANSACTION_RECORDS = 50_000
_VALUE_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """What is rebuilt, and by how many."""

    records: int = 8_000_000
    partitions: int = 1
    degrees: tuple[int, ...] = (1, 2)
    spark: bool = False
    """Whether Spark tasks do it; processes of this machine otherwise."""


@dataclass(slots=True)
class RecoveryStudy:
    """What came of it."""

    records: int
    keys: int
    seconds_in_order: float = 0.0
    """An ordinary restore, by one process for each task."""
    seconds_by_degree: dict[int, float] = field(default_factory=dict)
    merging_by_degree: dict[int, float] = field(default_factory=dict)
    equal: bool = True
    """Every recovered database has the content and the position of the ordinary restore, byte for byte."""

    def summary(self) -> dict[str, object]:
        """As JSON has it."""
        first = self.seconds_by_degree.get(1)
        return {
            "records": self.records,
            "keys": self.keys,
            "seconds_in_order": self.seconds_in_order,
            "seconds_by_degree": self.seconds_by_degree,
            "merging_by_degree": self.merging_by_degree,
            "speedup_by_degree": {
                degree: round(first / seconds, 2) if first else None
                for degree, seconds in self.seconds_by_degree.items()
            },
            "equal": self.equal,
        }


def measure_recovery(
    brokers: str, options: RecoveryOptions, folder: Path, tell: Callable[[str], None]
) -> RecoveryStudy:
    """Fill a changelog, rebuild it in each way, and compare the databases."""
    cluster = connect(brokers)
    try:
        app = f"recovery-{random.randrange(1 << 32):x}"  # noqa: S311 - a name nobody has
        _fill(cluster, app, options)
        catalog = ControlTopic(cluster, app).load()
        study = RecoveryStudy(options.records, options.records // 4)
        clock = SystemClock()
        began = clock.monotonic_seconds()
        for job in jobs_of(catalog, cluster.cluster_id, folder / "in-order"):
            run_job(cluster, job, RocksResources(), lambda _: None, lambda: False, clock)
        study.seconds_in_order = round(clock.monotonic_seconds() - began, 2)
        expected = _digests(cluster, catalog, folder / "in-order")
        tell(f"in order: {study.seconds_in_order} s")
        for degree in options.degrees:
            where = folder / f"degree-{degree}"
            with _engine(brokers, degree, spark=options.spark) as engine:
                engine.run(_warm_up, list(range(degree)))
                done = recover(
                    cluster, catalog, engine, clock, scratch=str(folder / "scratch"), state_dir=where
                )
            study.seconds_by_degree[degree] = round(done.seconds_reading + done.seconds_merging, 2)
            study.merging_by_degree[degree] = round(done.seconds_merging, 2)
            study.equal &= _digests(cluster, catalog, where) == expected
            tell(f"{degree} at a time: {study.seconds_by_degree[degree]} s, {done.ranges} parts")
        return study
    finally:
        cluster.close()


def _warm_up(cluster: Cluster, number: int) -> str:
    """Have a process connected before the time counts: a restart of workers finds Spark's executors running, too."""
    return f"{cluster.cluster_id}-{number}"


@contextmanager
def _engine(brokers: str, degree: int, *, spark: bool) -> Iterator[Engine]:
    if not spark:
        with Processes(functools.partial(connect, brokers), degree) as engine:
            yield engine
        return
    from stateflow.spark.connection import Connection
    from stateflow.spark.engine import SparkEngine
    from stateflow.spark.session import SparkSettings, spark_session

    with spark_session(SparkSettings(app_name="recovery", cores=degree)) as session:
        yield SparkEngine(session, Connection(brokers))


def _fill(cluster: Cluster, app: str, options: RecoveryOptions) -> None:
    """A changelog of random updates and some deletions, a quarter as many keys as records."""
    routing = RoutingTable.modulo(options.partitions)
    WrittenApp(cluster, app, routing).create()
    topic, rng = changelog_topic(app, "totals"), random.Random(7)  # noqa: S311 - data to measure with
    values = [rng.randbytes(_VALUE_BYTES) for _ in range(_TRANSACTION_RECORDS)]
    writer = cluster.writer(f"{app}-fill")
    for _ in range(0, options.records, _TRANSACTION_RECORDS):
        keys = [b"user-%011d" % rng.randrange(options.records // 4) for _ in range(_TRANSACTION_RECORDS)]
        changes = [None if rng.random() < 0.05 else value for value in values]
        writer.begin()
        writer.send_many(topic, keys, changes, partitions=routing.partitions_of(keys))
        writer.commit()
    writer.close()


def _digests(cluster: Cluster, catalog: Catalog, state_dir: Path) -> dict[str, str]:
    """Task and store → hash of the position and of all keys and values in order."""
    found = {}
    for job in jobs_of(catalog, cluster.cluster_id, state_dir):
        stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources())
        for store in job.changelogs:
            position = stores.position(store)
            digest = hashlib.sha256(
                b"" if position is None else f"{position.topic_id} {position.offset_next}".encode()
            )
            for key, value in stores.reader(store).scan():
                digest.update(b"%d,%d," % (len(key), len(value)) + key + value)
            found[f"{job.task} {store}"] = digest.hexdigest()
        stores.close()
    return found
