"""The live state of one changelog partition, as jobs read it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack

from stateflow.changelog.format import is_reserved
from stateflow.checkpoint.planner import trimmed
from stateflow.checkpoint.whole import Base, read_whole
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition


def live_state(
    cluster: Cluster,
    source: TopicPartition,
    offsets: OffsetRange,
    *,
    keys_max: int = 2_000_000,
    base: Base | None = None,
    accept_cut: bool = False,
) -> Iterator[dict[bytes, bytes]]:
    """The live state of one changelog partition, as dicts of disjoint keys with about ``keys_max`` entries
    at most.

    Memory stays bounded by reading the partition several times, each time for another slice of the keys'
    hashes. Bookkeeping records and deleted keys are left out. ``base`` is the image that the log begins with, if it
    was trimmed; ``offsets`` then has a slot for it (``with_base_slot``). Without it a log that does not begin at 0 is
    refused (``ChangelogTrimmed``), unless ``accept_cut`` says that what it still has is what is asked for.
    """
    if base is None and offsets.offset_first > 0 and not accept_cut:
        raise trimmed(source.topic, source, offsets, "no image was named to begin with")
    with ExitStack() as stack:
        opened = None if base is None else stack.enter_context(base.opened())
        entries = offsets.slots + (0 if opened is None else opened.keys_estimated)
        slices = max(1, -(-entries // keys_max))
        for index in range(slices):
            newest: dict[bytes, bytes | None] = {}
            for batch in read_whole(cluster, source, offsets, opened):
                pairs = zip(batch.keys, batch.values, strict=True)
                if slices == 1:
                    newest.update(pairs)
                else:
                    newest.update(
                        (k, v) for k, v in pairs if k is not None and zlib.crc32(k) % slices == index
                    )
            yield {key: value for key, value in newest.items() if value is not None and not is_reserved(key)}
