"""Where one case happens: a broker of its own, an application on it, and the processes that run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.lab.endurance.cases import Endurance, Sent
from stateflow.lab.endurance.watching import family
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.log.reading import read_ranges
from stateflow.record import OffsetRange, TopicPartition

TARGET = "stateflow.lab.endurance.apps:app"
STOP_SECONDS = 60.0
_BROKER = {
    "log.retention.ms": -1,  # the records are of 2023
    "log.message.timestamp.before.max.ms": 9_223_372_036_854_775_807,
}
_RECORDS_PER_TRANSACTION = 20_000
_RUNNING = "is running from"


class Site:
    """One case's application. Its settings are the defaults: what users run."""

    def __init__(self, case: Endurance, kafka: EmbeddedKafka, cluster: Cluster, place: Path) -> None:
        self.case = case
        self.kafka = kafka
        self.cluster = cluster
        self.app = f"endure-{case.name}"
        self.output = f"{self.app}-out"
        self._log = place / f"{case.name}.log"
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        cluster.create(
            [TopicSpec(f"{self.app}-in", case.partitions), TopicSpec(self.output, case.partitions)]
        )
        self._reader = cluster.reader()
        self._read = {TopicPartition(self.output, number): 0 for number in range(case.partitions)}
        self._found: Counter[str] = Counter()

    def feed(self, records: Iterable[Sent]) -> None:
        """Send records, each partition's in order."""
        with closing(self.cluster.writer(f"{self.app}-producer")) as writer:
            for chunk in _chunks(records):
                writer.begin()
                writer.send_many(
                    f"{self.app}-in",
                    [None] * len(chunk),
                    [record.text.encode() for record in chunk],
                    partitions=[record.partition for record in chunk],
                    timestamps_ms=[record.timestamp_ms for record in chunk],
                )
                writer.commit()

    def start(self) -> int:
        """Start the workers; the pid of the process that keeps them, or is the only one."""
        case = self.case
        arguments = [sys.executable, "-m", "stateflow.cli", "run", TARGET, "--verbose"]
        arguments += ["--state-dir", str(self._place / case.name)]
        if case.workers > 1:
            arguments += ["--workers", str(case.workers)]
        said = {
            "STATEFLOW_BROKERS": self.kafka.bootstrap,
            "ENDURANCE_APP": self.app,
            "ENDURANCE_KIND": case.kind,
            "ENDURANCE_PARTITIONS": str(case.partitions),
            "ENDURANCE_SLOW_SECONDS": str(case.slow_seconds),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                arguments,
                env={**os.environ, **said},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True once each task has told that it runs."""
        return self.said.count(_RUNNING) >= self.case.tasks

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it lives."""
        return None if self._process is None else self._process.poll()

    @property
    def said(self) -> str:
        """What the processes wrote."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def stop(self) -> int | None:
        """Ask it to commit and end; its exit code, or None when it did not end in time and was killed."""
        process = self._process
        if process is None:
            return None
        members = family(process.pid)
        process.terminate()
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for member in members:
                _kill(member)
            process.wait()
            return None

    def take_broker_away(self, seconds: float) -> None:
        """Kill the broker, and start it again after so long."""
        self.kafka.nodes[0].kill()
        time.sleep(seconds)
        self.kafka.restart_node(1)

    def results(self) -> Counter[str]:
        """What has come out so far, as it is committed: ``key value`` where the value does not begin with its key.

        Only what is new is read, so that asking often neither takes long nor loads the machine.
        """
        ends = self.cluster.ranges(self._read)
        new = {part: OffsetRange(at, ends[part].offset_next) for part, at in self._read.items()}
        for batch in read_ranges(self._reader, new):
            for key, value in zip(batch.keys, batch.values, strict=True):
                text = (value or b"").decode()
                self._found[text if self.case.kind != "windows" else f"{(key or b'').decode()} {text}"] += 1
        self._read = {part: offsets.offset_next for part, offsets in new.items()}
        return self._found

    def close(self) -> None:
        """End the workers, if they still run, and stop reading."""
        self._reader.close()
        if self.exit_code is None:
            self.stop()


def _chunks(records: Iterable[Sent]) -> Iterator[Sequence[Sent]]:
    iterator = iter(records)
    while chunk := [record for _, record in zip(range(_RECORDS_PER_TRANSACTION), iterator)]:  # noqa: B905
        yield chunk


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has just ended


@contextmanager
def open_site(case: Endurance, place: Path) -> Iterator[Site]:
    """A site for one case; nothing of it is left behind but files in ``place``."""
    with EmbeddedKafka(overrides=_BROKER) as kafka, closing(connect(kafka.bootstrap)) as cluster:
        site = Site(case, kafka, cluster, place)
        try:
            yield site
        finally:
            site.close()
