"""The live state of one changelog partition, as jobs read it."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, compress

from stateflow.changelog.format import is_reserved
from stateflow.checkpoint.planner import trimmed
from stateflow.checkpoint.whole import Base, OpenedBase, read_whole
from stateflow.log.base import Cluster
from stateflow.memory import ENTRY_BYTES
from stateflow.record import OffsetRange, RecordBatch, TopicPartition

STATE_BYTES_MAX = 256 << 20
"""What a part of the state may take in memory while it is read, of each job."""
_MODULUS_MAX = 1 << 31
"""Keys that are not told apart by then have all the same hash."""


def live_state(
    cluster: Cluster,
    source: TopicPartition,
    offsets: OffsetRange,
    *,
    keys_max: int = 2_000_000,
    bytes_max: int = STATE_BYTES_MAX,
    base: Base | None = None,
) -> Iterator[dict[bytes, bytes]]:
    """The live state of one changelog partition, as dicts of disjoint keys with about ``keys_max`` entries at most,
    that take about ``bytes_max`` in memory.

    Memory stays bounded by reading the partition several times, each time for another slice of the keys'
    hashes. Bookkeeping records and deleted keys are left out. ``base`` is the image that the log begins with, if it
    was trimmed; ``offsets`` then has a slot for it (``with_base_slot``). Without it a log that does not begin at 0 is
    refused (``ChangelogTrimmed``).
    """
    if base is None and offsets.offset_first > 0:
        raise trimmed(source.topic, source, offsets, "no image was named to begin with")
    with ExitStack() as stack:
        opened = None if base is None else stack.enter_context(base.opened())
        reading = _Slices(cluster, source, offsets, opened, bytes_max)
        entries = offsets.slots + (0 if opened is None else opened.keys_estimated)
        yield from reading.states(max(1, -(-entries // keys_max)))


class _Slices:
    """Reads slice by slice. How large values are shows only on the way: a slice that grows too large is halved, and
    its other half is read later.
    """

    def __init__(
        self,
        cluster: Cluster,
        source: TopicPartition,
        offsets: OffsetRange,
        opened: OpenedBase | None,
        bytes_max: int,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._offsets = offsets
        self._opened = opened
        self._bytes_max = bytes_max
        self._left: list[tuple[int, int]] = []
        """Slices to read: the keys whose hash leaves this remainder when divided by that number, first."""

    def states(self, slices: int) -> Iterator[dict[bytes, bytes]]:
        """The live entries of each slice."""
        self._left = [(slices, index) for index in reversed(range(slices))]
        while self._left:
            yield self._state(*self._left.pop())

    def _state(self, modulus: int, remainder: int) -> dict[bytes, bytes]:
        newest: dict[bytes, bytes | None] = {}
        held_bytes = 0
        for batch in read_whole(self._cluster, self._source, self._offsets, self._opened):
            held_bytes += self._take(newest, batch, modulus, remainder)
            if held_bytes > self._bytes_max:  # replaced values are counted until here
                held_bytes = _bytes_of(newest)
            while held_bytes > self._bytes_max and len(newest) > 1 and modulus < _MODULUS_MAX:
                modulus *= 2
                self._left.append((modulus, remainder + modulus // 2))
                newest = {
                    key: value for key, value in newest.items() if zlib.crc32(key) % modulus == remainder
                }
                held_bytes = _bytes_of(newest)
        return {key: value for key, value in newest.items() if value is not None and not is_reserved(key)}

    def _take(
        self, newest: dict[bytes, bytes | None], batch: RecordBatch, modulus: int, remainder: int
    ) -> int:
        """Take in what is of the slice; returns the bytes that it takes in memory at most."""
        keys, values = batch.keys, batch.values
        if modulus > 1:
            chosen = [key is not None and zlib.crc32(key) % modulus == remainder for key in keys]
            keys, values = list(compress(keys, chosen)), list(compress(values, chosen))
        newest.update((key, value) for key, value in zip(keys, values, strict=True) if key is not None)
        return _size(keys, values)


def _bytes_of(entries: dict[bytes, bytes | None]) -> int:
    return _size(entries.keys(), entries.values())


def _size(keys: Collection[bytes | None], values: Iterable[bytes | None]) -> int:
    return ENTRY_BYTES * len(keys) + sum(map(len, filter(None, chain(keys, values))))
