"""Counting different keys in constant memory: exact up to a limit, then by the k smallest hashes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

HASH_SPACE = float(2**64)
_SHIFT = 2**63


class KeySketch:
    """The newest record of the keys with the smallest hashes, of a log read in offset order.

    K minimum values (Bar-Yossef et al., 2002): with k hashes kept, the number of keys is known to about
    1 / √(k − 2). Below k keys it is exact. Hashes are Python's own (SipHash, seeded per process).
    """

    def __init__(self, keys_max: int = 65_536) -> None:
        assert keys_max >= 16
        self._keys_max = keys_max
        self._threshold = 2**64
        self._is_tombstone: dict[int, bool] = {}

    def add(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        """Take records in the order of the log; a record without a key is passed over."""
        kept, threshold = self._is_tombstone, self._threshold
        for key, value in zip(keys, values, strict=True):
            if key is None:
                continue
            hashed = hash(key) + _SHIFT
            if hashed < threshold:
                kept[hashed] = value is None
        if len(kept) > 2 * self._keys_max:
            self._shrink()

    def _shrink(self) -> None:
        smallest = heapq.nsmallest(self._keys_max, self._is_tombstone)
        self._threshold = smallest[-1] + 1
        self._is_tombstone = {hashed: self._is_tombstone[hashed] for hashed in smallest}

    @property
    def is_exact(self) -> bool:
        """True when every key was kept."""
        return self._threshold == 2**64

    @property
    def relative_error(self) -> float:
        """One standard deviation of :meth:`distinct`; 0 when exact."""
        return 0.0 if self.is_exact else 1 / math.sqrt(self._keys_max - 2)

    def distinct(self) -> int:
        """Number of different keys, tombstoned ones included."""
        return round(len(self._is_tombstone) * HASH_SPACE / self._threshold)

    def tombstones(self) -> int:
        """Number of keys whose newest record is a tombstone."""
        gone = sum(self._is_tombstone.values())
        return round(gone * HASH_SPACE / self._threshold)
