"""Bounding a log without the cleaner: images with a trim behind them, and eventual re-emission of the oldest keys.

Both write to a topic with ``cleanup.policy=compact,delete`` (DeleteRecords is refused on a compact-only one) that
the cleaner never touches. *Image + trim*: every so often the live state is written to a file, and the log before it
is dropped. *Eventual*: the key whose newest record is the oldest is written again when the log would outgrow its
bound, so that the log can be trimmed behind it (continuous eventual checkpointing, Sebepou and Magoutis, DSN 2011).
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.calibration.cell import broker_process, scratch_topic
from stateflow.compaction.calibration.values import Values
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.streams import Stream
from stateflow.compaction.sensing.broker_cpu import broker_cpu
from stateflow.compaction.sensing.measure import changelog_bytes
from stateflow.compaction.sensing.restore_probe import probe_restore
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.log.base import Cluster, Writer
from stateflow.record import TopicPartition

_NEVER_CLEANED = Policy(
    dirty_ratio=1.0, segment_ms=200, segment_index_bytes=65_536, file_delete_delay_ms=1000
)
LOOK_SECONDS = 0.05
_LOOKS_AHEAD = 3
"""Updates of so many looks are kept free in the log: about what one look writes, re-emission included."""


@dataclass(frozen=True, slots=True)
class TrimmedResult:
    """One run of a policy that trims, after warming up."""

    name: str
    size_mean_bytes: float
    size_max_bytes: float
    broker_cores: float
    cleaner_cores: float
    client_cores: float
    """CPU of the writing process, images and re-emission included, producing included."""
    writes_per_update: float
    restore_seconds: float
    log_records_max: int
    """Most records between the start of the log and its end, all partitions together, after warming up."""
    sizes: tuple[tuple[float, int], ...]


@dataclass(slots=True)
class _State:
    """The writer's own view: newest offset and value of every key, oldest first, per partition."""

    newest: list[dict[bytes, tuple[int, bytes]]]
    """Per partition, in the order of offsets: a key that is written again moves to the end."""
    ends: list[int]
    writes: int = 0

    def put(self, partition: int, key: bytes, value: bytes | None) -> None:
        held = self.newest[partition]
        held.pop(key, None)
        if value is not None:
            held[key] = (self.ends[partition], value)
        self.ends[partition] += 1
        self.writes += 1


