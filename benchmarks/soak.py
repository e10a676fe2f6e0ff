"""A busy worker over a long time: what grows in its process, and of what kind it is.

    python benchmarks/soak.py --minutes 30 --rate 2000 --keys 20000 --output soak.csv

One worker with default settings counts records of a bounded set of keys behind a re-key step (with ``--windows`` per
key and ten seconds), on an embedded broker (one of its own, unless ``--brokers`` names one); another process sends them
at a steady rate. Every ``--every`` seconds
a line is written: resident memory; what the C allocator has in use and what it holds free; blocks of Python's own
allocator; RocksDB's block cache, memtables and open tables; entries of read caches. With ``--objects`` the
kinds of Python objects that became more are named at the end, with ``--trace`` the lines that allocated them (slow).
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gc
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from processes import taken

import stateflow as sf
from stateflow.clock import SystemClock
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaOptions, connect
from stateflow.runtime.process.launch import run_worker
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.worker.prepare import prepare
from stateflow.store.generations import ReadCache
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
from stateflow.testing.broker import open_test_broker

SOURCE, OUTPUT = "soak-in", "soak-out"
PARTITIONS = 4


class _Mallinfo(ctypes.Structure):
    """glibc's ``mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    ]


def allocator() -> dict[str, float]:
    """MB that glibc's malloc has in use, mapped for large blocks, and holds free, over all arenas."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _Mallinfo
    found = library.mallinfo2()
    return {
        "malloc_used_mb": found.uordblks / 2**20,
        "malloc_mapped_mb": found.hblkhd / 2**20,
        "malloc_free_mb": found.fordblks / 2**20,
    }


def rocks() -> dict[str, float]:
    """MB of RocksDB's parts, and entries of the read caches, over all that there are in this process."""
    seen: dict[str, float] = dict.fromkeys(
        ("block_cache_mb", "memtables_mb", "tables_mb", "table_files", "read_cache_mb"), 0.0
    )
    for thing in gc.get_objects():
        if isinstance(thing, RocksResources):
            seen["block_cache_mb"] += thing.cache.get_usage() / 2**20
            seen["memtables_mb"] += thing.write_buffers.get_usage() / 2**20
        elif isinstance(thing, ReadCache):
            seen["read_cache_mb"] += thing.size_bytes / 2**20
        elif isinstance(thing, RocksTaskStores) and thing.is_open:
            for store in thing.stores:
                family: Any = thing.family(store)
                found = family.property_int_value("rocksdb.estimate-table-readers-mem")
                seen["tables_mb"] += (found or 0) / 2**20
            seen["table_files"] += len(list(thing.directory.database.glob("*.sst")))
    return seen


def feed(bootstrap: str, rate: int, keys: int, stop: Any) -> None:
    """Send records of bounded keys, steadily; a process of its own."""
    draw = random.Random(7)
    with closing(connect(bootstrap)) as cluster, closing(cluster.writer()) as writer:
        due_seconds = time.monotonic()
        while not stop.is_set():
            rows = [draw.randrange(keys) for _ in range(max(1, rate // 10))]
            writer.send_many(
                SOURCE,
                [None] * len(rows),
                [sf.Integer.encode(row) for row in rows],
                partitions=[row % PARTITIONS for row in rows],
            )
            writer.commit()
            due_seconds += 0.1
            time.sleep(max(0.0, due_seconds - time.monotonic()))


def kinds() -> Counter[str]:
    """How many Python objects there are of each type."""
    return Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())


class Sampler:
    """Looks at this process every now and then, from a thread."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._begun_seconds = time.monotonic()
        self._stopped = threading.Event()
        self._before: Counter[str] = Counter()
        self._lines: Any = None

    def run(self) -> None:
        """Write a line until it is time, then stop the worker as Ctrl-C does."""
        with Path(self._given.output).open("w", newline="") as file:
            out: csv.DictWriter[str] | None = None
            while time.monotonic() - self._begun_seconds < self._given.minutes * 60:
                self._stopped.wait(self._given.every)
                row = self._row()
                if out is None:
                    out = csv.DictWriter(file, list(row))
                    out.writeheader()
                out.writerow(row)
                file.flush()
                self._compare()
        self._tell()
        os.kill(os.getpid(), 2)

    def _row(self) -> dict[str, float]:
        now = taken(os.getpid())
        found: dict[str, float] = {
            "seconds": time.monotonic() - self._begun_seconds,
            "rss_mb": now.rss_mb,
            "cpu_seconds": now.cpu_seconds,
            "threads": now.threads,
            "descriptors": now.descriptors,
            **allocator(),
            "python_blocks": float(sys.getallocatedblocks()),
            **rocks(),
        }
        return {name: round(value, 2) for name, value in found.items()}

    def _compare(self) -> None:
        """Once it is warm, remember what there is."""
        if time.monotonic() - self._begun_seconds < self._given.minutes * 60 / 3:
            return
        if self._given.objects and not self._before:
            self._before = kinds()
        if self._given.trace and self._lines is None:
            self._lines = tracemalloc.take_snapshot()

    def _tell(self) -> None:
        if self._given.objects:
            more = kinds()
            more.subtract(self._before)
            print("objects that became more:", more.most_common(15), file=sys.stderr)
        if self._given.trace:
            for line in tracemalloc.take_snapshot().compare_to(self._lines, "lineno")[:25]:
                print(line, file=sys.stderr)


def application(folder: Path, *, windows: bool) -> sf.App:
    """Counts by key, told with each change; or by key and window, told when it closes."""
    options = sf.AppOptions(state_dir=folder, partitions=PARTITIONS)
    app = sf.App("soak", options=options)
    numbers = app.topic(SOURCE, value=sf.Integer)
    counts = app.topic(OUTPUT, key=sf.Integer, value=sf.Integer)
    stream = app.stream(numbers).key_by(lambda number: number, name="by-number", key=sf.Integer)
    if windows:
        per_window = stream.window(sf.Tumbling(timedelta(seconds=10)), emit="on_close")
        per_window.count(name="seen").map(lambda count: count).to(counts)
    else:
        stream.count(name="seen").to(counts)
    return app


def main() -> None:
    """Run the worker in this process, in its main thread."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=2_000, help="records per second")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--windows", action="store_true")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two lines")
    parser.add_argument("--output", default="soak.csv")
    parser.add_argument("--objects", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--brokers", help="embedded (default), docker, or host:port")
    given = parser.parse_args()
    if given.trace:
        tracemalloc.start()
    with ExitStack() as stack:
        broker = stack.enter_context(open_test_broker(given.brokers))
        app = application(Path(stack.enter_context(tempfile.TemporaryDirectory())), windows=given.windows)
        settings = worker_settings(app.options)
        queues = KafkaOptions.within(
            settings.memory, settings.restore_threads, settings.commit_interval_seconds
        )
        cluster = stack.enter_context(closing(connect(broker.bootstrap, options=queues)))
        cluster.create([TopicSpec(SOURCE, PARTITIONS), TopicSpec(OUTPUT, PARTITIONS)])
        wiring = prepare(cluster, app.topology(), app.options.guarantee, PARTITIONS, SystemClock())
        spawned = multiprocessing.get_context("spawn")
        stop = spawned.Event()
        feeder = spawned.Process(target=feed, args=(broker.bootstrap, given.rate, given.keys, stop))
        feeder.start()
        threading.Thread(target=Sampler(given).run, name="sampler", daemon=True).start()
        try:
            run_worker(cluster, wiring, settings)
        finally:
            stop.set()
            feeder.join()


if __name__ == "__main__":
    main()
