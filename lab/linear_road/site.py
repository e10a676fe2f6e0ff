"""Where a load is driven: a broker, worker processes that run the example as a user would, a feed in real time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import StillRunning
from stateflow.lab.endurance.watching import cpu_seconds, family
from stateflow.lab.linear_road.generator import Record
from stateflow.log.base import Cluster, TopicSpec, Writer
from stateflow.log.kafka import connect
from stateflow.runtime.progress.lag import is_drained

ROOT = Path(__file__).resolve().parents[2]
TARGET = f"{ROOT / 'examples' / 'linear_road' / 'road.py'}:app"
INPUT, ANSWERS = "lr-input", "lr-answers"
PARTITIONS = 2
"""Of both topics, and of each re-key step at the start."""
_REKEYED_STAGES = 3
_IGNORED_TYPE = 4
_BROKER = {
    "log.retention.ms": -1,  # event time begins in 1970
    "log.message.timestamp.before.max.ms": 9_223_372_036_854_775_807,
}
_WORKER_PID = re.compile(r"Worker (w\d+) is process (\d+)\.")
_APP = "linear-road"
_STOP_SECONDS, _SCALE_SECONDS, _WARM_SECONDS_MAX = 60.0, 120.0, 60.0


class Site:
    """The application on a broker of its own."""

    def __init__(self, kafka: EmbeddedKafka, cluster: Cluster, place: Path) -> None:
        self.cluster = cluster
        self._place = place
        self._log = place / "workers.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._cpu_seconds = 0.0
        self._environment = {**os.environ, "STATEFLOW_BROKERS": kafka.bootstrap}
        self._environment["LINEAR_ROAD_TOLLS"] = str(place / "tolls.dat")
        cluster.create([TopicSpec(INPUT, PARTITIONS), TopicSpec(ANSWERS, PARTITIONS)])

    def history(self, historical: dict[tuple[int, int, int], int]) -> None:
        """Write the tolls of the past, which workers read when they start."""
        lines = (",".join(map(str, (*key, toll))) for key, toll in historical.items())
        (self._place / "tolls.dat").write_text("\n".join(lines), encoding="ascii")

    def start(self, workers: int, *more: str) -> None:
        """Start the workers."""
        arguments = ["run", TARGET, "--verbose", "--workers", str(workers), *more]
        arguments += ["--state-dir", str(self._place / "state")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stateflow.cli", *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """What the processes wrote."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def run(self, workers: int, partitions: int, *, seconds: float = 120.0) -> None:
        """Start the workers and wait until all tasks run, of so many partitions behind each re-key step."""
        known = len(self.said)
        self.start(workers)
        tasks = PARTITIONS + _REKEYED_STAGES * partitions
        deadline = time.monotonic() + seconds
        while self.said[known:].count("is running from") < tasks:
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"The tasks have not started within {seconds:.0f} s; see {self._log}.")
            time.sleep(0.1)

    def warm_up(self) -> None:
        """Let event time 0 pass through all stages: each task has had its first transaction then."""
        with closing(self.cluster.writer()) as writer:
            _send_unanswered(writer, 0)
        catalog = ControlTopic(self.cluster, _APP).load()
        deadline = time.monotonic() + _WARM_SECONDS_MAX
        while not is_drained(self.cluster, catalog):
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"The first records have not passed within {_WARM_SECONDS_MAX:.0f} s.")
            time.sleep(0.2)

    def kill_a_worker(self) -> None:
        """SIGKILL for one worker; the supervisor starts another."""
        os.kill(int(_WORKER_PID.findall(self.said)[-1][1]), signal.SIGKILL)

    def check(self) -> None:
        """Raise ``RuntimeError`` when the workers have ended by themselves."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise RuntimeError(f"The workers ended with {self._process.poll()}: {self.said[-2_000:]}")

    def stop(self) -> None:
        """Ask the workers to commit and end."""
        process, self._process = self._process, None
        if process is None:
            return
        members = family(process.pid)
        self._cpu_seconds += sum(map(cpu_seconds, members))
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for member in members:
                os.kill(member, signal.SIGKILL)
            process.wait()

    @property
    def cpu_seconds(self) -> float:
        """CPU of all worker processes so far, those that have ended included, their starts too."""
        process = self._process
        return self._cpu_seconds + (0.0 if process is None else sum(map(cpu_seconds, family(process.pid))))

    def rescale(self, partitions: int) -> None:
        """Move all state to another number of partitions, as a user would; the workers are stopped.

        It waits until the group has forgotten a worker that was killed, which takes a session time-out.
        """
        arguments = ["scale", "start", TARGET, "--partitions", str(partitions), "--engine", "local"]
        deadline = time.monotonic() + _SCALE_SECONDS
        while True:
            done = subprocess.run(
                [sys.executable, "-m", "stateflow.cli", *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SCALE_SECONDS,
            )
            if done.returncode == 0:
                return
            if done.returncode != StillRunning.exit_code or time.monotonic() > deadline:
                raise RuntimeError(f"The repartition ended with {done.returncode}: {done.stderr}")
            time.sleep(1.0)


class Feed(threading.Thread):
    """Sends each second's records when it has come; time runs ``pace`` times as fast as on the road.

    An infinite pace sends as fast as it can.
    """

    def __init__(self, cluster: Cluster, records: Sequence[Record], pace: float) -> None:
        super().__init__(name="feed", daemon=True)
        self._cluster = cluster
        self._records = records
        self._pace = pace
        self.stopped = threading.Event()
        self.sent: dict[int, float] = {}
        """Second of the road → the moment on the monotonic clock at which its records were sent."""
        self.late_seconds_max = 0.0
        """How far the feed itself was behind its clock."""

    def run(self) -> None:
        """Send everything."""
        began: float | None = None
        with closing(self._cluster.writer()) as writer:
            for second, group in groupby(self._records, key=lambda record: record[1]):
                lines = [(record[2], ",".join(map(str, record)).encode()) for record in group]
                began = time.monotonic() - second / self._pace if began is None else began
                due = began + second / self._pace
                if self.stopped.wait(max(0.0, due - time.monotonic())):
                    return
                self.late_seconds_max = max(self.late_seconds_max, time.monotonic() - due)
                self.sent[second] = max(due, time.monotonic())
                writer.send_many(
                    INPUT,
                    [vid.to_bytes(8, "big", signed=True) for vid, _ in lines],
                    [line for _, line in lines],
                    partitions=-1,
                    timestamps_ms=[int(time.time() * 1_000)] * len(lines),
                )
                writer.flush()
            _send_unanswered(writer, second + 2)  # the last second is over

    @property
    def second(self) -> int:
        """The newest second that was sent; −1 before the first."""
        return max(self.sent, default=-1)


def _send_unanswered(writer: Writer, second: int) -> None:
    """A record in each partition that asks what nobody answers: it only moves event time."""
    line = ",".join(map(str, (_IGNORED_TYPE, second, *[-1] * 13))).encode()
    for partition in range(PARTITIONS):
        writer.send(INPUT, None, line, partition=partition, timestamp_ms=int(time.time() * 1_000))
    writer.flush()


@contextmanager
def open_site(place: Path) -> Iterator[Site]:
    """A site in an empty folder; its processes are gone afterwards."""
    with EmbeddedKafka(overrides=_BROKER) as kafka, closing(connect(kafka.bootstrap)) as cluster:
        site = Site(kafka, cluster, place)
        try:
            yield site
        finally:
            site.stop()
