"""How late results are: from sending a record to the moment when a reader of committed records has what came of it.

A value carries the time at which it was sent; the sender and the reader are this process, and each side is another.
Sides run one after the other, in an order that turns from round to round.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from stateflow.errors import JobFailed
from stateflow.lab.bench.latency import KEY_BYTES, LatencyLoad, input_topic, output_topic
from stateflow.lab.bench.peer_settings import latency_streams_settings
from stateflow.lab.bench.result import OURS, in_turns, medians
from stateflow.lab.bench.side import side_environment
from stateflow.log.base import TopicSpec, Writer
from stateflow.log.kafka import connect
from stateflow.log.kafka.settings import KafkaOptions
from stateflow.partitioner import partition_of
from stateflow.record import RecordBatch, TopicPartition

_STAMP = struct.Struct(">q")
_TICK_SECONDS = 0.002
_READ_SECONDS = 0.05
_CAUGHT_UP_SECONDS = 2.0
"""A side has started, and is through with what was sent meanwhile, when a result of each partition is younger."""
_START_SECONDS_MAX = 120.0
_END_SECONDS_MAX = 60.0
_PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


Command = Callable[[LatencyLoad, str, str, Path], list[str]]
"""By load, brokers, application id and folder for state."""


@dataclass(frozen=True, slots=True)
class LatencySide:
    """A program that does the work: ``command`` is given the load, and runs until standard input ends."""

    name: str
    command: Command


def our_command(shared_writers: int) -> Command:
    """This project's side."""

    def command(load: LatencyLoad, brokers: str, app_id: str, place: Path) -> list[str]:
        told = replace(load, shared_writers=shared_writers).encode()
        return [sys.executable, "-m", "stateflow.lab.bench.latency", told, brokers, str(place), app_id]

    return command


def streams_command(java: Sequence[str]) -> Command:
    """Kafka Streams, by the command that ``java_peer.compiled`` gives."""

    def command(load: LatencyLoad, brokers: str, app_id: str, place: Path) -> list[str]:
        told = json.loads(load.encode()) | {"brokers": brokers, "app": app_id, "state_dir": str(place)}
        told["settings"] = latency_streams_settings(load.threads, load.commit_seconds)
        return [*java, json.dumps(told)]

    return command


def measure_latency(
    load: LatencyLoad,
    sides: Sequence[LatencySide],
    brokers: str,
    folder: Path,
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Medians over the rounds, as JSON objects have it; of each side all rounds, too. Raises ``JobFailed``."""
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in in_turns(sides, number):
            app_id = f"latency-{side.name}-{number}-{os.getpid()}"
            figures = _measured(load, side, brokers, app_id, folder / app_id)
            tell(f"round {number + 1}, {side.name}: {figures}")
            found[side.name].append(figures)
    ratios = {
        side: statistics.median(
            theirs["p50_ms"] / ours["p50_ms"] for ours, theirs in zip(found[OURS], runs, strict=True)
        )
        for side, runs in found.items()
        if side != OURS
    }
    return {"sides": medians(found), "ratios": ratios, "runs": rounds, "rounds": found}


def _measured(load: LatencyLoad, side: LatencySide, brokers: str, app_id: str, place: Path) -> dict[str, Any]:
    topics = [name(app_id) for name in (input_topic, output_topic)]
    place.mkdir(parents=True)
    with closing(connect(brokers)) as cluster:
        cluster.create([TopicSpec(topic, load.partitions) for topic in topics])
        try:
            with running(side.command(load, brokers, app_id, place), place) as process:
                return _read_results(brokers, load, app_id, process)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            cluster.delete([topic for topic in cluster.list_topics() if topic.startswith(app_id)])


@contextmanager
def running(command: list[str], place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A side, ended by the end of its standard input. What it says goes to a file, to be shown if it fails."""
    said = place.parent / f"{place.name}.log"
    with (
        said.open("wb") as out,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=side_environment(), cwd=place.parent
        ) as process,
    ):
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            code = process.wait(_END_SECONDS_MAX)
        except BaseException:
            process.kill()
            raise
    if code:
        raise JobFailed(
            f"A side of the benchmark ended with code {code}: {said.read_text(errors='replace')[-1500:]}",
            action="Run `stateflow doctor`; if nothing is amiss there, report this text.",
        )


def _cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """What a running process has taken, by /proc."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Latencies in milliseconds that half, 95 % and 99 % of the results do not exceed; of at least one."""
    ordered = sorted(seconds)
    return {
        name: round(1000 * ordered[ceil(share * len(ordered)) - 1], 1) for name, share in _PERCENTILES.items()
    }


