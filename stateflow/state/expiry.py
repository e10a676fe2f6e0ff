"""Time to live, in event time: what was not written for so long is gone.

State is read as of the event time that has come with a record or a timer. An expired entry is invisible at once; it is
deleted later, with a tombstone in the changelog, a bounded number in each turn of the task and the oldest first, but
never before a timer has fired that may see it. Which ones are due is known from an index in memory of those that
expire soonest, filled by a pass over the store. A pass looks at a bounded number of entries per turn, and deletes what
it finds expired. It begins when event time reaches something that the index may not know: what was written since the
last pass, or what did not fit in. So a store whose live entries fit into the index is looked through once per time
to live; a larger one at most ten times, as if there were no index.
"""

from __future__ import annotations

from stateflow.codec.timed import (
    NEVER_MS,
    TIME_BYTES,
    TIMES_BYTES,
    stamp,
    stamp_both,
    time_of,
    times_of,
)
from stateflow.state.soonest import Soonest
from stateflow.store.base import StateStore

ENTRIES_PER_STEP = 2_000
"""Entries that one turn deletes at most, and as many that it looks at."""
INDEX_ENTRIES_MAX = 20_000
_PASSES_PER_TTL = 10
_PASS_INTERVAL_MS = 10_000
"""Where every write has a time to live of its own."""


class Expiry:
    """Stamps the values of one store, hides the expired ones, and deletes them.

    With ``per_write`` each value carries when it expires, and ``ttl_ms`` is for those written without a time to
    live of their own: None means never.
    """

    def __init__(
        self,
        store: StateStore,
        ttl_ms: int | None,
        *,
        per_write: bool = False,
        entries_max: int = INDEX_ENTRIES_MAX,
    ) -> None:
        assert per_write or ttl_ms is not None, "a store without any time to live needs no expiry"
        self.per_write = per_write
        self._store = store
        self._ttl_ms = ttl_ms
        self._interval_ms = _PASS_INTERVAL_MS if ttl_ms is None else ttl_ms // _PASSES_PER_TTL
        self._soonest = Soonest(entries_max)
        self._unseen_ms = NEVER_MS
        """When the first entry expires that was written since the last pass began."""
        self._began_ms: int | None = None
        self._near = b""
        self._start = b""
        self._cursor: bytes | None = None
        """Where the pass goes on; None between passes."""
        self._until: bytes | None = None

    def stamped(self, data: bytes, timestamp_ms: int, ttl_ms: int | None = None) -> bytes:
        """Bytes to store for a value written now; ``ttl_ms`` is its own, where values have their own."""
        expires_ms = self._expires_ms(timestamp_ms, ttl_ms)
        self._unseen_ms = min(self._unseen_ms, expires_ms)
        return stamp_both(data, timestamp_ms, expires_ms) if self.per_write else stamp(data, timestamp_ms)

    def written_ms(self, before: bytes | None, timestamp_ms: int, as_of_ms: int) -> int:
        """When a write counts as made: at its record's time, or that of what it replaces, if that is later and lives.

        So a record that comes late does not shorten the life of what newer ones wrote.
        """
        if before is None or self.expires_ms(before) <= as_of_ms:
            return timestamp_ms
        return max(timestamp_ms, time_of(before))

    def live(self, stored: bytes | None, as_of_ms: int) -> bytes | None:
        """The value inside stored bytes; None when it is absent or expired by then."""
        if stored is None or self.expires_ms(stored) <= as_of_ms:
            return None
        return stored[TIMES_BYTES if self.per_write else TIME_BYTES :]

    def expires_ms(self, stored: bytes) -> int:
        """Event time from which a stored value is gone."""
        if self.per_write:
            return times_of(stored)[1]
        return self._expires_ms(time_of(stored), None)

    def look_near(self, store_key: bytes) -> None:
        """Where the next pass begins; it comes round to the rest.

        Tasks that live for one batch only (on Spark) never finish a pass over much state: beginning each at another
        key that is in use, they get everywhere all the same.
        """
        self._near = store_key

    def advance(self, watermark_ms: int) -> None:
        """Event time is now this: delete the oldest of what has expired, and go on with a pass or begin one."""
        if watermark_ms < 0:
            return
        self._delete_oldest(watermark_ms)
        if self._cursor is None and self._pass_is_due(watermark_ms):
            self._begin_pass(watermark_ms)
        if self._cursor is not None:
            self._go_on(self._cursor, watermark_ms)

    # --- inside ---------------------------------------------------------------------------------------

    def _expires_ms(self, timestamp_ms: int, ttl_ms: int | None) -> int:
        ttl_ms = self._ttl_ms if ttl_ms is None else ttl_ms
        return NEVER_MS if ttl_ms is None else timestamp_ms + ttl_ms

    def _delete_oldest(self, watermark_ms: int) -> None:
        due: list[bytes] = []
        while len(due) < ENTRIES_PER_STEP and (entry := self._soonest.pop(watermark_ms)) is not None:
            due.append(entry[1])
        if not due:
            return
        due.sort()
        expired: list[tuple[bytes, None]] = []
        for key, stored in zip(due, self._store.get_many(due), strict=True):
            if stored is not None and self._is_expired(key, stored, watermark_ms):
                expired.append((key, None))
        self._store.put_many(expired)

    def _is_expired(self, key: bytes, stored: bytes, watermark_ms: int) -> bool:
        """Tell, and note when it will be if it is not."""
        expires_ms = self.expires_ms(stored)
        if expires_ms <= watermark_ms:
            return True
        if expires_ms != NEVER_MS:
            self._soonest.add(key, expires_ms)
        return False

    def _pass_is_due(self, watermark_ms: int) -> bool:
        if self._began_ms is None:
            return True
        if watermark_ms - self._began_ms < self._interval_ms:
            return False
        return self._unseen_ms <= watermark_ms or self._soonest.is_exhausted(watermark_ms)

    def _begin_pass(self, watermark_ms: int) -> None:
        self._began_ms, self._unseen_ms = watermark_ms, NEVER_MS
        self._soonest.clear()
        self._start = self._cursor = self._near
        self._until = None

    def _go_on(self, cursor: bytes, watermark_ms: int) -> None:
        entries = self._store.range(cursor, self._until, ENTRIES_PER_STEP)
        expired = [key for key, stored in entries if self._is_expired(key, stored, watermark_ms)]
        self._store.put_many([(key, None) for key in expired])
        if len(entries) == ENTRIES_PER_STEP:
            self._cursor = entries[-1][0] + b"\0"
        elif self._until is None and self._start:
            self._cursor, self._until = b"", self._start  # from the beginning to where it began
        else:
            self._cursor = None
