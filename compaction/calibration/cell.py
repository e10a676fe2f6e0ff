"""One measured run: a stream of updates into a topic under one policy, on a real broker, beside its prediction."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.calibration.pace import PaceProbe, usual
from stateflow.compaction.calibration.values import Values
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.costs import Pace
from stateflow.compaction.model.streams import Stream, Update
from stateflow.compaction.sensing.broker_cpu import BrokerCpu, broker_cpu
from stateflow.compaction.sensing.measure import changelog_bytes, only_local
from stateflow.compaction.sensing.measurement import SizeSample
from stateflow.compaction.sensing.restore_probe import RestoreProbe, probe_restore
from stateflow.compaction.settings.knobs import NEVER_MS
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.errors import ConfigError
from stateflow.log.base import Cluster, TopicSpec, Writer

SAMPLE_SECONDS = 0.1
_PACE_SECONDS = 0.01
_PACE_EVERY = 10
"""Samples."""
_DRAIN_SECONDS_MAX = 30.0
_DRAIN_QUIET_SECONDS = 1.0
_LISTED_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Cell:
    """What to run: a stream under a policy, and how often to restore the log that results."""

    name: str
    policy: Policy
    stream: Stream
    warm_seconds: float = 15.0
    """Not counted: the live keys build up, the broker compiles its hot loops."""
    restores: int = 3


@dataclass(frozen=True, slots=True)
class CellResult:
    """What one run showed, after warming up."""

    name: str
    seconds: float
    size_mean_bytes: float
    size_max_bytes: float
    cleaner_cores: float
    request_cores: float
    """Request and network threads: what appends cost, rolling included."""
    broker_cores: float
    cleaner_wait_cores: float
    """Seconds per second that cleaner threads were ready and had no core: much of it, and the run is disturbed."""
    records_end: int
    live_end: int
    size_end_bytes: int
    restore_seconds: tuple[float, ...]
    late_seconds: float
    """How far the producer fell behind its schedule; a run that is late measured another rate."""
    sizes: tuple[SizeSample, ...]
    pace: Pace
    """How fast the machine was throughout the run, in the median."""


class _Sampler:
    """Samples the size of a topic in a thread until it is told to stop."""

    def __init__(self, admin: ClusterAdmin, topic: str, clock: Clock) -> None:
        self.samples: list[SizeSample] = []
        self.paces: list[Pace] = []
        self._admin, self._topic, self._clock = admin, topic, clock
        self._stop = threading.Event()
        self._start = clock.monotonic_seconds()
        self._thread = threading.Thread(target=self._run, name="size-sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        probe = PaceProbe()
        for number in itertools.count():
            if self._stop.wait(SAMPLE_SECONDS):
                return
            seconds = self._clock.monotonic_seconds() - self._start
            self.samples.append(SizeSample(round(seconds, 3), changelog_bytes(self._admin, self._topic)))
            if number % _PACE_EVERY == 0:
                self.paces.append(probe.now())

    def stop(self) -> None:
        """Stop, and wait for the thread."""
        self._stop.set()
        self._thread.join()


@contextmanager
def scratch_topic(cluster: Cluster, policy: Policy, partitions: int, purpose: str) -> Iterator[str]:
    """A compacted topic for the time of the block, under a name of its own."""
    topic = f"stateflow-{purpose}-{uuid.uuid4().hex[:10]}"
    config = {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        **{name: value for name, value in policy.to_config().items() if value != str(NEVER_MS)},
    }
    cluster.create([TopicSpec(topic, partitions, 1, config)])
    try:
        yield topic
    finally:
        cluster.delete([topic])


def run_cell(
    cluster: Cluster,
    admin: ClusterAdmin,
    sampler_admin: ClusterAdmin,
    cell: Cell,
    clock: Clock | None = None,
    *,
    started: Callable[[str], None] = lambda _topic: None,
    finished: Callable[[], None] = lambda: None,
) -> CellResult:
    """Run one cell on a scratch topic: takes the stream's time and the restores.

    ``sampler_admin`` is a connection of its own, used by the sampling thread. ``started`` is told the topic before
    the first record, ``finished`` is called after the last, whatever happens. Raises ``ConfigError`` when the
    broker is not one process on this machine: its CPU could not be measured.
    """
    clock = clock or SystemClock()
    pid = broker_process(admin, clock)
    with scratch_topic(cluster, cell.policy, cell.stream.partitions, "study") as topic:
        sampler = _Sampler(sampler_admin, topic, clock)
        started(topic)
        try:
            cpu, seconds, late = _produce(cluster, topic, cell, pid, clock)
        finally:
            sampler.stop()
            finished()
        _freeze(admin, topic, cell.policy)
        probes = [probe_restore(cluster, topic, clock=clock) for _ in range(max(1, cell.restores))]
        return _result(cell, cpu, seconds, late, sampler, probes, changelog_bytes(admin, topic))


def broker_process(admin: ClusterAdmin, clock: Clock) -> int:
    """The process of the one local broker. Raises ``ConfigError`` when there is no such process.

    On a busy machine a broker may miss its heartbeats and be listed nowhere for a moment: that is waited for.
    """
    deadline = clock.monotonic_seconds() + _LISTED_SECONDS_MAX
    while not (addresses := admin.broker_addresses()) and clock.monotonic_seconds() < deadline:
        time.sleep(SAMPLE_SECONDS)
    pid = only_local(addresses)
    if pid is None:
        raise ConfigError(
            "The CPU of this broker cannot be measured from here.",
            action="Use a single local broker, for example that of `stateflow up`.",
        )
    return pid


def _produce(
    cluster: Cluster, topic: str, cell: Cell, pid: int, clock: Clock
) -> tuple[BrokerCpu, float, float]:
    """Write the stream at its own pace; returns broker CPU and time after warming up, and how late it ran."""
    values = Values(cell.stream)
    writer = cluster.writer()
    start, late = clock.monotonic_seconds(), 0.0
    warm: tuple[BrokerCpu, float] | None = None
    due: list[Update] = []
    try:
        for update in cell.stream.updates():
            due.append(update)
            ahead = update.seconds - (clock.monotonic_seconds() - start)
            if ahead < _PACE_SECONDS and len(due) < 1000:
                continue
            _send(writer, topic, due, values)
            due.clear()
            if ahead > 0:
                time.sleep(ahead)
            late = max(late, -ahead)
            if warm is None and update.seconds >= cell.warm_seconds:
                warm = broker_cpu(pid), clock.monotonic_seconds()
        _send(writer, topic, due, values)
        writer.commit()
        warm = warm or (broker_cpu(pid), start)
        return broker_cpu(pid) - warm[0], clock.monotonic_seconds() - warm[1], late
    finally:
        writer.close()


def _send(writer: Writer, topic: str, updates: list[Update], values: Values) -> None:
    if not updates:
        return
    keys = [update.key for update in updates]
    bodies = [values.of(update) for update in updates]
    writer.send_many(topic, keys, bodies, partitions=[update.partition for update in updates])


def _freeze(admin: ClusterAdmin, topic: str, policy: Policy) -> None:
    """Keep the log as it is: a ratio of 1 is never exceeded; then wait for a pass that already runs."""
    frozen = replace(policy, dirty_ratio=1.0, segment_ms=604_800_000)
    admin.alter_topic(topic, {**frozen.changes_from(policy), "max.compaction.lag.ms": None})
    quiet, size, started = time.monotonic(), -1, time.monotonic()
    while time.monotonic() - quiet < _DRAIN_QUIET_SECONDS and time.monotonic() - started < _DRAIN_SECONDS_MAX:
        now = changelog_bytes(admin, topic)
        quiet, size = (quiet if now == size else time.monotonic()), now
        time.sleep(SAMPLE_SECONDS)


def mean_over_time(sizes: Sequence[tuple[float, float]]) -> float:
    """Of (seconds, bytes), as long as each was seen: on a busy machine samples are rarer while a pass runs."""
    if len(sizes) < 2:
        return sizes[0][1]
    area = sum((later - at) * (size + then) / 2 for (at, size), (later, then) in itertools.pairwise(sizes))
    return area / (sizes[-1][0] - sizes[0][0])


def _result(
    cell: Cell,
    cpu: BrokerCpu,
    seconds: float,
    late: float,
    sampler: _Sampler,
    probes: list[RestoreProbe],
    size_end: int,
) -> CellResult:
    samples = sampler.samples
    counted = [one for one in samples if one.seconds >= cell.warm_seconds]
    return CellResult(
        name=cell.name,
        seconds=seconds,
        size_mean_bytes=mean_over_time([(one.seconds, one.size_bytes) for one in counted]),
        size_max_bytes=max(one.size_bytes for one in counted),
        cleaner_cores=cpu.cleaner_seconds / seconds,
        request_cores=cpu.request_seconds / seconds,
        broker_cores=cpu.total_seconds / seconds,
        cleaner_wait_cores=cpu.cleaner_wait_seconds / seconds,
        records_end=probes[0].records,
        live_end=probes[0].live_keys,
        size_end_bytes=size_end,
        restore_seconds=tuple(probe.seconds for probe in probes)[: cell.restores],
        late_seconds=late,
        sizes=tuple(samples),
        pace=usual(sampler.paces),
    )
