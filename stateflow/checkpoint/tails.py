"""Finding the newest commit records of a task's changelogs on a cluster, with one short read of each end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from stateflow.changelog.sequences import Tail, find_tail, first_look
from stateflow.clock import Clock, SystemClock
from stateflow.errors import OffsetOutOfRange
from stateflow.log.base import Cluster, Reader
from stateflow.log.reading import read_ranges
from stateflow.record import OffsetRange, TopicPartition

_STALL_SECONDS = 60.0
_ATTEMPTS_MAX = 3

_Row = tuple[int, bytes | None, bytes | None]


def read_tails(
    cluster: Cluster, changelogs: Mapping[str, TopicPartition], clock: Clock | None = None
) -> dict[str, Tail]:
    """The tail of each of the changelogs that exist, by store name, at their last stable offsets of this moment.

    The owner of the task must have fenced its predecessors before, or what is found can change afterwards.
    Raises ``BrokerUnreachable`` when a log does not answer, ``StateCorrupt`` for a damaged commit record.
    """
    existing = cluster.describe(changelog.topic for changelog in changelogs.values())
    logs = {store: changelog for store, changelog in changelogs.items() if changelog.topic in existing}
    ranges = cluster.ranges(logs.values())
    if all(log.is_empty for log in ranges.values()):
        return {store: find_tail(ranges[changelog], _no_rows) for store, changelog in logs.items()}
    watch = clock or SystemClock()
    with closing(cluster.reader()) as reader:
        looks = _first_looks(reader, ranges, watch)
        return {store: _read_tail(cluster, reader, log, looks.get(log), watch) for store, log in logs.items()}


def commit_record_before(
    cluster: Cluster, changelog: TopicPartition, log: OffsetRange, clock: Clock | None = None
) -> int | None:
    """The offset of the newest commit record in ``log``, a part of one changelog; None when it has none there."""
    watch = clock or SystemClock()
    with closing(cluster.reader()) as reader:
        tail = find_tail(log, lambda wanted: _rows(reader, changelog, wanted, watch))
    return None if tail.last is None else tail.committed_next - 1


@dataclass(frozen=True, slots=True)
class _Look:
    """The end of a changelog, read together with those of others: asking for each by itself is mostly waiting."""

    log: OffsetRange
    rows: list[_Row]


def _no_rows(_: OffsetRange) -> Iterable[_Row]:
    return ()


def _first_looks(
    reader: Reader, logs: Mapping[TopicPartition, OffsetRange], clock: Clock
) -> dict[TopicPartition, _Look]:
    """The short read of each end; none where the beginning of one moved on meanwhile."""
    rows: defaultdict[TopicPartition, list[_Row]] = defaultdict(list)
    looks = {changelog: first_look(log) for changelog, log in logs.items()}
    try:
        for batch in read_ranges(reader, looks, stall_seconds_max=_STALL_SECONDS, clock=clock):
            rows[batch.source] += zip(batch.offsets, batch.keys, batch.values, strict=True)
    except OffsetOutOfRange:
        return {}
    return {changelog: _Look(log, rows[changelog]) for changelog, log in logs.items()}


def _read_tail(
    cluster: Cluster, reader: Reader, changelog: TopicPartition, look: _Look | None, clock: Clock
) -> Tail:
    def rows(wanted: OffsetRange) -> Iterable[_Row]:
        if look is not None and wanted == first_look(look.log):
            return look.rows
        return _rows(reader, changelog, wanted, clock)

    for attempt in range(1, _ATTEMPTS_MAX + 1):
        log = look.log if look is not None else cluster.ranges([changelog])[changelog]
        try:
            return find_tail(log, rows)
        except OffsetOutOfRange:  # the log's beginning moved on since we asked for it
            if attempt == _ATTEMPTS_MAX:
                raise
            look = None
    raise AssertionError("the last attempt returns or raises")


def _rows(reader: Reader, changelog: TopicPartition, wanted: OffsetRange, clock: Clock) -> Iterator[_Row]:
    for batch in read_ranges(reader, {changelog: wanted}, stall_seconds_max=_STALL_SECONDS, clock=clock):
        yield from zip(batch.offsets, batch.keys, batch.values, strict=True)
