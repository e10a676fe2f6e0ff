"""Reading one partition from one fixed offset to another, as jobs do."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator

from stateflow.changelog.format import is_reserved
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, RecordBatch, TopicPartition

READ_RECORDS_MAX = 10_000
STALL_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.5


def read_range(
    cluster: Cluster,
    source: TopicPartition,
    offsets: OffsetRange,
    *,
    stall_seconds_max: float = STALL_SECONDS_MAX,
) -> Iterator[RecordBatch]:
    """The committed records of one partition in ``offsets``, in order.

    Ends when the reader's position has reached ``offset_next``, which markers and compacted gaps never hide.
    Raises ``OffsetOutOfRange``, or ``BrokerUnreachable`` when nothing moves for ``stall_seconds_max``.
    """
    if offsets.is_empty:
        return
    reader = cluster.reader()
    try:
        reader.assign({source: offsets.offset_first})
        position, moved_at = offsets.offset_first, time.monotonic()
        while position < offsets.offset_next:
            for batch in reader.read(READ_RECORDS_MAX, _POLL_SECONDS):
                kept = _before(batch, offsets.offset_next)
                if len(kept):
                    yield kept
            now = reader.position(source)
            if now > position:
                position, moved_at = now, time.monotonic()
            elif time.monotonic() - moved_at > stall_seconds_max:
                raise BrokerUnreachable(
                    f"{source} gave nothing for {stall_seconds_max:.0f} s at offset {position}, short of"
                    f" {offsets.offset_next}.",
                    action="check that the broker is up and this partition has a leader, then run the job"
                    " again: it"
                    " resumes where it stopped.",
                    topic=source.topic,
                    partition=source.partition,
                    offset=position,
                )
    finally:
        reader.close()


def _before(batch: RecordBatch, offset_next: int) -> RecordBatch:
    if not batch.offsets or batch.offsets[-1] < offset_next:
        return batch
    rows = slice(0, sum(1 for offset in batch.offsets if offset < offset_next))
    return RecordBatch(
        batch.source,
        batch.offsets[rows],
        batch.timestamps_ms[rows],
        batch.keys[rows],
        batch.values[rows],
        batch.headers[rows],
    )


def live_state(
    cluster: Cluster, source: TopicPartition, offsets: OffsetRange, *, keys_max: int = 2_000_000
) -> Iterator[dict[bytes, bytes]]:
    """The live state of one changelog partition, as dicts of disjoint keys with about ``keys_max`` entries
    at most.

    Memory stays bounded by reading the partition several times, each time for another slice of the keys'
    hashes. Bookkeeping records and deleted keys are left out.
    """
    slices = max(1, -(-offsets.slots // keys_max))
    for index in range(slices):
        newest: dict[bytes, bytes | None] = {}
        for batch in read_range(cluster, source, offsets):
            pairs = zip(batch.keys, batch.values, strict=True)
            if slices == 1:
                newest.update(pairs)
            else:
                newest.update((k, v) for k, v in pairs if k is not None and zlib.crc32(k) % slices == index)
        yield {key: value for key, value in newest.items() if value is not None and not is_reserved(key)}
