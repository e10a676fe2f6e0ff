"""Many tasks in one worker process: what they take when idle, and how fast they start and work.

    python benchmarks/many_tasks.py --tasks 64 256

For each count an application of one stage with state is run with default settings on an embedded broker (one of its
own, unless ``--brokers`` names one), as ``stateflow run`` does it. Measured from outside: time until all tasks run,
memory, threads, descriptors and CPU while nothing comes, then the time to process and commit records of as many keys as
tasks take. With ``--two-stages`` half of the tasks re-key and half keep state, which shows what event time costs: each
of the U tasks before tells each of the P behind. One JSON object per count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from processes import Taken, taken

import stateflow as sf
from stateflow.catalog.control import ControlTopic
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.runtime.progress.lag import is_drained
from stateflow.testing.broker import open_test_broker

ID = os.environ.get("MANY_TASKS_APP", "many-tasks")
PARTITIONS = int(os.environ.get("MANY_TASKS_PARTITIONS", "4"))
TWO_STAGES = bool(os.environ.get("MANY_TASKS_TWO_STAGES"))
FEED_RECORDS = 10_000
RUNNING = "is running from"

app = sf.App(ID, partitions=PARTITIONS)
numbers = app.topic(f"{ID}-in", key=sf.Integer, value=sf.Integer)
stream = app.stream(numbers, co_partitioned=not TWO_STAGES)
if TWO_STAGES:
    stream = stream.key_by(lambda number: number, name="by-number", key=sf.Integer)
stream.count(name="seen")


class Run:
    """One worker process and its input."""

    def __init__(self, cluster: Cluster, partitions: int, folder: Path, given: argparse.Namespace) -> None:
        self._cluster = cluster
        self._given = given
        self._app = f"many-{partitions}-{uuid.uuid4().hex[:6]}"
        self._partitions = partitions
        self._log = folder / f"{self._app}.log"
        self._tasks = partitions * (2 if given.two_stages else 1)
        cluster.create([TopicSpec(f"{self._app}-in", partitions)])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "stateflow.cli", "run", f"{Path(__file__).resolve()}:app"),
                    *("--verbose", "--state-dir", str(folder / self._app)),
                ],
                env={
                    **os.environ,
                    "STATEFLOW_BROKERS": given.bootstrap,
                    "MANY_TASKS_APP": self._app,
                    "MANY_TASKS_PARTITIONS": str(partitions),
                    "MANY_TASKS_TWO_STAGES": "1" if given.two_stages else "",
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._begun_seconds = time.monotonic()
        self.rss_mb_max = 0.0

    def measured(self) -> dict[str, object]:
        """Start, rest, work."""
        self._wait(lambda: self._log.read_text().count(RUNNING) >= self._tasks)
        started_seconds = time.monotonic() - self._begun_seconds
        before = self._look()
        time.sleep(self._given.idle)
        idle = self._look()
        self._feed()
        fed_seconds = time.monotonic()
        catalog = ControlTopic(self._cluster, self._app).load()
        self._wait(lambda: is_drained(self._cluster, catalog))
        drained_seconds = time.monotonic() - fed_seconds
        after = self._look()
        return {
            "tasks": self._tasks,
            "all_running_seconds": round(started_seconds, 1),
            "idle_rss_mb": idle.rss_mb,
            "idle_growth_mb": round(idle.rss_mb - before.rss_mb, 1),
            "threads": idle.threads,
            "descriptors": idle.descriptors,
            "idle_cpu_seconds_per_minute": round(
                (idle.cpu_seconds - before.cpu_seconds) * 60 / self._given.idle, 1
            ),
            "records": self._given.records,
            "drained_seconds": round(drained_seconds, 1),
            "work_cpu_seconds": round(after.cpu_seconds - idle.cpu_seconds, 1),
            "rss_mb_max": self.rss_mb_max,
        }

    def _feed(self) -> None:
        with closing(self._cluster.writer()) as writer:
            for first in range(0, self._given.records, FEED_RECORDS):
                rows = range(first, min(self._given.records, first + FEED_RECORDS))
                keys = [row % (50 * self._partitions) for row in rows]
                writer.send_many(
                    f"{self._app}-in",
                    [sf.Integer.encode(key) for key in keys],
                    [sf.Integer.encode(key) for key in keys],
                    partitions=[key % self._partitions for key in keys],
                )
                writer.commit()

    def _look(self) -> Taken:
        now = taken(self._process.pid)
        self.rss_mb_max = max(self.rss_mb_max, now.rss_mb)
        return now

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._given.seconds_max
        while not is_done():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                print(self._log.read_text()[-3_000:], file=sys.stderr)
                raise SystemExit(f"the worker ended with {code}" if code is not None else "it takes too long")
            self._look()
            time.sleep(0.25)

    def close(self) -> None:
        """End the process."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Measure each count that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to look at idle tasks")
    parser.add_argument("--two-stages", action="store_true")
    parser.add_argument("--seconds-max", type=float, default=900.0, help="for each phase")
    parser.add_argument("--brokers", help="embedded (default), docker, or host:port")
    given = parser.parse_args()
    with ExitStack() as stack:
        broker = stack.enter_context(open_test_broker(given.brokers))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given.bootstrap = broker.bootstrap
        cluster = stack.enter_context(closing(connect(broker.bootstrap)))
        for tasks in given.tasks:
            run = Run(cluster, tasks // (2 if given.two_stages else 1), folder, given)
            with closing(run):
                print(json.dumps(run.measured()), flush=True)


if __name__ == "__main__":
    main()
