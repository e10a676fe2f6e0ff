"""The work of ShuffleBench (Henning et al., ICPE 2024) in our own code: who gets a record, and what they keep.

A record is random bytes. Each consumer has a rule that a share of all records matches; a record goes to every consumer
whose rule it matches, by their key, through a repartition topic. A consumer keeps a state of 32 bytes and tells of it
with every tenth record. Unlike the original's it does not begin anew then, and keeps the earliest and the latest time
instead of the first and the last, so that what is left at the end does not depend on the order of arrival.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

OUTPUT_EVERY = 10
"""Records of a consumer for each that it tells."""
KEY_BYTES = 16
_SPACE = 1 << 63
_MASK = (1 << 64) - 1
_WORDS = struct.Struct(">QQ")
_STATE = struct.Struct(">qQqq")


class Rules:
    """One rule for each consumer: an arc of a ring of hashes. ``selectivity`` is the sum of the arcs' shares.

    ``Shuffle.java`` has the same rules.
    """

    def __init__(self, consumers: int, selectivity: float) -> None:
        self._width = int(selectivity / consumers * _SPACE)
        first = sorted((_mixed(number) % _SPACE, b"%016d" % number) for number in range(consumers))
        around = [(start - _SPACE, name) for start, name in first if start > _SPACE - self._width]
        self._starts = [start for start, _ in (*around, *first)]
        self._names = [name for _, name in (*around, *first)]
        self.matched_total = 0
        """Copies made so far: records for the consumers."""

    def addressed(self, value: bytes) -> list[bytes]:
        """The record once for each consumer that it goes to, behind the consumer's key."""
        place = _WORDS.unpack_from(value)[0] % _SPACE
        last = bisect_right(self._starts, place)
        first = bisect_right(self._starts, place - self._width, hi=last)
        self.matched_total += last - first
        return [name + value for name in self._names[first:last]]


def consumer_of(addressed: bytes) -> bytes:
    """The key in front of an addressed record."""
    return addressed[:KEY_BYTES]


def updated(state: bytes, addressed: bytes, timestamp_ms: int) -> tuple[bytes, bool]:
    """A consumer's state with one more record, and whether it is to be told.

    How many records, the sum of a number in each modulo 2^64, the earliest and the latest event time. A consumer
    without any has an empty state.
    """
    count, total, earliest_ms, latest_ms = (
        _STATE.unpack(state) if state else (0, 0, timestamp_ms, timestamp_ms)
    )
    number = _WORDS.unpack_from(addressed, KEY_BYTES)[1]
    new = _STATE.pack(
        count + 1, (total + number) & _MASK, min(earliest_ms, timestamp_ms), max(latest_ms, timestamp_ms)
    )
    return new, (count + 1) % OUTPUT_EVERY == 0


def _mixed(number: int) -> int:
    """A number of 64 bits that looks random: the finisher of SplitMix64 (Steele et al., OOPSLA 2014)."""
    mixed = ((number + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)
