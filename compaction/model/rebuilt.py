"""Batches that a pass goes through, and those that lose some of their records in it and have to be built anew.

A record that was written τ·L updates ago, of L live ones, is still the newest of its key with probability s(τ). A new
batch of b records, met by its first pass, is rebuilt unless all of its records live (sᵇ) or none does ((1 − s)ᵇ). One
that was cleaned before is rebuilt when a record that lived then does no more, and another still does. Both are summed
over the ages that there are.

With keys drawn alike s = e^−τ; by Zipf's law (p = 1/(k·H) for the k-th of K keys, H = Σ 1/k), s is the sum of
p·e^(−p·K·τ), which is (E₁(τ/H) − E₁(K·τ/H)) / H. How keys are drawn is not known of a topic: it is taken to be halfway
between the two, which are up to 1.5 and 2 times apart.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

_STEPS_NEW, _STEPS_OLD = 12, 40
_GRID = 10
"""Steps of the logarithm at which values are computed; a straight line between them is right to a permille."""
_KEYS = 1000
"""Of Zipf's law, which hardly depends on it."""
_HARMONIC = math.log(_KEYS) + 0.5772


class Rebuilt(NamedTuple):
    """What one pass builds anew."""

    batches: float
    records: float
    """That are left in them."""


class _Keys(NamedTuple):
    """How keys are drawn."""

    lives: Callable[[float], float]
    oldest: float
    """Age, in terms of L, beyond which hardly a record lives."""


def rebuilt(in_batch: float, live: float, dirty: float) -> Rebuilt:
    """Of batches of so many records on average, with so many live records, and so many that are new in the pass."""
    if in_batch <= 1 or live < 1 or dirty < 1:
        return Rebuilt(0.0, 0.0)
    at = _GRID * math.log(dirty / live)
    least = math.floor(in_batch)
    share = in_batch - least  # of batches that have a record more
    few, more = _between(least, at), _between(least + 1, at)
    count = live / in_batch
    batches = count * ((1 - share) * few.batches + share * more.batches)
    return Rebuilt(batches, count * ((1 - share) * few.records + share * more.records))


def holding(in_batch: float, live: float) -> float:
    """Batches of the cleaned part: those that hold a record that lives, of so many records each when written."""
    if in_batch <= 1:
        return live
    least = math.floor(in_batch)
    share = in_batch - least
    return live / in_batch * ((1 - share) * _holding_per_live(least) + share * _holding_per_live(least + 1))


@functools.lru_cache(maxsize=1024)
def _holding_per_live(size: int) -> float:
    """Where there are as many batches as live records."""
    return (holding_of(ALIKE, size) + holding_of(ZIPF, size)) / 2


def holding_of(keys: _Keys, size: int) -> float:
    """The same for keys that are drawn so."""
    return math.fsum(
        (high - low) * (1 - math.pow(1 - keys.lives((low + high) / 2), size))
        for low, high in _ages(keys, size)
    )


@functools.lru_cache(maxsize=256)
def _ages(keys: _Keys, size: int) -> list[tuple[float, float]]:
    """Ages of batches, in steps that grow with it, as what is young changes soonest."""
    oldest = keys.oldest * (1 + math.log(size) / 10)
    edges = [oldest * (at / _STEPS_OLD) ** 3 for at in range(_STEPS_OLD + 1)]
    return list(itertools.pairwise(edges))


@functools.lru_cache(maxsize=256)
def _lived(keys: _Keys, size: int) -> list[float]:
    """The share of a batch that lives at each of these ages."""
    return [keys.lives((low + high) / 2) for low, high in _ages(keys, size)]


def _between(size: int, at: float) -> Rebuilt:
    """``_per_live`` between two of its steps."""
    step = math.floor(at)
    part = at - step
    low, high = _per_live(size, step), _per_live(size, step + 1)
    return Rebuilt(
        low.batches + part * (high.batches - low.batches), low.records + part * (high.records - low.records)
    )


@functools.lru_cache(maxsize=4096)
def _per_live(size: int, step: int) -> Rebuilt:
    """Where there are as many batches as live records, all of one size; ``step`` tells new records for each of them."""
    alike, unlike = (of_keys(keys, size, math.exp(step / _GRID)) for keys in (ALIKE, ZIPF))
    return Rebuilt((alike.batches + unlike.batches) / 2, (alike.records + unlike.records) / 2)


def of_keys(keys: _Keys, size: int, new: float) -> Rebuilt:
    """The same for keys that are drawn so, with so many new records for each live one."""
    batches = records = 0.0
    for number in range(_STEPS_NEW):
        lives = keys.lives(new * (number + 0.5) / _STEPS_NEW)
        whole = math.pow(lives, size)
        batches += new / _STEPS_NEW * (1 - math.pow(1 - lives, size) - whole)
        records += new / _STEPS_NEW * size * (lives - whole)
    for (low, high), lived in zip(_ages(keys, size), _lived(keys, size), strict=True):
        lives = keys.lives((low + high) / 2 + new)
        unhurt = math.pow(1 - lived + lives, size) - math.pow(1 - lived, size)
        batches += (high - low) * (1 - math.pow(1 - lives, size) - unhurt)
        records += (high - low) * size * lives * (1 - math.pow(1 - lived + lives, size - 1))
    return Rebuilt(batches, records)


def _lives_by_zipf(age: float) -> float:
    if age <= 0:
        return 1.0
    share = _exponential_integral(age / _HARMONIC) - _exponential_integral(_KEYS * age / _HARMONIC)
    return min(1.0, share / _HARMONIC)


def _exponential_integral(x: float) -> float:
    """E₁, to a hundredth of a percent (Abramowitz and Stegun, 5.1.53 and 5.1.54)."""
    if x <= 1:
        powers = (-0.57721566, 0.99999193, -0.24991055, 0.05519968, -0.00976004, 0.00107857)
        return math.fsum(factor * x**power for power, factor in enumerate(powers)) - math.log(x)
    above, below = x * x + 2.334733 * x + 0.250621, x * x + 3.330657 * x + 1.681534
    return math.exp(-x) / x * above / below


ALIKE = _Keys(lambda age: math.exp(-age), 12.0)
ZIPF = _Keys(_lives_by_zipf, 12.0 * _HARMONIC)
