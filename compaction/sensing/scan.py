"""Reading a log once, from its beginning to its end: what it holds, and how fast it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stateflow.changelog.format import RESERVED_KEY_PREFIX, is_reserved
from stateflow.clock import Clock
from stateflow.compaction.sensing.sketch import KeySketch
from stateflow.log.base import Cluster, Reader
from stateflow.log.reading import read_ranges
from stateflow.record import OffsetRange, RecordBatch, TopicPartition

_HISTORY_MS_MIN = 60_000


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How much to read, and what of it tells the update rate."""

    records_max: int = 20_000_000
    """Partitions are read one after another until so many records were read."""
    keys_max: int = 65_536
    """Keys counted exactly."""
    history_since_ms: int = 0
    """Records older than this were copied, as by a repartition, and say nothing about the update rate."""
    stall_seconds_max: float = 120.0
    """When reading does not get on for so long, the broker counts as gone."""


@dataclass(slots=True)
class Scan:
    """What reading the log told."""

    sketch: KeySketch
    records: int = 0
    plain_bytes: int = 0
    """Keys and values as read, uncompressed."""
    tombstones: int = 0
    tombstone_bytes: int = 0
    """Their keys."""
    history_offsets: int = 0
    """Offsets given out since ``history_since_ms``, of records that are there no more, too."""
    history_first_ms: int = 2**63
    """When the oldest record was written that was not copied."""
    partitions_read: int = 0
    first_ms: int = 2**63
    last_ms: int = 0
    markers: bool = False
    ours: bool = False
    """Reserved records of this library were seen."""
    seconds: float = 0.0
    now_ms: int = 0
    """When it was read."""

    @property
    def updates_per_second(self) -> float | None:
        """Mean over the log's history, of the partitions read; None when it spans no time, or all of it was copied."""
        span_ms = self.last_ms - self.history_first_ms
        if span_ms <= 0:
            return None
        # What was loaded at once would look like any rate: it counts as the work of a minute, or of its time until now.
        known_ms = min(_HISTORY_MS_MIN, max(0, self.now_ms - self.history_first_ms))
        return 1000 * self.history_offsets / max(span_ms, known_ms)


def scan(
    cluster: Cluster, ranges: Mapping[TopicPartition, OffsetRange], options: ScanOptions, clock: Clock
) -> Scan:
    """Read these ranges, partition by partition. Raises ``BrokerUnreachable`` when reading stalls."""
    found = Scan(KeySketch(options.keys_max), now_ms=clock.now_ms())
    reader = cluster.reader()
    try:
        for partition, target in ranges.items():
            if found.records >= options.records_max:
                break
            started = clock.monotonic_seconds()
            if not target.is_empty:
                _scan_partition(found, reader, partition, target, options)
            found.seconds += clock.monotonic_seconds() - started
            found.partitions_read += 1
    finally:
        reader.close()
    return found


def _scan_partition(
    found: Scan, reader: Reader, partition: TopicPartition, target: OffsetRange, options: ScanOptions
) -> None:
    history_first, last = -1, -1
    for batch in read_ranges(reader, {partition: target}, stall_seconds_max=options.stall_seconds_max):
        if history_first < 0:
            history_first = _history_begins(found, batch, options.history_since_ms)
        last = batch.offsets[-1]
        _take(found, batch)
    if history_first >= 0:
        found.history_offsets += target.offset_next - history_first
    # The newest record is never compacted away, so a hole behind it can only be a transaction marker.
    found.markers = found.markers or -1 < last + 1 < target.offset_next


def _history_begins(found: Scan, batch: RecordBatch, since_ms: int) -> int:
    """The offset of the first record of the batch that was not copied; -1 when all of it was."""
    for offset, at_ms in zip(batch.offsets, batch.timestamps_ms, strict=True):
        if at_ms >= since_ms:
            found.history_first_ms = min(found.history_first_ms, at_ms)
            return int(offset)
    return -1


def _is_state_alone(keys: Sequence[bytes | None]) -> bool:
    """True when no record is bookkeeping, told by the largest key where it can be: a log has millions."""
    if None not in keys and max(keys, default=b"") < RESERVED_KEY_PREFIX:  # type: ignore[type-var, operator]
        return True
    return not any(map(is_reserved, keys))


def _take(found: Scan, batch: RecordBatch) -> None:
    if _is_state_alone(batch.keys):
        found.sketch.add(batch.keys, batch.values, batch.timestamps_ms)
    else:
        found.ours = True
        state = [index for index, key in enumerate(batch.keys) if not is_reserved(key)]
        keys, values = [batch.keys[i] for i in state], [batch.values[i] for i in state]
        found.sketch.add(keys, values, [batch.timestamps_ms[i] for i in state])
    found.records += len(batch)
    found.plain_bytes += sum(map(len, filter(None, batch.keys)))
    if None not in batch.values:
        found.plain_bytes += sum(map(len, batch.values))
    else:
        found.plain_bytes += sum(map(len, filter(None, batch.values)))
        gone = [len(key or b"") for key, value in zip(batch.keys, batch.values, strict=True) if value is None]
        found.tombstones += len(gone)
        found.tombstone_bytes += sum(gone)
    found.first_ms = min(found.first_ms, batch.timestamps_ms[0])
    found.last_ms = max(found.last_ms, batch.timestamps_ms[-1])
