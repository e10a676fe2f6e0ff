"""Where running tasks look for a store key, worked out as they do it and apart from the code that moves keys.

Whoever moves state and whoever proves that nothing was lost must not share a mistake. The mover asks the routing table
about many keys at once, with the keys that ``scale.layout`` cuts out of store keys. Here the cut is the one that state
handles and queries make, checked by putting the key together again as handles do, and the table is asked about single
keys as well: the code for many at once is another, in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateflow.catalog.model import KeyLayout, RoutingEntry
from stateflow.errors import StateCorrupt
from stateflow.routing import RoutingTable
from stateflow.state.layout import prefixed_key, split_prefixed, split_window, window_key

SINGLE_KEYS = 4_000
"""Keys of a partition that are all asked for singly. Asking for one costs 3 µs, for one among many 0.05."""
SINGLE_EVERY = 32
"""Of the keys after them, one in so many: a fault that misplaces one key in 1,000 is then met 31 times per million, on
either side of the audit.
"""


class Placement:
    """The routing of one partition's keys, in the order in which they are read."""

    def __init__(self, layout: KeyLayout | None, routing: RoutingEntry, singles: int = SINGLE_KEYS) -> None:
        self._layout = layout
        self._singles_first = singles
        self._table = RoutingTable.from_entry(routing)
        self._seen = 0

    @property
    def partitions(self) -> int:
        """Number of partitions that may own a key."""
        return self._table.partitions

    def owners(self, keys: Sequence[bytes]) -> list[int]:
        """The partition that owns each store key, or record of a repartition topic (layout None).

        Raises ``StateCorrupt`` for a key that no handle could have written.
        """
        is_whole = self._layout is None or self._layout == "plain"
        routed = keys if is_whole else [self._routing_key(key) for key in keys]
        owners = self._table.partitions_of(routed)  # as a re-key step does with a batch
        for index in self._singles(len(routed)):
            owners[index] = self._table.partition_of(routed[index])
        self._seen += len(routed)
        return owners

    def _singles(self, count: int) -> Sequence[int]:
        whole = min(count, max(0, self._singles_first - self._seen))
        return [*range(whole), *range(whole, count, SINGLE_EVERY)]

    def _routing_key(self, key: bytes) -> bytes:
        if self._layout == "window":
            routed, start_ms = split_window(key)
            built = window_key(routed, start_ms)
        else:
            routed, rest = split_prefixed(key)
            built = prefixed_key(routed, rest)
        if built != key:
            raise StateCorrupt(
                f"a key of the layout {self._layout} is not one that state could have written: {key[:64].hex()}.",
                action="something else writes to this changelog; only the application itself may.",
                key=key[:64].hex(),
            )
        return routed
