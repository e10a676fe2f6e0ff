"""Latency and CPU of an application on the local runner and on Spark: long-running workers and micro-batches.

    python benchmarks/spark_runner.py --runner local --runner long --runner micro-batch --commit-interval 0.05

Starts its own broker. Two stages over Kafka: lines are divided into words, words are counted, each new count is sent
on; exactly-once. Latency is from the time of an input record to the arrival of its output at a read-committed reader.
CPU is that of the runner's processes (for Spark the driver's Python and Java and the Python workers), per million
words, start and stop left out. Every run checks that each word was counted once. One JSON object per runner.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from stateflow.clock import SystemClock
from stateflow.lab.applications.words import Words, topology
from stateflow.log.base import Cluster
from stateflow.log.kafka import connect
from stateflow.record import TopicPartition
from stateflow.runtime.process.launch import run_worker
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.prepare import prepare
from stateflow.testing.broker import open_test_broker
from tests.waiting import wait_until

RUNNERS = ("local", "long", "micro-batch")
PARTITIONS = 4
WORDS_PER_LINE = 5
VOCABULARY = 1000


def measure(cluster: Cluster, brokers: str, runner: str, options: argparse.Namespace) -> dict[str, object]:
    """Run an application for a while; returns its figures."""
    words = Words.create(cluster, f"bench-{runner}-{os.getpid()}")
    prepare(cluster, topology(words.app), "exactly-once", PARTITIONS, SystemClock())
    arrivals = Arrivals(cluster, f"{words.app}-out")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--hosts", runner, "--app", words.app, "--brokers", brokers]
        command += ["--state-dir", folder, "--commit-interval", str(options.commit_interval)]
        process = subprocess.Popen(command)
        try:
            words.feed(20)
            wait_until(lambda: arrivals.total >= 20 * WORDS_PER_LINE, "the first output", seconds=180)
            first_seconds = time.monotonic() - begun
            feed_steadily(words, 5, options.rate)
            arrivals.forget()
            cpu, before = cpu_seconds(process.pid), words.expected.total()
            feed_steadily(words, options.seconds, options.rate)
            wait_until(lambda: arrivals.total >= words.expected.total(), "the last output", seconds=120)
            used, counted = cpu_seconds(process.pid) - cpu, words.expected.total() - before
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
    words.assert_counted_once()
    found = sorted(arrivals.stop())
    return {
        "runner": runner,
        "commit_interval_seconds": options.commit_interval,
        "words_per_second": options.rate * WORDS_PER_LINE,
        "words": counted,
        "latency_ms_p50": round(statistics.median(found)),
        "latency_ms_p95": round(found[len(found) * 95 // 100]),
        "latency_ms_p99": round(found[len(found) * 99 // 100]),
        "cpu_seconds_per_million": round(used * 1e6 / counted, 1),
        "first_output_seconds": round(first_seconds, 1),
    }


def feed_steadily(words: Words, seconds: float, lines_per_second: int) -> None:
    """Lines stamped with the time of their writing, in a write every 10 ms."""
    rng, writer, number = functools.partial(os.urandom, 2 * WORDS_PER_LINE), words.cluster.writer(), 0
    begun = time.monotonic()
    while (elapsed := time.monotonic() - begun) < seconds:
        while number < elapsed * lines_per_second:
            data = rng()
            line = [
                b"w%d" % (int.from_bytes(data[at : at + 2]) % VOCABULARY) for at in range(0, len(data), 2)
            ]
            words.expected.update(line)
            now_ms = round(time.time() * 1000)
            writer.send(f"{words.app}-in", None, b" ".join(line), partition=number % 2, timestamp_ms=now_ms)
            number += 1
        writer.flush()
        time.sleep(0.01)
    writer.close()


class Arrivals:
    """Reads the output, and notes how old it is."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.total = 0
        self._latencies: list[float] = []
        self._reader = cluster.reader()
        self._reader.assign({TopicPartition(topic, 0): 0})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def forget(self) -> None:
        """Begin anew with the ages."""
        self._latencies = []

    def stop(self) -> list[float]:
        """The ages, in ms."""
        self._ended.set()
        self._thread.join()
        self._reader.close()
        return self._latencies

    def _read(self) -> None:
        while not self._ended.is_set():
            for batch in self._reader.read(10_000, 0.05):
                now_ms = time.time() * 1000
                self._latencies += [now_ms - stamped_ms for stamped_ms in batch.timestamps_ms]
                self.total += len(batch)


def cpu_seconds(pid: int) -> float:
    """CPU of a process and all below it that still run."""
    ticks = 0
    for each in (pid, *descendants(pid)):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it ended since it was listed
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> Iterator[int]:
    """Processes below one, by the kernel's list."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for each in threads for child in (each / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield child
        yield from descendants(child)


def host(runner: str, app: str, brokers: str, worker: WorkerSettings) -> None:
    """In a process of its own: run the application until SIGTERM."""
    if runner == "local":
        cluster = connect(brokers)
        run_worker(
            cluster, prepare(cluster, topology(app), "exactly-once", PARTITIONS, SystemClock()), worker
        )
        cluster.close()
        return
    from stateflow.spark.connection import Connection
    from stateflow.spark.driver import Pipeline
    from stateflow.spark.long_running import LongRunSettings, run_long
    from stateflow.spark.runner import run_spark

    load = functools.partial(topology, app)
    pipeline = Pipeline(topology=load(), guarantee="exactly-once", partitions=PARTITIONS, load=load)
    if runner == "long":
        run_long(pipeline, Connection(brokers), worker, settings=LongRunSettings(workers=1))
    else:
        run_spark(pipeline, Connection(brokers), worker)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runner", action="append", choices=RUNNERS, help="may be repeated; all by default")
    parser.add_argument("--rate", type=int, default=400, help="lines per second, of five words each")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--commit-interval", type=float, default=1.0)
    for name in ("--hosts", "--app", "--brokers", "--state-dir"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hosts:
        worker = WorkerSettings(
            state_dir=Path(options.state_dir), commit_interval_seconds=options.commit_interval
        )
        host(options.hosts, options.app, options.brokers, worker)
        return
    with open_test_broker() as broker:
        cluster = connect(broker.bootstrap)
        for runner in options.runner or RUNNERS:
            print(json.dumps(measure(cluster, broker.bootstrap, runner, options)), flush=True)
        cluster.close()


if __name__ == "__main__":
    main()