class _Sending:
    """Sends at an even rate on a thread of its own, from when it is made until it is closed."""

    def __init__(self, brokers: str, load: LatencyLoad, topic: str) -> None:
        self._load = load
        self._topic = topic
        self._cluster = connect(brokers, options=KafkaOptions(linger_ms=0))
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sending")
        self._sent = self._pool.submit(self._run)

    def close(self) -> None:
        """Stop; raises what sending raised."""
        self._ended.set()
        try:
            self._sent.result()
        finally:
            self._pool.shutdown()
            self._cluster.close()

    def _run(self) -> None:
        with closing(self._cluster.writer()) as writer:
            writer.begin()
            self._send_until_ended(writer)
            writer.commit()

    def _send_until_ended(self, writer: Writer) -> None:
        load, draw = self._load, random.Random(5)
        names = [b"%0*d" % (KEY_BYTES, number) for number in range(load.keys)]
        padding = bytes(load.value_bytes - KEY_BYTES - _STAMP.size)
        began, sent = time.monotonic(), 0
        while not self._ended.wait(_TICK_SECONDS):
            due = int((time.monotonic() - began) * load.rate) - sent
            keys = [draw.choice(names) for _ in range(due)]
            stamp = _STAMP.pack(time.monotonic_ns())
            values = [draw.choice(names) + stamp + padding for _ in keys]
            places = [partition_of(key, load.partitions) for key in keys]
            if keys:
                writer.send_many(self._topic, keys, values, partitions=places)
            sent += due


def _read_results(
    brokers: str, load: LatencyLoad, app_id: str, process: subprocess.Popen[bytes]
) -> dict[str, Any]:
    """Send to a side that runs, and read what it makes of it, from some time after it has caught up."""
    found: list[float] = []
    topic = output_topic(app_id)
    with closing(connect(brokers)) as cluster, closing(cluster.reader()) as reader:
        reader.assign({TopicPartition(topic, number): 0 for number in range(load.partitions)})
        with closing(_Sending(brokers, load, input_topic(app_id))):
            began = time.monotonic()
            counts_from = ends = float("inf")
            cpu_seconds = 0.0
            start = Start(load)
            # On a machine that is overloaded nothing may have come by then: what comes first is late, and counts.
            while (now := time.monotonic()) < ends or (not found and now < ends + _END_SECONDS_MAX):
                batches = {
                    batch.source.partition: _stamps(batch) for batch in reader.read(load.rate, _READ_SECONDS)
                }
                stamps = [stamp for each in batches.values() for stamp in each]
                now = time.monotonic()
                if counts_from == float("inf"):
                    _check_answers(process, now - began, app_id)
                    if start.is_over(batches, now):
                        counts_from = now + load.warm_seconds
                        ends = counts_from + load.seconds
                elif now >= counts_from:
                    cpu_seconds = cpu_seconds or _cpu_seconds(process)
                    found += [now - stamp / 1e9 for stamp in stamps]
            taken = _cpu_seconds(process) - cpu_seconds
    if not found:
        raise JobFailed(
            f"{app_id} gave no results in {load.seconds:.0f} s.", action="measure longer, or at another rate."
        )
    return {
        "results": len(found),
        **percentiles(found),
        "cpu_microseconds_per_record": round(1e6 * taken / (load.rate * load.seconds), 1),
    }


class Start:
    """When every partition that records go to has had a timely result: tasks do not begin all at once."""

    def __init__(self, load: LatencyLoad) -> None:
        names = (b"%0*d" % (KEY_BYTES, number) for number in range(load.keys))
        self._late = {partition_of(name, load.partitions) for name in names}

    def is_over(self, stamps_ns: Mapping[int, Sequence[int]], now_seconds: float) -> bool:
        """Whether it is, with the times of sending of what has just been read of each partition."""
        for partition, stamps in stamps_ns.items():
            if stamps and now_seconds - max(stamps) / 1e9 < _CAUGHT_UP_SECONDS:
                self._late.discard(partition)
        return not self._late


def _stamps(batch: RecordBatch) -> list[int]:
    return [_STAMP.unpack_from(value, KEY_BYTES)[0] for value in batch.values if value is not None]


def _check_answers(process: subprocess.Popen[bytes], waited_seconds: float, app_id: str) -> None:
    if process.poll() is not None or waited_seconds > _START_SECONDS_MAX:
        raise JobFailed(
            f"{app_id} gave no timely result in {waited_seconds:.0f} s, its exit code is {process.returncode}.",
            action="Run `stateflow doctor`; if nothing is amiss there, report this text.",
        )
