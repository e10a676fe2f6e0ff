"""The least that moving state through a broker takes: every record read once, the newest of each key sent once.

    python benchmarks/repartition_floor.py --records 1000000 --keys 300000 --own

CPU seconds of this process and of the broker, for reading a changelog into a table of the newest records, and for
writing these in one transaction: no jobs, no shuffle, no routing, no audit. Beside it a whole repartition in this
process, moving and audit included, and with ``--own`` Spark's own offline repartition of as many keys. All in one run,
as CPU seconds of a busy machine are longer than those of an idle one.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from stateflow.catalog.names import changelog_topic
from stateflow.clock import SystemClock
from stateflow.lab.spark_bench.measure import SparkLoad, fill
from stateflow.lab.spark_bench.own_repartition import repartition_own_state
from stateflow.lab.spark_bench.tree_cpu import tree_cpu_seconds
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.log.newest import RecordsSink
from stateflow.log.reading import read_range_into
from stateflow.log.stable_ranges import stable_ranges
from stateflow.native.rows import NativeRows
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale.engine import InProcess
from stateflow.scale.newest_rows import newest_rows
from stateflow.scale.start import start
from stateflow.spark.session import SparkSettings, spark_session
from stateflow.testing.broker import open_test_broker

Figures = dict[str, list[float]]
STORE = "totals"
LITTLE = 20_000


@contextmanager
def counted(name: str, figures: Figures) -> Iterator[None]:
    """CPU seconds of this process, and of the broker, which it has started; wall seconds."""
    wall, own, tree = time.monotonic(), time.process_time(), tree_cpu_seconds()
    yield
    own = time.process_time() - own
    found = {"wall": time.monotonic() - wall, "client": own, "broker": tree_cpu_seconds() - tree - own}
    for part, seconds in found.items():
        figures.setdefault(f"{name}_{part}", []).append(seconds)


def one_round(cluster: Cluster, load: SparkLoad, figures: Figures) -> None:
    """The floor and a repartition, of a new application."""
    app = f"floor-{random.randrange(1 << 32):x}"
    fill(cluster, app, load)
    source, target = TopicPartition(changelog_topic(app, STORE), 0), f"{app}-moved"
    cluster.create([TopicSpec(target, load.partitions_to)])
    rows, table = newest_rows(), RoutingTable.modulo(load.partitions_to)
    assert isinstance(rows, NativeRows), "this measures the native core"
    offsets = stable_ranges(cluster, [source])[source]
    with counted("read", figures):
        for _ in read_range_into(cluster, source, offsets, RecordsSink(rows, offsets.offset_next)):
            pass
    live = [(keys, values, times, table.partitions_of(keys)) for keys, values, times in rows.live()]
    with counted("write", figures), closing(cluster.writer(f"{app}-floor")) as writer:
        writer.begin()
        for keys, values, times_ms, partitions in live:
            writer.send_many(target, keys, [*values], partitions=partitions, timestamps_ms=times_ms)
        writer.commit()
    assert sum(len(keys) for keys, *_ in live) == load.keys, "every key is there"
    with counted("repartition", figures):
        start(cluster, app, table.entry(), InProcess(cluster), SystemClock())


def main() -> None:
    """Measure, and print medians as JSON."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--records", type=int, default=1_000_000)
    asked.add_argument("--keys", type=int, default=300_000)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--own", action="store_true", help="Spark's own repartition, too")
    given = asked.parse_args()
    load, little = (
        SparkLoad(records=records, keys=min(given.keys, records)) for records in (given.records, LITTLE)
    )
    figures: Figures = {}
    with open_test_broker() as broker, closing(connect(broker.bootstrap)) as cluster:
        one_round(cluster, little, {})
        for _ in range(given.rounds):
            one_round(cluster, load, figures)
    if given.own:
        with tempfile.TemporaryDirectory() as folder, spark_session(SparkSettings()) as session:
            for number, keys in enumerate([LITTLE] + [given.keys] * given.rounds):
                place = Path(folder) / str(number)
                own = repartition_own_state(session, place, keys, load.value_bytes, (1, load.partitions_to))
                if number:
                    figures.setdefault("own_wall", []).append(own.seconds)
                    figures.setdefault("own_cpu", []).append(own.cpu_seconds)
    medians = {name: round(statistics.median(each), 2) for name, each in figures.items()}
    print(json.dumps({"records": load.records, "keys": load.keys, "rounds": given.rounds, **medians}))


if __name__ == "__main__":
    main()
