"""Time to live, in event time: what was not written for so long is gone.

An expired entry is invisible at once and deleted later, with a tombstone in the changelog, by a pass over the
store that begins whenever event time has moved on by a tenth of the time to live. A pass looks at a bounded
number of entries per step and keeps nothing in memory, so it costs the same for any amount of state.
"""

from __future__ import annotations

from itertools import islice

from stateflow.codec.timed import TIME_BYTES, stamp, time_of
from stateflow.store.base import StateStore

ENTRIES_PER_STEP = 2_000
_PASSES_PER_TTL = 10


class Expiry:
    """Stamps the values of one store, hides the expired ones, and deletes them."""

    def __init__(self, store: StateStore, ttl_ms: int) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._pass_began_ms: int | None = None
        self._cursor: bytes | None = None
        """Where the pass goes on; None between passes."""

    def stamped(self, data: bytes, timestamp_ms: int) -> bytes:
        """Bytes to store for a value written now."""
        return stamp(data, timestamp_ms)

    def live(self, stored: bytes | None, watermark_ms: int) -> bytes | None:
        """The value inside stored bytes; None when it is absent or expired."""
        if stored is None or time_of(stored) + self._ttl_ms <= watermark_ms:
            return None
        return stored[TIME_BYTES:]

    def advance(self, watermark_ms: int) -> None:
        """Event time has moved on: do one step of a pass, or begin one when it is due."""
        if self._cursor is None and not self._begins_pass(watermark_ms):
            return
        entries = list(islice(self._store.scan(self._cursor or b""), ENTRIES_PER_STEP))
        expired = [key for key, stored in entries if self.live(stored, watermark_ms) is None]
        self._store.put_many([(key, None) for key in expired])
        self._cursor = entries[-1][0] + b"\0" if len(entries) == ENTRIES_PER_STEP else None

    def _begins_pass(self, watermark_ms: int) -> bool:
        began = self._pass_began_ms
        if watermark_ms < 0 or (began is not None and watermark_ms - began < self._ttl_ms // _PASSES_PER_TTL):
            return False
        self._pass_began_ms = watermark_ms
        return True
