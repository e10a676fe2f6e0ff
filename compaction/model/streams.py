"""Made-up changelogs for studies and simulations: the same records for the same seed, as fold-left or retain-all.

*Fold-left* keeps one accumulator per key, written anew at every update. *Retain-all* keeps every element of a
window under a key of its own, and deletes them all, with tombstones, when the window closes (Samza's terms).
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stateflow.compaction.model.workload import zipf_weights
from stateflow.partitioner import partition_of

_KEY_BYTES = 20
"""Of an element of retain-all: a digest, which compresses no more than random bytes, so that sizes are known."""
TOMBSTONE_BYTES = _KEY_BYTES + 10.0
"""On disk, of a tombstone of retain-all among others of its batch."""

_DRAWN = 10_000
"""Keys that are drawn at a time: part of what a seed stands for."""

State = Literal["fold-left", "retain-all"]


class Update(NamedTuple):
    """One change of state: when, which key, how many bytes of value; None deletes the key."""

    seconds: float
    partition: int
    key: bytes
    value_bytes: int | None


@dataclass(frozen=True, slots=True)
class RateStep:
    """From this moment on the stream runs at this many updates per second."""

    from_seconds: float
    updates_per_second: float


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of updates; two iterations give the same records."""

    keys: int = 10_000
    partitions: int = 1
    rates: tuple[RateStep, ...] = (RateStep(0.0, 4000.0),)
    seconds: float = 40.0
    zipf_exponent: float | None = 0.99
    """None draws keys uniformly."""
    value_bytes: tuple[int, int] = (100, 1000)
    state: State = "fold-left"
    window_seconds: float = 10.0
    """Of retain-all."""
    tombstone_share: float = 0.0
    """Of fold-left: share of updates that delete the key."""
    seed: int = 1

    def updates(self) -> Iterator[Update]:
        """The updates in the order of time."""
        return self._retain_all() if self.state == "retain-all" else self._fold_left()

    def times(self) -> Iterator[float]:
        """When updates happen: evenly spaced at the rate of the moment."""
        for step, count in self._counts():
            for index in range(count):
                yield step.from_seconds + index / step.updates_per_second

    def mean_rate(self) -> float:
        """Updates per second over the whole stream."""
        return self._count() / self.seconds

    def _counts(self) -> Iterator[tuple[RateStep, int]]:
        """How many updates each step of the rate brings."""
        steps = [*self.rates, RateStep(self.seconds, 0.0)]
        for step, following in itertools.pairwise(steps):
            seconds = min(following.from_seconds, self.seconds) - step.from_seconds
            yield step, round(seconds * step.updates_per_second)

    def _draws(self, random_source: random.Random) -> Iterator[int]:
        drawn = min(_DRAWN, self._count()) if self._draws_keys_alone else _DRAWN
        if self.zipf_exponent is None:
            while True:
                yield from random_source.choices(range(self.keys), k=drawn)
        order = list(range(self.keys))
        random_source.shuffle(order)
        sums = list(itertools.accumulate(zipf_weights(self.keys, self.zipf_exponent)))
        while True:
            yield from random_source.choices(order, cum_weights=sums, k=drawn)

    @property
    def _draws_keys_alone(self) -> bool:
        """Whether all keys are drawn at once and nothing else is: no more need then be drawn than are used."""
        low, high = self.value_bytes
        return low == high and not self.tombstone_share and self._count() <= _DRAWN

    def _count(self) -> int:
        return sum(max(0, count) for _, count in self._counts())

    def _fold_left(self) -> Iterator[Update]:
        source = random.Random(self.seed)  # noqa: S311 - made-up data, repeatable on purpose
        names = [b"key-%08d" % number for number in range(self.keys)]
        homes = self._homes(names)
        value_bytes = self._value_sizes(source)
        if self.tombstone_share <= 0:
            for seconds, key, size in zip(self.times(), self._draws(source), value_bytes, strict=False):
                yield Update(seconds, homes[key], names[key], size)
            return
        for seconds, key in zip(self.times(), self._draws(source), strict=False):
            gone = source.random() < self.tombstone_share
            yield Update(seconds, homes[key], names[key], None if gone else next(value_bytes))

    def _retain_all(self) -> Iterator[Update]:
        source = random.Random(self.seed)  # noqa: S311 - made-up data, repeatable on purpose
        homes = self._homes([b"key-%08d" % number for number in range(self.keys)])
        value_bytes = self._value_sizes(source)
        window = 0
        open_elements: list[tuple[int, bytes]] = []
        for sequence, (seconds, key) in enumerate(zip(self.times(), self._draws(source), strict=False)):
            if int(seconds // self.window_seconds) != window:
                window = int(seconds // self.window_seconds)
                for partition, name in open_elements:
                    yield Update(seconds, partition, name, None)
                open_elements = []
            partition = homes[key]
            name = hashlib.blake2b(b"%d/%d/%d" % (key, window, sequence), digest_size=_KEY_BYTES).digest()
            open_elements.append((partition, name))
            yield Update(seconds, partition, name, next(value_bytes))

    def _homes(self, names: list[bytes]) -> list[int]:
        return [partition_of(name, self.partitions) if self.partitions > 1 else 0 for name in names]

    def _value_sizes(self, random_source: random.Random) -> Iterator[int]:
        low, high = self.value_bytes
        if self._draws_keys_alone:
            return itertools.repeat(low)
        return (random_source.randint(low, high) for _ in itertools.count())
