"""The live state of one changelog partition, as jobs read it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from stateflow.changelog.format import is_reserved
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition


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
