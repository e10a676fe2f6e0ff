"""Which partition of a generation owns a key: the routing table of the re-keyed stages.

Two kinds. ``modulo`` is what Kafka's own producers do: ``murmur2(key) & 0x7fffffff % partitions``; every
application begins with it. ``ranges`` cuts the 31-bit hash space into ranges, each owned by one partition,
so that one partition can be split or two merged while every other key stays where it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

from stateflow.catalog.checks import count_problem, routing_problem
from stateflow.catalog.model import RoutingEntry
from stateflow.errors import ConfigError
from stateflow.partitioner import HASH_MAX, partitions_of, routing_hash, routing_hashes

HASH_END = HASH_MAX + 1
"""One past the largest routing hash."""


@dataclass(frozen=True, slots=True)
class HashRange:
    """The hashes from ``hash_first`` up to, not including, ``hash_after``, and their owner."""

    hash_first: int
    hash_after: int
    owner: int

    @property
    def width(self) -> int:
        """Number of hashes in the range; the whole space has 2^31."""
        return self.hash_after - self.hash_first


class RoutingTable:
    """Immutable; equal tables route every key alike *and* are written alike."""

    __slots__ = ("_bounds", "_entry", "_owners")

    def __init__(self, entry: RoutingEntry) -> None:
        _check(entry)
        self._entry = entry
        self._bounds = list(entry.bounds)
        self._owners = list(entry.owners)

    @classmethod
    def from_entry(cls, entry: RoutingEntry) -> RoutingTable:
        """The table that the catalog describes; raises ``ConfigError`` when the entry is not a table."""
        return cls(entry)

    @classmethod
    def modulo(cls, partitions: int) -> RoutingTable:
        """Kafka's default partitioner over ``partitions`` partitions."""
        return cls(RoutingEntry(kind="modulo", partitions=partitions))

    @classmethod
    def even_ranges(cls, partitions: int) -> RoutingTable:
        """One range of equal width per partition."""
        if problem := count_problem(partitions):
            raise _invalid(*problem)
        bounds = tuple(HASH_END * index // partitions for index in range(partitions))
        return cls(
            RoutingEntry(kind="ranges", partitions=partitions, bounds=bounds, owners=tuple(range(partitions)))
        )

    def entry(self) -> RoutingEntry:
        """The table as data, for the catalog."""
        return self._entry

    @property
    def kind(self) -> str:
        """``modulo`` or ``ranges``."""
        return self._entry.kind

    @property
    def partitions(self) -> int:
        """Partition count; every partition below it may own keys."""
        return self._entry.partitions

    def partition_of(self, key: bytes) -> int:
        """The partition that owns one routing key."""
        return self.partition_of_hash(routing_hash(key))

    def partition_of_hash(self, hash_31: int) -> int:
        """The partition that owns one routing hash."""
        if self._entry.kind == "modulo":
            return hash_31 % self._entry.partitions
        return self._owners[bisect_right(self._bounds, hash_31) - 1]

    def partitions_of(self, keys: Sequence[bytes]) -> list[int]:
        """The partitions that own many routing keys, in their order."""
        if self._entry.kind == "modulo":
            return partitions_of(keys, self._entry.partitions)
        bounds, owners = self._bounds, self._owners
        return [owners[bisect_right(bounds, hash_31) - 1] for hash_31 in routing_hashes(keys)]

    def ranges(self, partition: int | None = None) -> tuple[HashRange, ...]:
        """The ranges of one partition, or of all; only a table of the kind ``ranges`` has any.

        Raises ``ConfigError`` for the kind ``modulo``, where every partition's hashes are scattered.
        """
        if self._entry.kind != "ranges":
            raise _invalid("the ranges of a modulo table", "Repartition to a table of ranges first.")
        afters = [*self._bounds[1:], HASH_END]
        found = (HashRange(*row) for row in zip(self._bounds, afters, self._owners, strict=True))
        return tuple(row for row in found if partition is None or row.owner == partition)

    def split(self, partition: int) -> RoutingTable:
        """A table with one more partition, the last, which takes the upper half of ``partition``'s hashes.

        Only keys of ``partition`` move. A modulo table over N partitions has no exact form in ranges, so it
        is refused with what to do.
        """
        own = self.ranges(self._own(partition))
        half = sum(row.width for row in own) // 2
        if half == 0:
            raise _invalid(
                f"a split of partition {partition}, which owns fewer than two hashes", "Split another one."
            )
        pieces: list[HashRange] = []
        kept = 0
        for row in self.ranges():
            if row.owner != partition:
                pieces.append(row)
                continue
            stays = min(row.width, max(0, half - kept))
            kept += stays
            cut = row.hash_first + stays
            pieces.append(HashRange(row.hash_first, cut, partition))
            pieces.append(HashRange(cut, row.hash_after, self.partitions))
        return _of_ranges(pieces, self.partitions + 1)

    def merge(self, partition: int, other: int) -> RoutingTable:
        """A table with one partition less: the two become one, under the lower number.

        Partition numbers have no gaps, so unless the higher one was the last, the last partition moves into
        its number, whole.
        """
        keep, drop = sorted((self._own(partition), self._own(other)))
        if keep == drop:
            raise _invalid(f"a merge of partition {keep} with itself", "Name two partitions.")
        last = self.partitions - 1
        renamed = {drop: keep} if drop == last else {drop: keep, last: drop}
        pieces = [
            HashRange(row.hash_first, row.hash_after, renamed.get(row.owner, row.owner))
            for row in self.ranges()
        ]
        return _of_ranges(pieces, last)

    def moved(self, other: RoutingTable) -> float:
        """The share of the hash space, 0 … 1, whose keys have another partition number in ``other``."""
        if self._entry.kind == other._entry.kind == "modulo":
            return _moved_modulo(self.partitions, other.partitions)
        if self._entry.kind == other._entry.kind == "ranges":
            stays = sum(width for width, ours, theirs in _overlay(self, other) if ours == theirs)
            return 1 - stays / HASH_END
        modulo, ranges = (self, other) if self._entry.kind == "modulo" else (other, self)
        stays = sum(
            _congruent(row, modulo.partitions) for row in ranges.ranges() if row.owner < modulo.partitions
        )
        return 1 - stays / HASH_END

    def _own(self, partition: int) -> int:
        if not 0 <= partition < self.partitions:
            raise _invalid(
                f"partition {partition} of a table of {self.partitions}",
                f"Name a partition from 0 to {self.partitions - 1}.",
            )
        return partition

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoutingTable) and self._entry == other._entry

    def __hash__(self) -> int:
        return hash((self._entry.kind, self._entry.partitions, self._entry.bounds, self._entry.owners))

    def __repr__(self) -> str:
        return f"RoutingTable({self._entry.kind}, partitions={self.partitions}, ranges={len(self._bounds)})"


