"""Finding the newest commit records of a task's changelogs on a cluster, with one short read of each end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from stateflow.changelog.sequences import Tail, find_tail
from stateflow.clock import Clock, SystemClock
from stateflow.errors import OffsetOutOfRange
from stateflow.log.base import Cluster, Reader
from stateflow.log.reading import read_ranges
from stateflow.record import OffsetRange, TopicPartition

_STALL_SECONDS = 60.0
_ATTEMPTS_MAX = 3


def read_tails(
    cluster: Cluster, changelogs: Mapping[str, TopicPartition], clock: Clock | None = None
) -> dict[str, Tail]:
    """The tail of each of the changelogs that exist, by store name, at their last stable offsets of this moment.

    The owner of the task must have fenced its predecessors before, or what is found can change afterwards.
    Raises ``BrokerUnreachable`` when a log does not answer, ``StateCorrupt`` for a damaged commit record.
    """
    existing = cluster.describe(changelog.topic for changelog in changelogs.values())
    watch = clock or SystemClock()
    with closing(cluster.reader()) as reader:
        return {
            store: _read_tail(cluster, reader, changelog, watch)
            for store, changelog in changelogs.items()
            if changelog.topic in existing
        }


def commit_record_before(
    cluster: Cluster, changelog: TopicPartition, log: OffsetRange, clock: Clock | None = None
) -> int | None:
    """The offset of the newest commit record in ``log``, a part of one changelog; None when it has none there."""
    watch = clock or SystemClock()
    with closing(cluster.reader()) as reader:
        tail = find_tail(log, lambda wanted: _rows(reader, changelog, wanted, watch))
    return None if tail.last is None else tail.committed_next - 1


def _read_tail(cluster: Cluster, reader: Reader, changelog: TopicPartition, clock: Clock) -> Tail:
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        log = cluster.ranges([changelog])[changelog]
        try:
            return find_tail(log, lambda wanted: _rows(reader, changelog, wanted, clock))
        except OffsetOutOfRange:  # the log's beginning moved on since we asked for it
            if attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


def _rows(
    reader: Reader, changelog: TopicPartition, wanted: OffsetRange, clock: Clock
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    for batch in read_ranges(reader, {changelog: wanted}, stall_seconds_max=_STALL_SECONDS, clock=clock):
        yield from zip(batch.offsets, batch.keys, batch.values, strict=True)
