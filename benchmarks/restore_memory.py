"""Peak memory of a process that restores one task, or several side by side, from a broker.

    python benchmarks/restore_memory.py --records 600000 --value-bytes 100 --limits-mb 256 1024 --restores 1 2

Each restore has two stores of ``--records`` records each and runs in a thread of one child process, with the shares
of that limit; printed is what the child's resident memory rose by at most (``resource.getrusage``), and the time taken.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from stateflow.checkpoint.planner import plan_task
from stateflow.checkpoint.restore import Restoration, RestoreSettings
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaOptions, connect
from stateflow.memory import memory_shares
from stateflow.record import TopicPartition
from stateflow.store.directory import task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
from stateflow.testing.broker import open_test_broker

LOGS = {store: TopicPartition(f"restored-{store}-changelog", 0) for store in ("left", "right")}
CHUNK = 20_000


def fill(bootstrap: str, records: int, value_bytes: int) -> None:
    """Two changelogs of distinct keys."""
    with closing(connect(bootstrap)) as cluster, closing(cluster.writer()) as writer:
        cluster.create(
            [TopicSpec(log.topic, 1, config={"cleanup.policy": "compact"}) for log in LOGS.values()]
        )
        value = b"v" * value_bytes
        for log in LOGS.values():
            for first in range(0, records, CHUNK):
                rows = range(first, min(records, first + CHUNK))
                keys = [b"%016d" % row for row in rows]
                writer.send_many(log.topic, keys, [value] * len(rows), partitions=0)
                writer.commit()


def restore(bootstrap: str, limit_bytes: int, restores: int) -> None:
    """What the child does."""
    shares = memory_shares(limit_bytes)
    resources = RocksResources.within(shares)
    settings = RestoreSettings(epoch_bytes_max=shares.restore_bytes_each(restores) // 2)
    queues = KafkaOptions.within(shares, restores)
    with tempfile.TemporaryDirectory() as folder, closing(connect(bootstrap, options=queues)) as cluster:
        ids = {
            name: info.topic_id for name, info in cluster.describe(log.topic for log in LOGS.values()).items()
        }
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun_seconds = time.monotonic()

        def one(number: int) -> None:
            place = task_directory(Path(folder), "app", cluster.cluster_id, 0, f"task-{number}")
            stores = RocksTaskStores.open(place, LOGS, resources)
            plan = plan_task(cluster, f"task-{number}", LOGS, ids, stores)
            Restoration(cluster, plan, stores, settings=settings).run()
            stores.close()

        threads = [threading.Thread(target=one, args=(number,)) for number in range(restores)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun_seconds
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {
        "limit_mb": limit_bytes >> 20,
        "restores": restores,
        "peak_rss_mb": peak_kb >> 10,
        "rose_by_mb": (peak_kb - before_kb) >> 10,
        "share_mb": shares.restore_bytes >> 20,
        "seconds": round(seconds, 1),
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    """Fill a broker, then restore from it in child processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--limits-mb", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--restores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--brokers", help="embedded (default), docker, or host:port")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        restore(given.child[0], int(given.child[1]) << 20, int(given.child[2]))
        return
    with open_test_broker(given.brokers) as broker:
        fill(broker.bootstrap, given.records, given.value_bytes)
        for limit_mb in given.limits_mb:
            for restores in given.restores:
                child = [broker.bootstrap, str(limit_mb), str(restores)]
                subprocess.run([sys.executable, __file__, "--child", *child], check=True)


if __name__ == "__main__":
    main()
