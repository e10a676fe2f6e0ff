"""Reading partitions from fixed offsets to targets: the one loop that decides "read to the end" here.

Done is decided by the reader's position against the target, which markers and compacted gaps never hide; never by
counting records. Nothing behind the target is handed out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TypeVar

from stateflow.clock import Clock, SystemClock
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import Cluster, Reader
from stateflow.log.newest import Sink, read_newest
from stateflow.record import OffsetRange, RecordBatch, TopicPartition

Step = TypeVar("Step")

READ_RECORDS_MAX = 10_000
STALL_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.5
_LOOKS_MAX = 10
"""A busy topic always has more. What is read between two looks is so new that no cleaner has been there."""


def read_range(
    cluster: Cluster,
    source: TopicPartition,
    offsets: OffsetRange,
    *,
    stall_seconds_max: float = STALL_SECONDS_MAX,
) -> Iterator[RecordBatch]:
    """The committed records of one partition in ``offsets``, in order, by a reader of its own.

    Raises what ``read_ranges`` raises.
    """
    if not offsets.is_empty:
        with closing(cluster.reader()) as reader:
            yield from read_ranges(reader, {source: offsets}, stall_seconds_max=stall_seconds_max)


def read_topic(cluster: Cluster, topic: str) -> Iterator[RecordBatch]:
    """Every committed record of a topic as it is now; nothing for one that does not exist."""
    info = cluster.describe([topic]).get(topic)
    if info is not None:
        ranges = cluster.ranges(TopicPartition(topic, number) for number in range(info.partitions))
        with closing(cluster.reader()) as reader:
            yield from read_ranges(reader, ranges)


def read_to_end(
    cluster: Cluster,
    ranges: dict[TopicPartition, OffsetRange],
    *,
    stall_seconds_max: float = STALL_SECONDS_MAX,
) -> Iterator[RecordBatch]:
    """The committed records in ``ranges``, and then what came meanwhile, by a reader of its own; ``ranges`` grows.

    For the newest record of each key of a compacted topic that others write to. Up to an end that was taken before,
    keys may be missing that have been there all the time: one was written again behind that end, and the cleaner
    removed the record before it, which was not read yet. So there is another look at the end after the last record,
    until nothing has come. Raises what ``read_ranges`` raises.
    """
    unread = dict(ranges)
    if all(offsets.is_empty for offsets in unread.values()):
        return
    with closing(cluster.reader()) as reader:
        for looks_left in reversed(range(_LOOKS_MAX)):
            yield from read_ranges(reader, unread, stall_seconds_max=stall_seconds_max)
            if not looks_left or all(offsets.is_empty for offsets in unread.values()):
                return
            for source, end in cluster.ends(unread).items():
                first, reached = ranges[source]
                unread[source] = OffsetRange(reached, max(reached, end))
                ranges[source] = OffsetRange(first, unread[source].offset_next)


def what_came_meanwhile(offset_next: int, end_now: Callable[[], int]) -> Iterator[OffsetRange]:
    """What stands behind a range when it was read, part by part, each to the end of its moment: as in ``read_to_end``,
    for who reads by other means. The last part is so short that it is read at once.
    """
    for _ in range(_LOOKS_MAX):
        part = OffsetRange(offset_next, max(offset_next, end_now()))
        if part.is_empty:
            return
        yield part
        if part.slots <= READ_RECORDS_MAX:
            return
        offset_next = part.offset_next


def read_ranges(
    reader: Reader,
    ranges: Mapping[TopicPartition, OffsetRange],
    *,
    stall_seconds_max: float = STALL_SECONDS_MAX,
    clock: Clock | None = None,
) -> Iterator[RecordBatch]:
    """The committed records of several partitions up to their targets, each partition in order.

    Replaces the reader's assignment. Raises ``OffsetOutOfRange``, or ``BrokerUnreachable`` when nothing moves for
    ``stall_seconds_max``.
    """

    def read() -> list[RecordBatch]:
        return reader.read(READ_RECORDS_MAX, _POLL_SECONDS)

    for batches in _steps(reader, ranges, read, stall_seconds_max, clock or SystemClock()):
        for batch in batches:
            kept = _before(batch, ranges[batch.source].offset_next)
            if len(kept):
                yield kept


def read_range_into(
    cluster: Cluster, source: TopicPartition, offsets: OffsetRange, sink: Sink
) -> Iterator[None]:
    """Read as ``read_range`` to where only the newest record of each key is kept, without an object per record where
    that can be done. Yields after every few thousand records.

    Nothing from ``sink.offset_next`` on is taken. Raises as ``read_range``.
    """
    if not offsets.is_empty:
        with closing(cluster.reader()) as reader:

            def read() -> None:
                read_newest(reader, {source: sink}, READ_RECORDS_MAX, _POLL_SECONDS)

            yield from _steps(reader, {source: offsets}, read, STALL_SECONDS_MAX, SystemClock())


def _steps(
    reader: Reader,
    ranges: Mapping[TopicPartition, OffsetRange],
    read: Callable[[], Step],
    stall_seconds_max: float,
    watch: Clock,
) -> Iterator[Step]:
    """What each call of ``read`` returns, until the reader has reached every target."""
    reached = {source: offsets.offset_first for source, offsets in ranges.items() if not offsets.is_empty}
    if not reached:
        return
    reader.assign(reached)
    moved_seconds = watch.monotonic_seconds()
    while any(position < ranges[source].offset_next for source, position in reached.items()):
        yield read()
        positions = {source: reader.position(source) for source in reached}
        if positions != reached:
            reached, moved_seconds = positions, watch.monotonic_seconds()
        elif watch.monotonic_seconds() - moved_seconds > stall_seconds_max:
            raise _stalled(ranges, reached, stall_seconds_max)


def _before(batch: RecordBatch, offset_next: int) -> RecordBatch:
    if not batch.offsets or batch.offsets[-1] < offset_next:
        return batch
    return batch.first(bisect_left(batch.offsets, offset_next))


def _stalled(
    ranges: Mapping[TopicPartition, OffsetRange], reached: Mapping[TopicPartition, int], seconds: float
) -> BrokerUnreachable:
    source, position = next(
        (source, position) for source, position in reached.items() if position < ranges[source].offset_next
    )
    return BrokerUnreachable(
        f"{source} gave nothing for {seconds:.0f} s at offset {position}, short of {ranges[source].offset_next}.",
        action="check that the broker is up, that this user may read the topic and that this partition has a leader;"
        " then run this again.",
        topic=source.topic,
        partition=source.partition,
        offset=position,
    )
