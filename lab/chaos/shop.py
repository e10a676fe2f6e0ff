"""The input of the study: orders and their payments, drawn from a seed, whose topics drift apart.

Nothing is late, so that the oracle needs no rules for it: whatever is sent has a time less than the grace behind
anything that was sent before, and a round is fed only when the one before it was processed. So it does not matter
either which input was idle meanwhile.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

BEGIN_MS = 1_700_049_600_000
WINDOW_MS = 10_000
GAP_MS = 3_000
GRACE_MS = 300_000
PAID_WITHIN_MS = 60_000
"""A payment so long after its order, and not before it, is joined with it."""

ORDER_PARTITIONS, PAYMENT_PARTITIONS = 3, 2

_SPAN_MS = 40_000
"""Event time of one round."""
_UNORDERED_MS = 15_000
_PAID_AFTER_MS = 90_000
"""Some payments come too late to be joined."""
_JUMP_MS = 900_000
"""Between two rounds, now and then: windows of before it close."""
_JUMPS = 0.5
_HELD_BACK = 0.4
"""How often the payments of a round are sent with the next one, if event time does not jump between them."""
_UNPAID, _PAID_TWICE = 0.15, 0.1
_CHUNKS_BEHIND = 3

assert 2 * _SPAN_MS + _UNORDERED_MS + _PAID_AFTER_MS < GRACE_MS, "something could be late"


@dataclass(frozen=True, slots=True)
class Order:
    """A customer orders something in a shop."""

    id: str
    customer: str
    shop: str
    cents: int


@dataclass(frozen=True, slots=True)
class Payment:
    """A customer pays an order, or a part of it."""

    id: str
    order: str
    customer: str
    cents: int


@dataclass(frozen=True, slots=True)
class Timed:
    """A record of the input, with its event time in ms."""

    at_ms: int
    value: Order | Payment

    @property
    def partition(self) -> int:
        """All records of a customer are in one partition of each topic, so their order is fixed."""
        partitions = ORDER_PARTITIONS if isinstance(self.value, Order) else PAYMENT_PARTITIONS
        return zlib.crc32(self.value.customer.encode()) % partitions


@dataclass
class Shop:
    """Draws the input, round by round: the same for the same seed and the same calls."""

    seed: int
    customers: int = 400
    shops: int = 80
    _from_ms: int = BEGIN_MS
    _number: int = 0
    _unsent: list[Timed] = field(default_factory=list)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"shop-{self.seed}")  # noqa: S311 - input to study with

    def round(self, orders: int, chunks: int, *, is_last: bool = False) -> Iterator[Sequence[Timed]]:
        """The records of one round, in as many chunks; payments come in later chunks than their orders."""
        rng = self._random
        jumps, holds_back = rng.random() < _JUMPS, rng.random() < _HELD_BACK
        held_back, self._unsent = self._unsent, []
        behind: list[list[Timed]] = [held_back, *([] for _ in range(chunks + _CHUNKS_BEHIND))]
        for chunk in range(chunks):
            first, count = chunk * orders // chunks, orders // chunks
            sent = [self._order(first + number, orders) for number in range(count)]
            for order in sent:
                behind[chunk + rng.randint(1, _CHUNKS_BEHIND)] += self._payments(order)
            yield [*sent, *behind[chunk]]
        left = [payment for later in behind[chunks:] for payment in later]
        if holds_back and not jumps and not is_last:
            self._unsent = left
        else:
            yield left
        self._from_ms += _SPAN_MS + (_JUMP_MS if jumps else 0)

    def _order(self, number: int, of: int) -> Timed:
        rng = self._random
        self._number += 1
        at_ms = self._from_ms + number * _SPAN_MS // of - rng.choice((0, 0, 0, rng.randrange(_UNORDERED_MS)))
        customer, shop = rng.randrange(self.customers), rng.randrange(self.shops)
        return Timed(at_ms, Order(f"o{self._number}", f"c{customer}", f"s{shop}", rng.randrange(1, 10_000)))

    def _payments(self, order: Timed) -> Iterator[Timed]:
        assert isinstance(order.value, Order)
        rng, what = self._random, order.value
        drawn = rng.random()
        times = 0 if drawn < _UNPAID else 2 if drawn < _UNPAID + _PAID_TWICE else 1
        for part in range(times):
            at_ms = order.at_ms + int(_PAID_AFTER_MS * rng.random() ** 2)
            yield Timed(at_ms, Payment(f"{what.id}.{part}", what.id, what.customer, what.cents // times))
