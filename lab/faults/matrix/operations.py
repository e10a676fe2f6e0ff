"""Operations with ids of their own, and what must come of them: the oracle of the crash matrix.

All operations of a key go through one source partition, so their order is fixed when they are sent, and a hash over
them is the same whatever crashed and however often.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

PRODUCERS = 3


class Operation(NamedTuple):
    """One operation; producer and number together are its id."""

    key: str
    producer: str
    number: int

    @classmethod
    def parse(cls, text: str) -> Operation:
        """Read ``key producer number``."""
        key, producer, number = text.split()
        return cls(key, producer, int(number))

    def __str__(self) -> str:
        return f"{self.key} {self.producer} {self.number}"


class Tally(NamedTuple):
    """What is kept of a key's operations: how many, and a hash that depends on their order."""

    total: int = 0
    digest: int = 0

    def after(self, operation: Operation) -> Tally:
        """With one more operation."""
        return Tally(self.total + 1, zlib.crc32(str(operation).encode(), self.digest))


@dataclass
class Oracle:
    """What everything that was sent must have led to."""

    sent: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    """Key → its operations in their order."""

    def add(self, operations: Iterable[Operation]) -> None:
        """Note what was sent."""
        for operation in operations:
            self.sent[operation.key].append(operation)

    @property
    def operations_total(self) -> int:
        """How many were sent."""
        return sum(map(len, self.sent.values()))

    def tallies(self) -> dict[str, Tally]:
        """Key → what must be kept of it."""
        found = {}
        for key, operations in self.sent.items():
            tally = Tally()
            for operation in operations:
                tally = tally.after(operation)
            found[key] = tally
        return found

    def numbers(self, key: str, producer: str) -> set[int]:
        """Numbers of everything that a producer sent for a key."""
        return {operation.number for operation in self.sent[key] if operation.producer == producer}

    def last_numbers(self) -> dict[tuple[str, str], int]:
        """Key and producer → the producer's last number there."""
        return {
            (key, operation.producer): operation.number
            for key, operations in self.sent.items()
            for operation in operations
        }


class Operations:
    """An endless history drawn from a seed: few keys, some of them hot."""

    def __init__(self, seed: int, keys: int = 9) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a history, not a secret
        self._keys = keys
        self._numbers = dict.fromkeys((f"p{index}" for index in range(PRODUCERS)), 0)

    def take(self, count: int) -> Iterator[Operation]:
        """The next operations."""
        for _ in range(count):
            hot = self._random.random() < 0.5
            key = self._random.randrange(2 if hot else self._keys)
            yield self._of(f"k{key}")

    def one_each(self, count: int) -> Iterator[Operation]:
        """One operation for each of many keys that no other operation has."""
        for index in range(count):
            yield self._of(f"bulk{index}")

    def _of(self, key: str) -> Operation:
        producer = self._random.choice(list(self._numbers))
        self._numbers[producer] += 1
        return Operation(key, producer, self._numbers[producer])


def source_partition(key: str, partitions: int) -> int:
    """Where all operations of a key are sent."""
    return zlib.crc32(key.encode()) % partitions