def run_trimmed(
    cluster: Cluster,
    admin: ClusterAdmin,
    stream: Stream,
    warm_seconds: float,
    *,
    log_records_max: float | None = None,
    image_seconds: float | None = None,
    clock: Clock | None = None,
) -> TrimmedResult:
    """Run a stream with eventual re-emission (``log_records_max``) or with images (``image_seconds``)."""
    assert (log_records_max is None) != (image_seconds is None)
    clock = clock or SystemClock()
    pid = broker_process(admin, clock)
    with (
        tempfile.TemporaryDirectory() as folder,
        scratch_topic(cluster, _NEVER_CLEANED, stream.partitions, "trim") as topic,
    ):
        admin.alter_topic(topic, {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
        run = _Run(cluster, admin, topic, stream, Path(folder) / "image", clock)
        steps = run.steps(log_records_max, image_seconds)
        before, seconds, updates = broker_cpu(pid), 0.0, 0
        client = _client_seconds()
        warm_at = writes = 0
        for seconds, updates in steps:
            if not warm_at and seconds >= warm_seconds:
                before, client, warm_at, writes = (
                    broker_cpu(pid),
                    _client_seconds(),
                    updates,
                    run.state.writes,
                )
        spent = broker_cpu(pid) - before
        span = max(seconds - warm_seconds, 1e-9)
        restored = run.restore()
        counted = [size for at, size in run.sizes if at >= warm_seconds]
        return TrimmedResult(
            name="eventual" if image_seconds is None else "image + trim",
            size_mean_bytes=sum(counted) / len(counted),
            size_max_bytes=max(counted),
            broker_cores=spent.total_seconds / span,
            cleaner_cores=spent.cleaner_seconds / span,
            client_cores=(_client_seconds() - client) / span,
            writes_per_update=(run.state.writes - writes) / max(1, updates - warm_at),
            restore_seconds=restored,
            log_records_max=max(records for at, records in run.lengths if at >= warm_seconds),
            sizes=tuple(run.sizes),
        )


def _client_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class _Run:
    """The writer of one run."""

    def __init__(
        self, cluster: Cluster, admin: ClusterAdmin, topic: str, stream: Stream, image: Path, clock: Clock
    ) -> None:
        self._cluster, self._admin, self._topic = cluster, admin, topic
        self._stream, self._image, self._clock = stream, image, clock
        self._values = Values(stream)
        self.state = _State([{} for _ in range(stream.partitions)], [0] * stream.partitions)
        self.sizes: list[tuple[float, int]] = []
        self.lengths: list[tuple[float, int]] = []
        """(seconds, records from the start of the log to its end), before every trim."""
        self._start_seconds = 0.0
        self._log_starts = [0] * stream.partitions

    def steps(
        self, log_records_max: float | None, image_seconds: float | None
    ) -> Iterator[tuple[float, int]]:
        """Write the stream at its pace, in steps; yields the time and the updates so far after each."""
        writer, start = self._cluster.writer(), self._clock.monotonic_seconds()
        self._start_seconds = start
        next_look, next_image, updates = LOOK_SECONDS, image_seconds or 0.0, 0
        try:
            for update in self._stream.updates():
                if update.seconds >= next_look:
                    if image_seconds is None:
                        assert log_records_max is not None
                        self._re_emit(writer, log_records_max)
                    writer.commit()
                    if image_seconds is not None and update.seconds >= next_image:
                        self._write_image()
                        next_image += image_seconds
                    elif image_seconds is None:
                        self._trim(
                            [
                                next(iter(held.values()))[0] if held else end
                                for held, end in self._partitions()
                            ]
                        )
                    elapsed = self._clock.monotonic_seconds() - start
                    self.sizes.append((round(elapsed, 3), changelog_bytes(self._admin, self._topic)))
                    yield update.seconds, updates
                    time.sleep(max(0.0, next_look - (self._clock.monotonic_seconds() - start)))
                    next_look += LOOK_SECONDS
                value = self._values.of(update)
                writer.send(self._topic, update.key, value, partition=update.partition)
                self.state.put(update.partition, update.key, value)
                updates += 1
            writer.commit()
        finally:
            writer.close()

    def _partitions(self) -> Iterator[tuple[dict[bytes, tuple[int, bytes]], int]]:
        return zip(self.state.newest, self.state.ends, strict=True)

    def _re_emit(self, writer: Writer, log_records_max: float) -> None:
        """Write again every key whose newest record lies before the wanted start of the log."""
        room = log_records_max / self._stream.partitions
        updates = self._stream.mean_rate() / self._stream.partitions * LOOK_SECONDS
        for number, held in enumerate(self.state.newest):
            # What the next look may add before it trims, never so much that no key could stay where it is.
            ahead = min(_LOOKS_AHEAD * updates, max(0.0, room - len(held)) / 2)
            while held:
                key, (offset, value) = next(iter(held.items()))
                if offset >= self.state.ends[number] + ahead - room:
                    break
                writer.send(self._topic, key, value, partition=number)
                self.state.put(number, key, value)

    def _write_image(self) -> None:
        with self._image.open("wb") as file:
            for held in self.state.newest:
                for key in sorted(held):
                    value = held[key][1]
                    file.write(len(key).to_bytes(4) + len(value).to_bytes(4) + key + value)
        self._trim(list(self.state.ends))

    def _trim(self, offsets: list[int]) -> None:
        seconds = self._clock.monotonic_seconds() - self._start_seconds
        self.lengths.append((seconds, sum(self.state.ends) - sum(self._log_starts)))
        self._log_starts = list(offsets)
        self._cluster.trim(
            {TopicPartition(self._topic, number): offset for number, offset in enumerate(offsets)}
        )

    def restore(self) -> float:
        """Seconds to read the image back, if there is one, and the rest of the log."""
        started = self._clock.monotonic_seconds()
        if self._image.exists():
            data, at, state = self._image.read_bytes(), 0, {}
            while at < len(data):
                key_end = at + 8 + int.from_bytes(data[at : at + 4])
                end = key_end + int.from_bytes(data[at + 4 : at + 8])
                state[data[at + 8 : key_end]] = data[key_end:end]
                at = end
        image_seconds = self._clock.monotonic_seconds() - started
        return image_seconds + probe_restore(self._cluster, self._topic, clock=self._clock).seconds
