"""The states of two sides key by key, read from their changelogs in bounded memory."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Protocol

from stateflow.catalog.model import RoutingEntry, StoreEntry
from stateflow.changelog.format import is_reserved
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale.layout import routing_keys
from stateflow.state.merging import Entries

Sources = tuple[tuple[TopicPartition, OffsetRange], ...]
"""Changelog partitions and what of them is read."""


class TwoSides(Protocol):
    """One partition of a store, and the two sides that it is made of."""

    @property
    def store(self) -> StoreEntry:
        """The store, alike on both sides."""
        ...

    @property
    def target(self) -> TopicPartition:
        """The partition whose keys are wanted."""
        ...

    @property
    def routing(self) -> RoutingEntry:
        """The table that says which keys those are."""
        ...

    @property
    def ours(self) -> Sources:
        """One side."""
        ...

    @property
    def theirs(self) -> Sources:
        """The other."""
        ...

    @property
    def keys_max(self) -> int:
        """Store keys in memory, about."""
        ...


def paired_states(cluster: Cluster, sides: TwoSides) -> Iterator[tuple[bytes, Entries, Entries]]:
    """Every routing key of the partition with its entries on both sides, in the order of the keys' bytes.

    Both sides are read several times where they are long, each time for another slice of the routing keys.
    """
    slots = sum(offsets.slots for _, offsets in (*sides.ours, *sides.theirs))
    slices = max(1, -(-slots // sides.keys_max))
    for index in range(slices):
        ours = _states(cluster, sides, sides.ours, slices, index)
        theirs = _states(cluster, sides, sides.theirs, slices, index)
        for key in sorted(ours.keys() | theirs.keys()):
            yield key, ours.get(key, {}), theirs.get(key, {})


def _states(
    cluster: Cluster, sides: TwoSides, sources: Sources, slices: int, index: int
) -> dict[bytes, Entries]:
    routing, partition = RoutingTable.from_entry(sides.routing), sides.target.partition
    newest: dict[bytes, tuple[bytes, bytes | None]] = {}
    for source, offsets in sources:
        for batch in read_range(cluster, source, offsets):
            rows = [
                (key, value)
                for key, value in zip(batch.keys, batch.values, strict=True)
                if key is not None and not is_reserved(key)
            ]
            owners = routing_keys(sides.store.layout, [key for key, _ in rows])
            partitions = routing.partitions_of(owners)
            for (key, value), owner, found in zip(rows, owners, partitions, strict=True):
                if found == partition and zlib.crc32(owner) % slices == index:
                    newest[key] = owner, value
    states: dict[bytes, Entries] = defaultdict(dict)
    for key, (owner, value) in newest.items():
        if value is not None:
            states[owner][key] = value
    return states
