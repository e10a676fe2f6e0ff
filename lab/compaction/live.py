"""Logs on one live broker, written side by side and watched: how large they grow, and what its cleaner spends on them.

One producer and one sampler serve all of them, so that many logs load a machine little. What was seen is kept as it
was: predictions are put beside it later (:mod:`stateflow.lab.compaction.live_result`), by any version of the model.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.calibration.broker_settings import cleaner_settings
from stateflow.compaction.calibration.cell import (
    Cell,
    broker_process,
    mean_over_time,
    run_cell,
    scratch_topic,
)
from stateflow.compaction.calibration.default_costs import has_client_compiler_only
from stateflow.compaction.calibration.pace import PaceProbe, usual
from stateflow.compaction.calibration.values import Values
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.costs import Pace
from stateflow.compaction.model.streams import RateStep, Stream, Update
from stateflow.compaction.sensing.broker_cpu import broker_cpu
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.lab.compaction.cycles import CleanerUse, Spent, cycles_of, use_of
from stateflow.log.base import Cluster, Writer
from stateflow.log.kafka import connect

SAMPLE_SECONDS = 0.1
_TICK_SECONDS = 0.02
"""Between appends, as the model takes them to come."""
_PACE_EVERY, _SPENT_EVERY = 10, 2
"""Samples."""
_LATE_SECONDS_MAX = 1.0
_WARMING = CleanerSettings(backoff_ms=100, dedupe_buffer_bytes=4 << 20)
_WARMING_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class LiveLog:
    """One log after warming up."""

    name: str
    size_max_bytes: float
    size_mean_bytes: float
    live_end: int
    sizes: tuple[tuple[float, int], ...]
    """(seconds, bytes), from the first record on."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """All logs of one run, and the cleaner that they shared."""

    logs: tuple[LiveLog, ...]
    cleaner: CleanerSettings
    """Of the broker, read back from it."""
    client_compiler: bool
    """The broker's JVM has no server compiler, so passes take several times the CPU."""
    seconds: float
    warm_seconds: float
    late_seconds: float
    """How far the producer fell behind its schedule."""
    spent: tuple[Spent, ...]
    pace: Pace
    """How fast the machine was throughout the run, in the median."""

    @property
    def late(self) -> bool:
        """True when the load was another than its name says."""
        return self.late_seconds > _LATE_SECONDS_MAX

    @property
    def use(self) -> CleanerUse:
        """Of all logs together, by whole turns of the cleaner."""
        times = [seconds for seconds, _ in self.logs[0].sizes]
        together = [
            sum(row) for row in zip(*([size for _, size in log.sizes] for log in self.logs), strict=True)
        ]
        sizes = [*zip(times, map(float, together), strict=True)]
        quiet = self.cleaner.backoff_ms / 2000
        return use_of(cycles_of(sizes, self.spent, self.warm_seconds, quiet), self.spent, self.warm_seconds)


def run_live(
    kafka: EmbeddedKafka,
    cells: Sequence[Cell],
    clock: Clock | None = None,
    *,
    started: Callable[[Sequence[str]], None] = lambda _topics: None,
    sample_seconds: float = SAMPLE_SECONDS,
) -> LiveRun:
    """Write all streams side by side at their own pace and watch their logs; all cells are of one length.

    ``started`` is told the topics, in the order of the cells, before the first record. Looking every
    ``sample_seconds`` takes CPU that cleaners may have to wait for.
    """
    assert len({(cell.stream.seconds, cell.warm_seconds) for cell in cells}) == 1
    clock, warm = clock or SystemClock(), cells[0].warm_seconds
    with ExitStack() as stack:
        cluster = connect(kafka.bootstrap)
        stack.callback(cluster.close)
        admin, sampler_admin = (_admin(stack, kafka.bootstrap) for _ in range(2))
        pid = broker_process(admin, clock)
        topics = [
            stack.enter_context(scratch_topic(cluster, cell.policy, cell.stream.partitions, "live"))
            for cell in cells
        ]
        started(topics)
        watcher = _Watcher(sampler_admin, topics, pid, clock, sample_seconds)
        try:
            late = _produce(cluster, dict(zip(topics, cells, strict=True)), watcher.now)
        finally:
            watcher.stop()
        cleaner = admin.cleaner_settings(next(iter(admin.broker_addresses())))
    return LiveRun(
        logs=tuple(_log(cell, watcher.sizes[topic], warm) for topic, cell in zip(topics, cells, strict=True)),
        cleaner=cleaner,
        client_compiler=has_client_compiler_only(pid),
        seconds=watcher.spent[-1].seconds,
        warm_seconds=warm,
        late_seconds=late,
        spent=tuple(watcher.spent),
        pace=usual(watcher.paces),
    )


