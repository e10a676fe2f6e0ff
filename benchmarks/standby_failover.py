"""Fail-over with a standby copy and without: a worker is killed with SIGKILL, and its disk is lost.

    python benchmarks/standby_failover.py --records 1000000 --keys 200000

Two worker processes with disks of their own count records by key on a broker (one of its own, unless ``--brokers``
names one). When all is processed one is killed; the other takes over. Measured from its own log, for both runs: records
read to open the tasks, the time that took, and the time from the kill until everything runs again, the session timeout
included. One JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import stateflow as sf
from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.runtime.progress.lag import is_drained
from stateflow.testing.broker import open_test_broker

ID = os.environ.get("FAILOVER_APP", "failover")
PARTITIONS = 4
WAIT_SECONDS = 600.0
RESTORED = re.compile(r"Task (\S+) was restored in ([\d.]+) s: (\d+) records read over (\d+) offset slots")
PROMOTED = re.compile(r"Task (\S+): its standby copy is promoted")

app = sf.App(ID, partitions=PARTITIONS)
clicks = app.topic(f"{ID}-in", value=sf.Integer, partitions=2)
app.stream(clicks).key_by(lambda number: number, name="by-number", key=sf.Integer).count(name="seen")


@dataclass(frozen=True)
class FailOver:
    """What one kill cost."""

    standby_replicas: int
    tasks_moved: int
    tasks_promoted: int
    records_read: int
    restore_seconds: float
    """The sum over tasks."""
    kill_to_running_seconds: float
    session_timeout_seconds: float

    @property
    def beyond_session_seconds(self) -> float:
        """What the take-over itself took: the session timeout passes before anybody knows of the loss."""
        return round(self.kill_to_running_seconds - self.session_timeout_seconds, 2)


class Process:
    """One worker process and its log."""

    def __init__(self, place: Path, name: str, brokers: str, session_ms: int) -> None:
        self.log = place / f"{name}.log"
        self.state = place / name
        command = [sys.executable, "-m", "stateflow.cli", "run", f"{__file__}:app", "--verbose"]
        environment = {
            **os.environ,
            "FAILOVER_APP": ID,
            "STATEFLOW_BROKERS": brokers,
            "STATEFLOW_STATE_DIR": str(self.state),
            "STATEFLOW_CLIENT__SESSION_TIMEOUT_MS": str(session_ms),
        }
        with self.log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    def said(self, after: int = 0) -> str:
        """Its log from a place on."""
        return self.log.read_text()[after:]

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def fill(cluster: Cluster, records: int, keys: int) -> None:
    """The source, in transactions of 100,000."""
    cluster.create([TopicSpec(f"{ID}-in", 2)])
    dice, writer = random.Random(7), cluster.writer(f"{ID}-fill")
    for first in range(0, records, 100_000):
        values = [struct.pack(">q", dice.randrange(keys)) for _ in range(min(100_000, records - first))]
        writer.begin()
        writer.send_many(
            f"{ID}-in", [None] * len(values), values, partitions=[n % 2 for n in range(len(values))]
        )
        writer.commit()
    writer.close()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll for a condition."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_SECONDS:.0f} s in vain for {what}")
        time.sleep(0.1)


def catalog(cluster: Cluster) -> Catalog:
    """What the workers have written."""
    return ControlTopic(cluster, ID).load()


def running(said: str) -> set[str]:
    """Stateful tasks that a worker runs, from its log."""
    tasks: set[str] = set()
    for line in said.splitlines():
        if found := re.search(r"Task (\S+) is running", line):
            tasks.add(found[1])
        elif found := re.search(r"Task (\S+) was released", line):
            tasks.discard(found[1])
    return {task for task in tasks if task.startswith("by-number")}


@contextmanager
def workers(place: Path, brokers: str, session_ms: int) -> Iterator[tuple[Process, Process]]:
    """Two workers, killed at the end."""
    pair = Process(place, "a", brokers, session_ms), Process(place, "b", brokers, session_ms)
    try:
        yield pair
    finally:
        for worker in pair:
            worker.kill()


def fail_over(cluster: Cluster, brokers: str, replicas: int, session_ms: int, place: Path) -> FailOver:
    """Run, kill, take over, measure."""
    os.environ["STATEFLOW_STANDBY_REPLICAS"] = str(replicas)
    with workers(place, brokers, session_ms) as pair:
        wait_until(lambda: sum(len(running(w.said())) for w in pair) == PARTITIONS, "every task to run")
        wait_until(lambda: is_drained(cluster, catalog(cluster)), "the input to be processed")
        if replicas:
            wait_until(lambda: caught_up(brokers, PARTITIONS), "the standby copies to catch up")
        survivor, victim = sorted(pair, key=lambda worker: len(running(worker.said())))
        lost = running(victim.said())
        before = len(survivor.said())
        victim.kill()
        killed = time.monotonic()
        shutil.rmtree(victim.state)
        wait_until(lambda: len(running(survivor.said())) == PARTITIONS, "the take-over")
        seconds = time.monotonic() - killed
        said = survivor.said(before)
        restored = {task: (float(s), int(n)) for task, s, n, _ in RESTORED.findall(said) if task in lost}
        return FailOver(
            replicas,
            len(lost),
            len(set(PROMOTED.findall(said)) & lost),
            sum(records for _, records in restored.values()),
            round(sum(seconds for seconds, _ in restored.values()), 3),
            round(seconds, 2),
            session_ms / 1000,
        )


def caught_up(brokers: str, copies: int) -> bool:
    """Every copy follows and nothing is left to read."""
    command = [sys.executable, "-m", "stateflow.cli", "workers", "--app", ID, "--brokers", brokers, "--json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    following = [copy for copy in told["copies"] if copy["state"] == "following" and copy["lag_slots"] == 0]
    return len(following) == copies


def main() -> None:
    """Both runs, one after the other, each with an application of its own."""
    global ID
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--session-ms", type=int, default=6_000)
    options = parser.parse_args()
    runs = []
    with ExitStack() as stack:
        brokers = options.brokers or stack.enter_context(open_test_broker("embedded")).bootstrap
        cluster = connect(brokers)
        stack.callback(cluster.close)
        for replicas in (0, 1):
            ID = f"failover-{uuid.uuid4().hex[:6]}"
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-failover-")))
            fill(cluster, options.records, options.keys)
            runs.append(fail_over(cluster, brokers, replicas, options.session_ms, place))
            print(runs[-1], flush=True)
    cold, warm = runs
    print(
        json.dumps(
            {
                "records": options.records,
                "keys": options.keys,
                "without": asdict(cold),
                "with": asdict(warm),
                "beyond_session_seconds": {
                    "without": cold.beyond_session_seconds,
                    "with": warm.beyond_session_seconds,
                },
                "records_per_task_ratio": round(
                    warm.records_read / warm.tasks_moved * cold.tasks_moved / cold.records_read, 5
                ),
                "restore_per_task_ratio": round(
                    warm.restore_seconds / warm.tasks_moved * cold.tasks_moved / cold.restore_seconds, 4
                ),
            }
        )
    )


if __name__ == "__main__":
    main()
