"""Timers of an operator, kept in state: per key and name, due in event time or by the clock.

Entry ``prefix ‖ name`` holds one timer, so setting it again replaces it. It is logged and restored like any other
state and moves with its key. What is due next is known from an index that is derived: built by one scan when the
task opens, and anew from the store where more timers are pending than it may hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from stateflow.catalog.model import StoreEntry
from stateflow.clock import Clock
from stateflow.codec.base import Codec
from stateflow.codec.scalar import String
from stateflow.codec.timer import EncodedTimer, Timer, TimerTime
from stateflow.state.layout import prefix_end, prefixed_key, split_prefixed
from stateflow.state.scope import Scope
from stateflow.state.soonest import ENTRIES_MAX, Soonest
from stateflow.store.base import StateStore

NAME_BYTES_MAX = 250


def timers_entry(store: str, key_codec: Codec[Any]) -> StoreEntry:
    """The store of an operator's timers as the catalog describes it; the stage is filled in later."""
    return StoreEntry(
        name=store,
        stage="",
        kind="timers",
        layout="prefixed",
        key_codec=key_codec.describe(),
        value_codec={**EncodedTimer.describe(), "map_key": String.describe()},
    )


class DueTimer(NamedTuple):
    """A timer whose time has come."""

    key: bytes
    """Routing key."""
    name: str
    timer: Timer
    store_key: bytes


class Timers:
    """The timers of one task. Setting and cancelling work on the current key."""

    def __init__(self, store: StateStore, scope: Scope, clock: Clock, entries_max: int = ENTRIES_MAX) -> None:
        self._store = store
        self._scope = scope
        self._clock = clock
        self._soonest: dict[TimerTime, Soonest] = {
            "event": Soonest(entries_max),
            "processing": Soonest(entries_max),
        }
        self._aside: dict[bytes, list[tuple[int, bytes]]] = {}
        """What came up in the index between two turns, by routing key, the soonest first: due, or put off since."""
        self._fill("event", "processing")

    def set(self, name: str, due_ms: int, time: TimerTime) -> None:
        """Set a timer of the current key, in place of one of that name. Raises ``ValueError`` for a bad name."""
        store_key = self._store_key(name)
        before = self._read(store_key)
        if before is None or (before.time, before.due_ms) != (time, due_ms):
            self._store.put(store_key, EncodedTimer.encode(Timer(time, due_ms, self._scope.as_of_ms)))
            self._soonest[time].add(store_key, due_ms)

    def cancel(self, name: str) -> None:
        """Drop a timer of the current key; one that is not set is not an error."""
        store_key = self._store_key(name)
        if self._store.get(store_key) is not None:
            self._store.delete(store_key)

    def done(self, due: DueTimer) -> None:
        """It fires: it is pending no longer."""
        self._store.delete(due.store_key)

    def may_be_due(self, watermark_ms: int, now_ms: int) -> bool:
        """False when certainly none is due."""
        self._put_back()
        return self._soonest["event"].may_be_due(watermark_ms) or self._soonest["processing"].may_be_due(
            now_ms
        )

    def next_due(self, watermark_ms: int) -> DueTimer | None:
        """The soonest timer that is due, those of event time first; it stays pending until ``done``."""
        self._put_back()
        return self._next("event", watermark_ms) or self._next("processing", self._clock.now_ms())

    def none_before_ms(self, watermark_ms: int) -> int:
        """Event time up to which certainly none is pending, the watermark at most."""
        self._put_back()
        first_ms = self._soonest["event"].first_ms
        return watermark_ms if first_ms is None else min(watermark_ms, first_ms)

    def last_due_ms(self) -> int:
        """When the last of those in event time is due, −1 without any; looks at all of them."""
        return max((timer.due_ms for _, timer in self._pending() if timer.time == "event"), default=-1)

    def may_be_due_of(self, key: bytes, watermark_ms: int) -> bool:
        """False when certainly none of one key is due in event time."""
        event = self._soonest["event"]
        if event.may_be_due(watermark_ms):
            while (entry := event.pop(watermark_ms)) is not None:
                heappush(self._aside.setdefault(split_prefixed(entry[1])[0], []), entry)
            if event.is_exhausted(watermark_ms):
                return True
        return key in self._aside

    def next_due_of(self, key: bytes, watermark_ms: int) -> DueTimer | None:
        """The soonest of one key that is due in event time; call ``done`` before anything else."""
        if not self.may_be_due_of(key, watermark_ms):
            return None
        if self._soonest["event"].is_exhausted(watermark_ms):
            return self._found_due_of(key, watermark_ms)
        entries = self._aside[key]
        while entries:
            due_ms, store_key = heappop(entries)
            timer = self._read(store_key)
            if timer is None or timer.time != "event":
                continue  # cancelled, or set anew by the clock
            if timer.due_ms == due_ms:
                return _due(store_key, timer)
            if timer.due_ms <= watermark_ms:
                heappush(entries, (timer.due_ms, store_key))
            else:
                self._soonest["event"].add(store_key, timer.due_ms)
        del self._aside[key]
        return None

    # --- inside ---------------------------------------------------------------------------------------

    def _found_due_of(self, key: bytes, watermark_ms: int) -> DueTimer | None:
        """The same without the index, where more timers are due than it holds."""
        prefix = prefixed_key(key)
        entries = self._store.scan(prefix, prefix_end(prefix))
        timers = ((EncodedTimer.decode(data), store_key) for store_key, data in entries)
        due = [
            (timer.due_ms, store_key, timer)
            for timer, store_key in timers
            if timer.time == "event" and timer.due_ms <= watermark_ms
        ]
        return _due(*min(due)[1:]) if due else None

    def _put_back(self) -> None:
        aside, self._aside = self._aside, {}
        for entries in aside.values():
            for due_ms, store_key in entries:
                self._soonest["event"].add(store_key, due_ms)

    def _next(self, time: TimerTime, now_ms: int) -> DueTimer | None:
        soonest = self._soonest[time]
        while True:
            entry = soonest.pop(now_ms)
            if entry is None:
                if not soonest.is_exhausted(now_ms):
                    return None
                self._fill(time)
                continue
            due_ms, store_key = entry
            timer = self._read(store_key)
            if timer is None or timer.time != time:
                continue  # cancelled, or set anew by the other time, whose index has it
            if timer.due_ms == due_ms:
                return _due(store_key, timer)
            soonest.add(store_key, timer.due_ms)  # it was put off

    def _fill(self, *times: TimerTime) -> None:
        for time in times:
            self._soonest[time].clear()
        for store_key, timer in self._pending():
            if timer.time in times:
                self._soonest[timer.time].add(store_key, timer.due_ms)

    def _pending(self) -> Iterator[tuple[bytes, Timer]]:
        decode = EncodedTimer.decode
        for store_key, data in self._store.scan():
            yield store_key, decode(data)

    def _read(self, store_key: bytes) -> Timer | None:
        data = self._store.get(store_key)
        return None if data is None else EncodedTimer.decode(data)

    def _store_key(self, name: str) -> bytes:
        encoded = name.encode()
        if not 0 < len(encoded) <= NAME_BYTES_MAX:
            raise ValueError(f"a timer's name has 1 to {NAME_BYTES_MAX} bytes, not {len(encoded)}")
        return prefixed_key(self._scope.key, encoded)


def _due(store_key: bytes, timer: Timer) -> DueTimer:
    key, name = split_prefixed(store_key)
    return DueTimer(key, name.decode(), timer, store_key)
