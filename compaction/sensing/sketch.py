"""Counting different keys in constant memory: exact up to a limit, then by the k smallest hashes."""

from __future__ import annotations

import math
from collections.abc import Sequence

HASH_SPACE = float(2**64)
_LOWEST = -(2**63)
"""Hashes are signed."""


class KeySketch:
    """The newest record of the keys with the smallest hashes, of a log read in offset order.

    K minimum values (Bar-Yossef et al., 2002): with k hashes kept, the number of keys is known to about
    1 / √(k − 2). Below k keys it is exact. Hashes are Python's own (SipHash, seeded per process).
    """

    def __init__(self, keys_max: int = 65_536) -> None:
        assert keys_max >= 16
        self._keys_max = keys_max
        self._threshold = -_LOWEST
        """Hashes below it are kept."""
        self._deleted_ms: dict[int, int | None] = {}
        """When the newest record of the key was written, if it is a tombstone."""

    def add(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
    ) -> None:
        """Take records in the order of the log; a record without a key is passed over."""
        # Whole columns at a time: a log has millions of records, nearly all of them with a key and a value.
        if None in keys or None in values:
            self._add_with_tombstones(keys, values, timestamps_ms)
        else:
            below = self._threshold
            self._deleted_ms.update(dict.fromkeys([one for one in map(hash, keys) if one < below]))
        if len(self._deleted_ms) > 2 * self._keys_max:
            self._shrink()

    def _add_with_tombstones(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
    ) -> None:
        rows = zip(map(hash, keys), keys, values, timestamps_ms, strict=True)
        self._deleted_ms.update(
            {
                hashed: at_ms if value is None else None
                for hashed, key, value, at_ms in rows
                if hashed < self._threshold and key is not None
            }
        )

    def _shrink(self) -> None:
        smallest = sorted(self._deleted_ms)[: self._keys_max]
        self._threshold = smallest[-1] + 1
        self._deleted_ms = {hashed: self._deleted_ms[hashed] for hashed in smallest}

    @property
    def is_exact(self) -> bool:
        """True when every key was kept."""
        return self._threshold == -_LOWEST

    @property
    def relative_error(self) -> float:
        """One standard deviation of :meth:`distinct`; 0 when exact."""
        return 0.0 if self.is_exact else 1 / math.sqrt(self._keys_max - 2)

    def distinct(self) -> int:
        """Number of different keys, tombstoned ones included."""
        return round(len(self._deleted_ms) * self.scale)

    def tombstones(self) -> int:
        """Number of keys whose newest record is a tombstone."""
        return round(len(self.tombstone_times_ms()) * self.scale)

    def tombstone_times_ms(self) -> list[int]:
        """When the tombstones among the kept keys were written; each stands for ``scale`` of them."""
        return [at_ms for at_ms in self._deleted_ms.values() if at_ms is not None]

    @property
    def scale(self) -> float:
        """Keys for which one kept key stands."""
        return HASH_SPACE / (self._threshold - _LOWEST)