def warm_up(kafka: EmbeddedKafka, seconds: float = _WARMING_SECONDS) -> None:
    """Let a broker that has just started clean for a while, so that its compiler has seen what a cleaner does.

    Brokers run for weeks; in the first seconds of a JVM the same pass takes up to several times its CPU time.
    """
    stream = Stream(
        keys=2000, rates=(RateStep(0.0, 4000.0),), seconds=seconds, zipf_exponent=None, value_bytes=(300, 700)
    )
    policy = Policy(segment_ms=100, segment_index_bytes=65_536, dirty_ratio=0.01, file_delete_delay_ms=1000)
    with ExitStack() as stack:
        cluster = connect(kafka.bootstrap)
        stack.callback(cluster.close)
        admin, sampler_admin = (_admin(stack, kafka.bootstrap) for _ in range(2))
        # With the stock buffer a second one would have to fit the heap while threads restart.
        stack.enter_context(cleaner_settings(admin, _WARMING))
        run_cell(cluster, admin, sampler_admin, Cell("warming up", policy, stream, seconds / 2, 0))


def _admin(stack: ExitStack, bootstrap: str) -> ClusterAdmin:
    admin = ClusterAdmin(bootstrap)
    stack.callback(admin.close)
    return admin


def _log(cell: Cell, sizes: Sequence[tuple[float, int]], warm_seconds: float) -> LiveLog:
    counted = [one for one in sizes if one[0] >= warm_seconds]
    newest = {update.key: update.value_bytes for update in cell.stream.updates()}
    return LiveLog(
        name=cell.name,
        size_max_bytes=max(size for _, size in counted),
        size_mean_bytes=mean_over_time(counted),
        live_end=sum(value is not None for value in newest.values()),
        sizes=tuple(sizes),
    )


class _Watcher:
    """Samples the sizes of all topics, and the CPU of the cleaner, in a thread until it is told to stop."""

    def __init__(
        self, admin: ClusterAdmin, topics: Sequence[str], pid: int, clock: Clock, sample_seconds: float
    ) -> None:
        self.sizes: dict[str, list[tuple[float, int]]] = {topic: [] for topic in topics}
        self.spent: list[Spent] = []
        self.paces: list[Pace] = []
        self._admin, self._topics, self._pid, self._clock = admin, topics, pid, clock
        self._sample_seconds = sample_seconds
        self._start = clock.monotonic_seconds()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-watcher", daemon=True)
        self._thread.start()

    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock.monotonic_seconds() - self._start

    def stop(self) -> None:
        """Stop, and wait for the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        probe = PaceProbe()
        for number in itertools.count():
            if self._stop.wait(self._sample_seconds):
                return
            if number % _SPENT_EVERY == 0:
                cpu = broker_cpu(self._pid)
                self.spent.append(Spent(self.now(), cpu.cleaner_seconds, cpu.cleaner_wait_seconds))
            seconds = round(self.now(), 3)
            found = dict.fromkeys(self._topics, 0)
            for replica in self._admin.replica_sizes(self._topics):  # one broker: one replica of each
                found[replica.partition.topic] += replica.size_bytes
            for topic, size in found.items():
                self.sizes[topic].append((seconds, size))
            if number % _PACE_EVERY == 0:
                self.paces.append(probe.now())


def _produce(cluster: Cluster, cells: dict[str, Cell], now: Callable[[], float]) -> float:
    """Write all streams, each at its own pace; returns how many seconds late the latest append was."""
    values = {topic: Values(cell.stream) for topic, cell in cells.items()}
    writer, late = cluster.writer(), 0.0
    try:
        for until, due in _ticks(cells):
            ahead = until - now()
            if ahead > 0:
                time.sleep(ahead)
            late = max(late, -ahead)
            for topic, updates in due.items():
                _send(writer, topic, updates, values[topic])
        writer.commit()
    finally:
        writer.close()
    return late


def _ticks(cells: dict[str, Cell]) -> Iterator[tuple[float, dict[str, list[Update]]]]:
    """What is due at every tick, by topic."""
    streams = [_named(topic, cell.stream) for topic, cell in cells.items()]
    due: defaultdict[str, list[Update]] = defaultdict(list)
    until = _TICK_SECONDS
    for _, topic, update in heapq.merge(*streams, key=lambda row: row[0]):
        while update.seconds >= until:
            yield until, due
            due = defaultdict(list)
            until += _TICK_SECONDS
        due[topic].append(update)
    yield until, due


def _named(topic: str, stream: Stream) -> Iterator[tuple[float, str, Update]]:
    return ((update.seconds, topic, update) for update in stream.updates())


def _send(writer: Writer, topic: str, updates: Sequence[Update], values: Values) -> None:
    keys = [update.key for update in updates]
    bodies = [values.of(update) for update in updates]
    writer.send_many(topic, keys, bodies, partitions=[update.partition for update in updates])
