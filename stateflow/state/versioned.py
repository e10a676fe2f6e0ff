"""A value per key with its history in event time: what it is, and what it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from stateflow.codec.base import Codec
from stateflow.codec.optional import OptionalCodec
from stateflow.state.layout import prefix_end, prefixed_key, split_prefixed
from stateflow.state.path import instant, instant_of
from stateflow.state.scope import Scope
from stateflow.store.base import StateStore
from stateflow.times import whole_time_ms

T = TypeVar("T")

Instant = datetime | int
"""A moment in event time: an aware datetime, or ms since 1970 UTC."""

ENTRIES_PER_STEP = 2_000
_PASSES_PER_HISTORY = 10
_CLEARED = b"\x00"
"""What ``OptionalCodec`` writes for "there is none"."""


class Version(NamedTuple, Generic[T]):
    """A value and the event time, ms, from which it holds; None where it was cleared."""

    at_ms: int
    value: T | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What of a history is kept: at least one of the first two is set."""

    history_ms: int | None
    """Reads as of this long before event time stay exact."""
    max_versions: int | None
    """As many versions at most, the newest."""
    ttl_ms: int | None
    """A version holds no longer than this."""

    def holds(self, at_ms: int, now_ms: int) -> bool:
        """Whether a version of ``at_ms`` still holds at ``now_ms``."""
        return self.ttl_ms is None or now_ms < at_ms + self.ttl_ms


class Versioned(Generic[T]):
    """The current key's value and what it was before. What is read is a copy.

    Entry ``prefix ‖ instant`` holds one version, the newest first, so a read as of any time is one seek. Late
    writes take their place in the order of event time. Writing costs one write, and with ``max_versions`` a scan
    over as many.
    """

    def __init__(self, store: StateStore, scope: Scope, codec: Codec[Any], retention: Retention) -> None:
        self._store = store
        self._scope = scope
        self._codec: Codec[Any] = OptionalCodec(codec)
        self._retention = retention

    def get(self, at: Instant | None = None) -> T | None:
        """The newest value; with ``at`` the one that held then. None where there was none, or it is forgotten.

        Raises ``ValueError`` or ``TypeError`` for what is no moment, such as a datetime without a time zone.
        """
        found = self.version(at)
        return None if found is None else found.value

    def version(self, at: Instant | None = None) -> Version[T] | None:
        """As ``get``, with the time from which it holds; its value is None from a moment of clearing on."""
        prefix = prefixed_key(self._scope.key)
        at_ms = self._scope.as_of_ms if at is None else whole_time_ms(at, "at")
        first = prefix if at is None else prefix + instant(at_ms)
        for key, data in islice(self._store.scan(first, prefix_end(prefix)), 1):
            since_ms = instant_of(key[len(prefix) :])
            if self._retention.holds(since_ms, at_ms):
                return Version(since_ms, self._codec.decode(data))
        return None

    def set(self, value: T | None, at: Instant | None = None) -> None:
        """From ``at`` on (the current record's event time) the value is this, until the next version; None clears.

        A write that is too late to be kept changes nothing (``is_too_late``). Raises ``EncodeError``.
        """
        prefix = prefixed_key(self._scope.key)
        at_ms = self._scope.timestamp_ms if at is None else whole_time_ms(at, "at")
        data = self._codec.encode(value)
        if self.is_too_late(at_ms):
            return
        self._store.put(prefix + instant(at_ms), data)
        if self._retention.max_versions is not None:
            self._drop_beyond(prefix, self._retention.max_versions)

    def clear(self, at: Instant | None = None) -> None:
        """From ``at`` on there is no value; what was before stays readable."""
        self.set(None, at)

    def history(self, first: Instant | None = None, after: Instant | None = None) -> list[Version[T]]:
        """The versions with ``first`` ≤ time < ``after``, oldest first, the moments of clearing among them."""
        prefix = prefixed_key(self._scope.key)
        newest = prefix if after is None else prefix + instant(whole_time_ms(after, "after") - 1)
        oldest = prefix_end(prefix) if first is None else prefix + instant(whole_time_ms(first, "first") - 1)
        found = [
            Version(instant_of(key[len(prefix) :]), self._codec.decode(data))
            for key, data in self._store.scan(newest, oldest)
        ]
        return found[::-1]

    def forget(self) -> None:
        """Remove the value with all of its history."""
        prefix = prefixed_key(self._scope.key)
        self._store.put_many([(key, None) for key, _ in self._entries(prefix)])

    def is_too_late(self, at_ms: int) -> bool:
        """Whether a write of that time is not kept, whatever has been deleted by now.

        One later than the history is not where a later version already holds at the beginning of what is kept. One
        later than that by another history never is: a later moment of clearing may be forgotten by then.
        """
        history_ms = self._retention.history_ms
        if history_ms is None or at_ms >= self._scope.as_of_ms - history_ms:
            return False
        horizon_ms = self._scope.as_of_ms - history_ms
        if at_ms <= horizon_ms - history_ms or not self._retention.holds(at_ms, horizon_ms):
            return True
        prefix = prefixed_key(self._scope.key)
        later = self._store.scan(prefix + instant(horizon_ms), prefix + instant(at_ms))
        return any(True for _ in islice(later, 1))

    def __len__(self) -> int:
        """Number of versions kept."""
        return sum(1 for _ in self._entries(prefixed_key(self._scope.key)))

    def _entries(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self._store.scan(prefix, prefix_end(prefix))))

    def _drop_beyond(self, prefix: bytes, count: int) -> None:
        entries = self._store.scan(prefix, prefix_end(prefix))
        doomed = [key for key, _ in islice(entries, count, None)]
        if doomed:
            self._store.put_many([(key, None) for key in doomed])


