"""What a restore costs, stage by stage: reading, newest per key, sorting, writing; files against the plain put path.

    python benchmarks/restore.py --brokers localhost:9092 --records 2000000 --keys 400000

Writes its own changelog (16-byte keys, 100-byte values) to a topic that it deletes afterwards. One JSON object on the
last line. Wall time varies with what else runs on the machine; CPU seconds vary less.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stateflow.checkpoint.planner import plan_task
from stateflow.checkpoint.restore import Restoration, RestoreSettings
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.record import TopicPartition
from stateflow.store.base import Change, StorePosition
from stateflow.store.directory import task_directory
from stateflow.store.rocks import RocksResources, RocksTaskStores

TOPIC = "bench-restore-changelog"
PARTITION = TopicPartition(TOPIC, 0)
PUT_ONLY = 1 << 62


@dataclass
class Cost:
    """Seconds of wall time and of this process's CPU, and records per second of wall time."""

    seconds: float
    cpu_seconds: float
    records_per_second: float


def measured(records: int, action: Callable[[], object]) -> Cost:
    """What an action costs that deals with so many records."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    seconds = time.perf_counter() - wall
    return Cost(round(seconds, 3), round(time.process_time() - cpu, 3), round(records / seconds))


def fill(cluster: Cluster, records: int, keys: int) -> str:
    """The topic's id, after writing the changelog in transactions of 100,000."""
    cluster.delete([TOPIC])
    config = {"cleanup.policy": "compact", "compression.type": "producer"}
    info = cluster.create([TopicSpec(TOPIC, 1, config=config)])[TOPIC]
    writer, value, dice = cluster.writer("bench-restore"), bytes(100), random.Random(7)
    for first in range(0, records, 100_000):
        count = min(100_000, records - first)
        run = [b"key-%012d" % dice.randrange(keys) for _ in range(count)]
        writer.begin()
        writer.send_many(TOPIC, run, [value] * count, partitions=0)
        writer.commit()
    writer.close()
    return info.topic_id


def read_all(cluster: Cluster) -> list[tuple[list[bytes], list[bytes]]]:
    """Every record, as the reader gives it."""
    end = cluster.ranges([PARTITION])[PARTITION].offset_next
    reader = cluster.reader()
    reader.assign({PARTITION: 0})
    columns = []
    while reader.position(PARTITION) < end:
        columns += [(batch.keys, batch.values) for batch in reader.read(20_000, 0.2)]
    reader.close()
    return columns


def stages(cluster: Cluster, records: int, root: Path) -> dict[str, Cost]:
    """Each stage alone, over the same records."""
    columns: list[tuple[list[bytes], list[bytes]]] = []
    newest: dict[bytes, bytes] = {}
    changes: list[Change] = []
    stores = RocksTaskStores.open(
        task_directory(root, "b", "c", 0, "s-0"), ["files", "batch", "put"], RocksResources()
    )
    position = StorePosition("t", records)

    def group() -> None:
        for keys, values in columns:
            newest.update(zip(keys, values, strict=True))

    def sort() -> None:
        changes.extend((key, newest[key]) for key in sorted(newest))

    def put_each() -> None:
        put = stores.family("put").put
        for keys, values in columns:
            for key, value in zip(keys, values, strict=True):
                put(key, value)

    costs = {
        "read": measured(records, lambda: columns.extend(read_all(cluster))),
        "newest per key": measured(records, group),
        "sort": measured(records, sort),
        "write as sorted file": measured(records, lambda: stores.load("files", changes, position)),
        "write as sorted batch": measured(
            records, lambda: stores.apply({"batch": changes}, {"batch": position})
        ),
        "put record by record": measured(records, put_each),
    }
    stores.close()
    return costs


def restores(cluster: Cluster, records: int, topic_id: str, root: Path) -> dict[str, Cost]:
    """Whole restores by the executor, with different settings."""
    variants = {
        "restore, as it is": RestoreSettings(),
        "restore, sorted files, epochs of 200 k": RestoreSettings(epoch_records_max=200_000),
        "restore, sorted batches of 200 k": RestoreSettings(
            epoch_records_max=200_000, load_entries_min=PUT_ONLY
        ),
        "restore, sorted files, epochs of 1 M": RestoreSettings(
            epoch_records_max=1_000_000, epoch_bytes_max=512 << 20
        ),
        "restore, batches of 10 k": RestoreSettings(load_entries_min=PUT_ONLY, epoch_records_max=10_000),
    }
    costs = {}
    for number, (name, settings) in enumerate(variants.items()):
        place = task_directory(root, "b", "c", 0, f"r-{number}")
        stores = RocksTaskStores.open(place, ["a"], RocksResources())
        plan = plan_task(cluster, "r-0", {"a": PARTITION}, {TOPIC: topic_id}, stores)
        costs[name] = measured(records, Restoration(cluster, plan, stores, settings=settings).run)
        stores.close()
    return costs


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=400_000)
    options = parser.parse_args()
    cluster = connect(options.brokers)
    root = Path(tempfile.mkdtemp(prefix="bench-restore-"))
    try:
        topic_id = fill(cluster, options.records, options.keys)
        costs = stages(cluster, options.records, root) | restores(cluster, options.records, topic_id, root)
    finally:
        cluster.delete([TOPIC])
        cluster.close()
        shutil.rmtree(root)
    for name, cost in costs.items():
        print(
            f"{name:<38} {cost.seconds:8.2f} s {cost.cpu_seconds:8.2f} CPU s {cost.records_per_second:12,} rec/s"
        )
    print(json.dumps({name: vars(cost) for name, cost in costs.items()}))


if __name__ == "__main__":
    main()
