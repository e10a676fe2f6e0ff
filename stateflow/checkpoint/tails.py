"""Finding the newest commit records of a task's changelogs on a cluster, with one short read of each end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from stateflow.changelog.sequences import Tail, find_tail
from stateflow.clock import Clock, SystemClock
from stateflow.errors import BrokerUnreachable, OffsetOutOfRange
from stateflow.log.base import Cluster, Reader
from stateflow.record import OffsetRange, TopicPartition

_READ_RECORDS_MAX = 20_000
_READ_TIMEOUT_SECONDS = 0.2
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
    if wanted.is_empty:
        return
    reader.assign({changelog: wanted.offset_first})
    reached, moved_seconds = wanted.offset_first, clock.monotonic_seconds()
    while reached < wanted.offset_next:
        for batch in reader.read(_READ_RECORDS_MAX, _READ_TIMEOUT_SECONDS):
            for row in zip(batch.offsets, batch.keys, batch.values, strict=True):
                if row[0] < wanted.offset_next:
                    yield row
        position = reader.position(changelog)
        if position > reached:
            reached, moved_seconds = position, clock.monotonic_seconds()
        elif clock.monotonic_seconds() - moved_seconds > _STALL_SECONDS:
            raise BrokerUnreachable(
                f"reading the end of {changelog} has stood still for {_STALL_SECONDS:.0f} s at {reached}.",
                action="check that the brokers are up, then start again.",
                topic=changelog.topic,
                partition=changelog.partition,
            )