class HistoryExpiry:
    """Deletes what no read may ask for any more, with tombstones, by bounded steps over the store.

    A version goes when the one after it was already there at the beginning of what is kept, or when its time to
    live was over then. A moment of clearing that has become the oldest entry goes one history later still: no write
    is taken any more that it would clear. While an older entry is there it stays, since a pass may end between the
    two, and the older one would hold again.
    """

    def __init__(self, store: StateStore, retention: Retention) -> None:
        self._store = store
        self._retention = retention
        self._every_ms = (retention.history_ms or retention.ttl_ms or 0) // _PASSES_PER_HISTORY
        self._pass_began_ms: int | None = None
        self._cursor: bytes | None = None
        """Where the pass goes on; None between passes."""
        self._key: bytes | None = None
        """The routing key that the pass is in, and whether it has met what holds at the horizon."""
        self._is_covered = False
        self._clearing: bytes | None = None
        """A moment of clearing that goes unless an older entry of its key is next."""

    def advance(self, watermark_ms: int) -> None:
        """Event time has moved on: do one step of a pass, or begin one when it is due."""
        if self._cursor is None and not self._begins_pass(watermark_ms):
            return
        horizon_ms = watermark_ms - (self._retention.history_ms or 0)
        entries = self._store.range(self._cursor or b"", None, ENTRIES_PER_STEP)
        doomed: list[bytes] = []
        for key, data in entries:
            if self._is_over(key, data, horizon_ms, doomed):
                doomed.append(key)
        self._cursor = entries[-1][0] + b"\0" if len(entries) == ENTRIES_PER_STEP else None
        if self._cursor is None:
            self._forget_clearing(doomed)
        if doomed:
            self._store.put_many([(key, None) for key in doomed])

    def _is_over(self, store_key: bytes, data: bytes, horizon_ms: int, doomed: list[bytes]) -> bool:
        key, rest = split_prefixed(store_key)
        if key != self._key:
            self._forget_clearing(doomed)
            self._key, self._is_covered = key, False
        self._clearing = None
        at_ms = instant_of(rest)
        if not self._retention.holds(at_ms, horizon_ms):
            return True
        if self._retention.history_ms is None or at_ms > horizon_ms:
            return False
        was_covered, self._is_covered = self._is_covered, True
        if not was_covered and data == _CLEARED and at_ms <= horizon_ms - self._retention.history_ms:
            self._clearing = store_key
        return was_covered

    def _forget_clearing(self, doomed: list[bytes]) -> None:
        """The key that the pass was in has no older entry."""
        if self._clearing is not None:
            doomed.append(self._clearing)
        self._clearing = None

    def _begins_pass(self, watermark_ms: int) -> bool:
        began = self._pass_began_ms
        if watermark_ms < 0 or (began is not None and watermark_ms - began < self._every_ms):
            return False
        self._pass_began_ms, self._key, self._clearing = watermark_ms, None, None
        return True
