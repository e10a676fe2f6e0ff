"""How fast a repartition 4 → 6 moves and audits state: in this process, and as Spark tasks.

    python benchmarks/repartition.py --records 2000000 --engine spark --engine local

Starts its own broker, fills a changelog (16-byte keys, 100-byte values, a quarter as many keys as records)
and repartitions it. One JSON object per engine. The broker shares the machine's cores; wall time varies with
what else runs.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager

from stateflow.catalog.names import changelog_topic
from stateflow.clock import SystemClock
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.base import Cluster
from stateflow.log.kafka import connect
from stateflow.routing import RoutingTable
from stateflow.scale.engine import Engine, InProcess
from stateflow.scale.start import start
from stateflow.spark.connection import Connection
from stateflow.spark.engine import SparkEngine
from stateflow.spark.session import spark_session
from stateflow.testing.broker import open_test_broker

BEFORE, AFTER = RoutingTable.modulo(4), RoutingTable.modulo(6)
TRANSACTION_RECORDS = 50_000


def fill(cluster: Cluster, app: str, records: int) -> None:
    """A changelog of random updates."""
    WrittenApp(cluster, app, BEFORE).create()
    topic, rng = changelog_topic(app, "totals"), random.Random(7)
    values = [rng.randbytes(100) for _ in range(TRANSACTION_RECORDS)]
    writer = cluster.writer(f"{app}-fill")
    for _ in range(0, records, TRANSACTION_RECORDS):
        keys = [b"user-%011d" % rng.randrange(records // 4) for _ in range(TRANSACTION_RECORDS)]
        writer.begin()
        writer.send_many(topic, keys, values, partitions=BEFORE.partitions_of(keys))
        writer.commit()
    writer.close()


@contextmanager
def engine(name: str, cluster: Cluster, brokers: str) -> Iterator[Engine]:
    """The engine of that name."""
    if name == "local":
        yield InProcess(cluster, lanes=2)
        return
    with spark_session() as session:
        yield SparkEngine(session, Connection(brokers))


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--engine", action="append", choices=["spark", "local"])
    options = parser.parse_args()
    with open_test_broker() as broker:
        cluster = connect(broker.bootstrap)
        for name in options.engine or ["spark", "local"]:
            fill(cluster, f"bench-{name}", options.records)
            with engine(name, cluster, broker.bootstrap) as chosen:
                outcome = start(cluster, f"bench-{name}", AFTER.entry(), chosen, SystemClock())
            print(
                json.dumps(
                    {
                        "engine": name,
                        "records": outcome.records_read_total,
                        "keys": outcome.keys_total,
                        "records_per_second": round(outcome.records_per_second),
                        "seconds_moving": round(outcome.seconds_moving, 1),
                        "seconds_auditing": round(outcome.seconds_auditing, 1),
                        "seconds_total": round(outcome.seconds_total, 1),
                    }
                )
            )


if __name__ == "__main__":
    main()
