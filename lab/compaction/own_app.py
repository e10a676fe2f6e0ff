"""An application of ours with the study's load: its changelog compacted by hand, or trimmed behind images.

The application runs in a process of its own, as `stateflow run` would start it; started as a module it is that process:
python -m stateflow.lab.compaction.own_app localhost:9092 /tmp/state source [image-seconds /tmp/images]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import stateflow as sf
from stateflow.catalog.names import changelog_topic
from stateflow.clock import Clock, SystemClock
from stateflow.compaction.calibration.values import Values
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.streams import Stream
from stateflow.compaction.sensing.broker_cpu import BrokerCpu, broker_cpu
from stateflow.compaction.sensing.measure import changelog_bytes
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.lab.compaction.cycles import Spent, cycles_of, use_of
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.process.launch import run_worker
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.worker.prepare import prepare

_APP, _SOURCE, _STEP = "study-own", "study-own-source", "newest"
_SAMPLE_SECONDS, _FEED_SECONDS = 0.1, 0.02
_START_SECONDS_MAX = 60.0
_TURN_SECONDS = 1.0
"""Drops of the log that lie closer together belong to one turn of the cleaner."""


class Newest(sf.Operator[bytes, bytes, bytes]):
    """The newest value of each key: every record is an update of state."""

    value: sf.Value[bytes] = sf.state(default=b"")

    def on_record(self, value: bytes, ctx: sf.Context[bytes]) -> None:  # noqa: ARG002 - an operator's signature
        """Keep it."""
        self.value.set(value)


CHANGELOG = TopicPartition(changelog_topic(_APP, f"{_STEP}-value", 0), 0)


@dataclass(frozen=True, slots=True)
class OwnRun:
    """What the changelog of the application and the broker showed after warming up; CPU in cores."""

    cleaner_cores: float
    scheduler_cores: float
    """Of the threads that delete segments behind a trimmed log, and do other housekeeping."""
    request_cores: float
    log_records_max: int
    """Most offsets between the beginning of the changelog and its end."""
    size_max_bytes: int
    changelog_records_per_second: float


def run_own(
    kafka: EmbeddedKafka,
    stream: Stream,
    warm_seconds: float,
    *,
    by_hand: Policy | None = None,
    image_seconds: float | None = None,
    clock: Clock | None = None,
) -> OwnRun:
    """Run the application for the length of the stream: compacted as a person set it, or trimmed behind images."""
    assert (by_hand is None) != (image_seconds is None)
    clock = clock or SystemClock()
    with ExitStack() as stack:
        cluster = connect(kafka.bootstrap)
        stack.callback(cluster.close)
        admin = ClusterAdmin(kafka.bootstrap)
        stack.callback(admin.close)
        cluster.create([TopicSpec(_SOURCE, 1, 1, {})])
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(_application(kafka.bootstrap, place, image_seconds))
        _wait_for_changelog(cluster, clock)
        if by_hand is not None:
            admin.alter_topic(CHANGELOG.topic, {**by_hand.changes_from(Policy())})
        seen = _watched(cluster, admin, kafka.pids[0], stream, clock)
    return _own_run(seen, warm_seconds, cleaned=by_hand is not None)


@contextmanager
def _application(bootstrap: str, place: Path, image_seconds: float | None) -> Iterator[None]:
    arguments = [
        bootstrap,
        str(place / "state"),
        *([] if image_seconds is None else [str(image_seconds), str(place / "images")]),
    ]
    process = subprocess.Popen([sys.executable, "-m", __spec__.name, *arguments])
    try:
        yield
    finally:
        process.terminate()
        process.wait(_START_SECONDS_MAX)


def _wait_for_changelog(cluster: KafkaCluster, clock: Clock) -> None:
    deadline = clock.monotonic_seconds() + _START_SECONDS_MAX
    while CHANGELOG.topic not in cluster.describe([CHANGELOG.topic]):
        assert clock.monotonic_seconds() < deadline, "the application did not start"
        time.sleep(_SAMPLE_SECONDS)


class _Seen(NamedTuple):
    """One look at the changelog and at the broker."""

    seconds: float
    cpu: BrokerCpu
    log: OffsetRange
    size_bytes: int


def _watched(
    cluster: KafkaCluster, admin: ClusterAdmin, pid: int, stream: Stream, clock: Clock
) -> list[_Seen]:
    start = clock.monotonic_seconds()
    feeding = threading.Thread(target=_feed, args=(cluster, stream, clock, start), name="feed")
    feeding.start()
    seen = []
    while feeding.is_alive():
        time.sleep(_SAMPLE_SECONDS)
        now, log = clock.monotonic_seconds() - start, cluster.ranges([CHANGELOG])[CHANGELOG]
        seen.append(_Seen(now, broker_cpu(pid), log, changelog_bytes(admin, CHANGELOG.topic)))
    feeding.join()
    return seen


def _own_run(seen: Sequence[_Seen], warm_seconds: float, *, cleaned: bool) -> OwnRun:
    counted = [one for one in seen if one.seconds >= warm_seconds]
    first, last = counted[0], counted[-1]
    seconds, used = last.seconds - first.seconds, last.cpu - first.cpu
    spent = [Spent(one.seconds, one.cpu.cleaner_seconds, one.cpu.cleaner_wait_seconds) for one in seen]
    sizes = [(one.seconds, float(one.size_bytes)) for one in seen]
    cycles = cycles_of(sizes, spent, warm_seconds, _TURN_SECONDS) if cleaned else []
    return OwnRun(
        cleaner_cores=use_of(cycles, spent, warm_seconds).cores,
        scheduler_cores=used.scheduler_seconds / seconds,
        request_cores=used.request_seconds / seconds,
        log_records_max=max(one.log.slots for one in counted),
        size_max_bytes=max(one.size_bytes for one in counted),
        changelog_records_per_second=(last.log.offset_next - first.log.offset_next) / seconds,
    )


def _feed(cluster: KafkaCluster, stream: Stream, clock: Clock, start: float) -> None:
    values, writer = Values(stream), cluster.writer()
    until = _FEED_SECONDS
    try:
        for update in stream.updates():
            while update.seconds >= until:
                time.sleep(max(0.0, until - (clock.monotonic_seconds() - start)))
                until += _FEED_SECONDS
            writer.send(_SOURCE, update.key, values.of(update), partition=0)
        writer.commit()
    finally:
        writer.close()


def main(arguments: Sequence[str]) -> None:
    """Run the application until it is told to stop."""
    bootstrap, state_dir, *images = arguments
    options = sf.AppOptions(
        brokers=bootstrap,
        state_dir=Path(state_dir),
        partitions=1,
        commit_interval_seconds=1.0,
        images=images[1] if images else None,
        image_interval_seconds=float(images[0]) if images else 600.0,
        flush_interval_seconds=min(30.0, float(images[0]) / 2) if images else 30.0,
        trim=bool(images),
        images_restorable=1,
    )
    app = sf.App(_APP, options=options)
    source = app.topic(_SOURCE, key=bytes, value=bytes)
    app.stream(source, co_partitioned=True).process(Newest, name=_STEP)
    cluster = connect(bootstrap)
    try:
        trim_to = options.trim_to
        wiring = prepare(cluster, app.topology(), options.guarantee, 1, SystemClock(), trim_to=trim_to)
        run_worker(cluster, wiring, worker_settings(options))
    finally:
        cluster.close()


if __name__ == "__main__":
    main(sys.argv[1:])