def _of_ranges(pieces: Sequence[HashRange], partitions: int) -> RoutingTable:
    """A table of these pieces; empty ones are left out and neighbours of one owner become one range."""
    bounds: list[int] = []
    owners: list[int] = []
    for piece in pieces:
        if piece.width and not (owners and owners[-1] == piece.owner):
            bounds.append(piece.hash_first)
            owners.append(piece.owner)
    return RoutingTable(
        RoutingEntry(kind="ranges", partitions=partitions, bounds=tuple(bounds), owners=tuple(owners))
    )


def _overlay(one: RoutingTable, two: RoutingTable) -> Iterator[tuple[int, int, int]]:
    """Width, owner in ``one`` and owner in ``two`` of every piece between any two bounds of either."""
    cuts = sorted({row.hash_first for table in (one, two) for row in table.ranges()})
    for first, after in zip(cuts, [*cuts[1:], HASH_END], strict=True):
        yield after - first, one.partition_of_hash(first), two.partition_of_hash(first)


def _congruent(row: HashRange, partitions: int) -> int:
    """How many hashes of a range are ≡ its owner modulo ``partitions``."""

    def below(hash_after: int) -> int:
        return (hash_after - row.owner + partitions - 1) // partitions if hash_after > row.owner else 0

    return below(row.hash_after) - below(row.hash_first)


def _moved_modulo(before: int, after: int) -> float:
    """Of all residues of lcm(before, after), those that give different partitions: 1 − min / lcm."""
    return 1 - min(before, after) / lcm(before, after)


def _check(entry: RoutingEntry) -> None:
    if problem := routing_problem(entry):
        raise _invalid(*problem)


def _invalid(what: str, action: str) -> ConfigError:
    return ConfigError(f"A routing table cannot describe {what}.", action=action)
