"""How long a worker takes from its start to its first result: with its disk as it left it, and with an empty one.

The state is as many keys as are asked for, written by the side itself: the work of ``bench latency``, the newest value
per key. One record waits when the process starts; time counts until a reader of committed records has what came of it,
so the start of Python or Java, joining the group and restoring are all in it.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stateflow.errors import JobFailed
from stateflow.lab.bench.latency import KEY_BYTES, LatencyLoad, input_topic, output_topic
from stateflow.lab.bench.latency_study import LatencySide, running
from stateflow.lab.bench.result import OURS, in_turns, medians
from stateflow.log.base import Cluster, Reader, TopicSpec
from stateflow.log.kafka import connect
from stateflow.partitioner import partition_of
from stateflow.record import TopicPartition

_CHUNK_RECORDS = 20_000
_READ_RECORDS, _READ_SECONDS = 20_000, 0.02
_WAIT_SECONDS_MAX = 1_200.0
_FIRST = b"the first record"
assert len(_FIRST) == KEY_BYTES


@dataclass(frozen=True, slots=True)
class RestartLoad:
    """How much state a worker comes back with."""

    keys: int = 1_000_000
    value_bytes: int = 100
    partitions: int = 4
    threads: int = 2
    """Of Kafka Streams."""


def measure_restart(
    load: RestartLoad,
    sides: Sequence[LatencySide],
    brokers: str,
    folder: Path,
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Medians over the rounds, as JSON objects have it. Raises ``JobFailed``."""
    found: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in in_turns(sides, number):
            app_id = f"restart-{side.name}-{number}-{os.getpid()}"
            with closing(connect(brokers)) as cluster:
                figures = _Restarts(load, side, cluster, brokers, app_id, folder / app_id).measured()
            tell(f"round {number + 1}, {side.name}: {figures}")
            found[side.name].append(figures)
    return {
        "sides": medians(found),
        "ratios": {side: _ratios(found[OURS], runs) for side, runs in found.items() if side != OURS},
        "runs": rounds,
        "rounds": found,
    }


def _ratios(ours: Sequence[dict[str, float]], theirs: Sequence[dict[str, float]]) -> dict[str, float]:
    """How many times longer another side takes."""
    return {
        name: round(
            statistics.median(other[name] / own[name] for own, other in zip(ours, theirs, strict=True)), 2
        )
        for name in ("warm_seconds", "empty_disk_seconds")
    }


class _Restarts:
    """One side with topics and a folder of its own."""

    def __init__(
        self, load: RestartLoad, side: LatencySide, cluster: Cluster, brokers: str, app_id: str, place: Path
    ) -> None:
        self._load = load
        self._cluster = cluster
        self._app_id = app_id
        self._place = place
        sent = LatencyLoad(**{name: value for name, value in asdict(load).items() if name != "keys"})
        self._command = side.command(sent, brokers, app_id, place)

    def measured(self) -> dict[str, float]:
        """Make the state, then start twice. Its topics are deleted afterwards."""
        topics = [name(self._app_id) for name in (input_topic, output_topic)]
        self._place.mkdir(parents=True)
        self._cluster.create([TopicSpec(topic, self._load.partitions) for topic in topics])
        try:
            self._fill()
            with running(self._command, self._place) as process:
                self._await_all(process)
            warm_seconds, _ = self._first_result()
            shutil.rmtree(self._place)
            self._place.mkdir()
            empty_seconds, peak_bytes = self._first_result()
        finally:
            shutil.rmtree(self._place, ignore_errors=True)
            own = [topic for topic in self._cluster.list_topics() if topic.startswith(self._app_id)]
            self._cluster.delete(own)
        return {
            "warm_seconds": round(warm_seconds, 2),
            "empty_disk_seconds": round(empty_seconds, 2),
            "empty_disk_rss_bytes": peak_bytes,
        }

    def _fill(self) -> None:
        """One record of each key."""
        topic, padding = input_topic(self._app_id), os.urandom(self._load.value_bytes)
        with closing(self._cluster.writer()) as writer:
            for first in range(0, self._load.keys, _CHUNK_RECORDS):
                rows = range(first, min(self._load.keys, first + _CHUNK_RECORDS))
                keys: list[bytes | None] = [b"%0*d" % (KEY_BYTES, row) for row in rows]
                places = [partition_of(key or b"", self._load.partitions) for key in keys]
                writer.send_many(topic, keys, [padding] * len(keys), partitions=places)
                writer.commit()

    def _await_all(self, process: subprocess.Popen[bytes]) -> None:
        """Until a result of every key is there."""
        seen = bytearray(self._load.keys)
        with closing(self._reader()) as reader:
            deadline = time.monotonic() + _WAIT_SECONDS_MAX
            while sum(seen) < self._load.keys:
                for batch in reader.read(_READ_RECORDS, _READ_SECONDS):
                    for key in batch.keys:
                        seen[int(key or b"")] = 1
                self._check(process, deadline)

    def _first_result(self) -> tuple[float, int]:
        """Seconds from a start until what came of a waiting record can be read, and the process's memory then."""
        topic = input_topic(self._app_id)
        with closing(self._reader(at_end=True)) as reader:
            with closing(self._cluster.writer()) as writer:
                place = partition_of(_FIRST, self._load.partitions)
                writer.send_many(topic, [_FIRST], [os.urandom(self._load.value_bytes)], partitions=[place])
                writer.commit()
            began = time.monotonic()
            with running(self._command, self._place) as process:
                while not reader.read(_READ_RECORDS, _READ_SECONDS):
                    self._check(process, began + _WAIT_SECONDS_MAX)
                return time.monotonic() - began, peak_rss_bytes(process.pid)

    def _reader(self, *, at_end: bool = False) -> Reader:
        topic = output_topic(self._app_id)
        places = [TopicPartition(topic, number) for number in range(self._load.partitions)]
        logs = self._cluster.ranges(places)
        reader = self._cluster.reader()
        reader.assign({place: log.offset_next if at_end else log.offset_first for place, log in logs.items()})
        return reader

    def _check(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise JobFailed(
                f"{self._app_id} gave no result in time; its exit code is {process.returncode}.",
                action="Take fewer keys, or run `stateflow doctor`.",
            )


def peak_rss_bytes(pid: int) -> int:
    """The most memory that a running process ever had, by /proc."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None, "Linux tells it of each process"
    return int(found[1]) << 10
