"""Timers of an operator, kept in state: per key and name, due in event time or by the clock.

Entry ``prefix ‖ name`` holds one timer, so setting it again replaces it. It is logged and restored like any other
state and moves with its key. What is due next is known from an order on disk that is derived (``state/due_order.py``);
the soonest of it are in memory, a bounded number, and taken from there anew when these have fired.
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
from stateflow.state.due_order import Due, TimerOrder
from stateflow.state.layout import prefix_end, prefixed_key, split_prefixed
from stateflow.state.scope import Scope
from stateflow.state.soonest import ENTRIES_MAX, Soonest
from stateflow.store.base import StateStore

NAME_BYTES_MAX = 250
PAYLOAD_BYTES_MAX = 65_536
_BEGINNING: Due = (0, b"")
_LOOKS_MAX = 1_000
"""Timers that are looked at in the search for one that is due: where all were put off, that would be all of them."""


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

    def __init__(
        self,
        store: StateStore,
        order: StateStore,
        scope: Scope,
        clock: Clock,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self._store = store
        self._order = TimerOrder(order)
        self._scope = scope
        self._clock = clock
        self._entries_max = entries_max
        self._soonest: dict[TimerTime, Soonest] = {
            "event": Soonest(entries_max),
            "processing": Soonest(entries_max),
        }
        self._aside: dict[bytes, list[Due]] = {}
        """What came up in the index between two turns, by routing key, the soonest first: due, or put off since."""
        self._aside_total = 0
        self.overdue_total = 0
        """Timers in event time that were set for a time that had passed."""
        self._refill("event", _BEGINNING)
        self._refill("processing", _BEGINNING)

    def set(self, name: str, due_ms: int, time: TimerTime, payload: bytes = b"") -> None:
        """Set a timer of the current key, in place of one of that name.

        Raises ``ValueError`` for a bad name, and for a payload that is too large.
        """
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"a timer's payload has at most {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}")
        store_key = self._store_key(name)
        before = self._read(store_key)
        if before is not None and (before.time, before.due_ms, before.payload) == (time, due_ms, payload):
            return
        self._store.put(store_key, EncodedTimer.encode(Timer(time, due_ms, self._scope.as_of_ms, payload)))
        if before is None or before.time != time or due_ms < before.due_ms:
            if before is not None:
                self._forget(store_key, before)
            self._order.add(time, due_ms, store_key)
        self._soonest[time].add(store_key, due_ms)
        self.overdue_total += time == "event" and due_ms <= self._scope.timestamp_ms

    def due_ms(self, name: str) -> int | None:
        """When a timer of the current key is due; None for one that is not set."""
        timer = self._read(self._store_key(name))
        return None if timer is None else timer.due_ms

    def of_key(self) -> list[tuple[str, Timer]]:
        """All timers of the current key, with their names, in the order of these. Reads each of them."""
        prefix = prefixed_key(self._scope.key)
        found = self._store.scan(prefix, prefix_end(prefix))
        return [(store_key[len(prefix) :].decode(), EncodedTimer.decode(data)) for store_key, data in found]

    def cancel(self, name: str) -> None:
        """Drop a timer of the current key; one that is not set is not an error."""
        store_key = self._store_key(name)
        before = self._read(store_key)
        if before is not None:
            self._store.delete(store_key)
            self._forget(store_key, before)

    def done(self, due: DueTimer) -> None:
        """It fires: it is pending no longer."""
        self._store.delete(due.store_key)
        self._order.remove(due.timer.time, due.timer.due_ms, due.store_key)

    def may_be_due(self, watermark_ms: int, now_ms: int) -> bool:
        """False when certainly none is due."""
        self._put_back()
        return self._soonest["event"].may_be_due(watermark_ms) or self._soonest["processing"].may_be_due(
            now_ms
        )

    def next_due(self, watermark_ms: int) -> DueTimer | None:
        """The soonest timer that is due, those of event time first; it stays pending until ``done``.

        None although one may be due, after a bounded number that were put off since: ask again in the next turn.
        """
        self._put_back()
        due = self._next("event", watermark_ms)
        if due is None and not self._soonest["event"].may_be_due(watermark_ms):
            due = self._next("processing", self._clock.now_ms())
        return due

    def none_before_ms(self, watermark_ms: int) -> int:
        """Event time up to which certainly none is pending, the watermark at most."""
        first_ms = self.first_ms
        return watermark_ms if first_ms is None else min(watermark_ms, first_ms)

    @property
    def first_ms(self) -> int | None:
        """Event time before which certainly none is due; None when none is pending."""
        self._put_back()
        return self._soonest["event"].first_ms

    def few_until_ms(self, count: int) -> int | None:
        """Event time up to which at most twice so many fall due; None where there are no more."""
        self._put_back()
        return self._soonest["event"].few_until_ms(count)

    def last_due_ms(self) -> int:
        """When the last of those in event time is due, −1 without any; looks at all of them."""
        return max((timer.due_ms for _, timer in self._pending() if timer.time == "event"), default=-1)

    def may_be_due_of(self, key: bytes, watermark_ms: int) -> bool:
        """False when certainly none of one key is due in event time."""
        event = self._soonest["event"]
        if event.may_be_due(watermark_ms):
            while self._aside_total < self._entries_max and (entry := event.pop(watermark_ms)) is not None:
                heappush(self._aside.setdefault(split_prefixed(entry[1])[0], []), entry)
                self._aside_total += 1
            if event.may_be_due(watermark_ms):
                return True
        return key in self._aside

    def next_due_of(self, key: bytes, watermark_ms: int) -> DueTimer | None:
        """The soonest of one key that is due in event time; call ``done`` before anything else."""
        if not self.may_be_due_of(key, watermark_ms):
            return None
        if self._soonest["event"].may_be_due(watermark_ms):
            return self._found_due_of(key, watermark_ms)
        entries = self._aside[key]
        # A record of another key may have been later, and have put aside what is not due yet for this one.
        while entries and entries[0][0] <= watermark_ms:
            due_ms, store_key = heappop(entries)
            self._aside_total -= 1
            timer = self._checked("event", due_ms, store_key)
            if timer is None:
                continue  # cancelled, or set anew by the clock
            if timer.due_ms == due_ms:
                return _due(store_key, timer)
            if timer.due_ms <= watermark_ms:
                heappush(entries, (timer.due_ms, store_key))
                self._aside_total += 1
            else:
                self._soonest["event"].add(store_key, timer.due_ms)
        if not entries:
            del self._aside[key]
        return None

    # --- inside ---------------------------------------------------------------------------------------

    def _found_due_of(self, key: bytes, watermark_ms: int) -> DueTimer | None:
        """The same on disk, where more timers are due than memory holds: one seek."""
        while (entry := self._order.soonest_of(key, watermark_ms)) is not None:
            due_ms, store_key = entry
            timer = self._checked("event", due_ms, store_key)
            if timer is not None and timer.due_ms == due_ms:
                return _due(store_key, timer)
        return None

    def _put_back(self) -> None:
        if not self._aside:
            return
        aside, self._aside, self._aside_total = self._aside, {}, 0
        for entries in aside.values():
            for due_ms, store_key in entries:
                self._soonest["event"].add(store_key, due_ms)

    def _next(self, time: TimerTime, now_ms: int) -> DueTimer | None:
        soonest = self._soonest[time]
        for _ in range(_LOOKS_MAX):
            entry = soonest.pop(now_ms)
            if entry is None:
                if not soonest.is_exhausted(now_ms):
                    return None
                assert soonest.horizon is not None, "what is exhausted has an end"
                self._refill(time, soonest.horizon)
                continue
            due_ms, store_key = entry
            timer = self._checked(time, due_ms, store_key)
            if timer is None:
                continue  # cancelled, or set anew by the other time, whose index has it
            if timer.due_ms == due_ms:
                return _due(store_key, timer)
            soonest.add(store_key, timer.due_ms)  # it was put off
        return None

    def _refill(self, time: TimerTime, first: Due) -> None:
        """Take the soonest from disk, half of what may be held: nothing in memory is as late as ``first``."""
        found = self._order.soonest(time, first, self._entries_max // 2 + 1)
        horizon = found.pop() if len(found) > self._entries_max // 2 else None
        self._soonest[time].refill(found, horizon)

    def _checked(self, time: TimerTime, due_ms: int, store_key: bytes) -> Timer | None:
        """The timer that an entry of the order stands for, None for none; one that was put off takes its place."""
        timer = self._read(store_key)
        is_there = timer is not None and timer.time == time
        if timer is None or not is_there or timer.due_ms != due_ms:
            self._order.remove(time, due_ms, store_key)
            if timer is not None and is_there:
                self._order.add(time, timer.due_ms, store_key)
        return timer if is_there else None

    def _forget(self, store_key: bytes, timer: Timer) -> None:
        """Take out of the order what it has of a timer, as far as that is known; the rest goes when it comes up."""
        noted_ms = self._soonest[timer.time].noted_ms(store_key)
        for due_ms in {timer.due_ms, timer.due_ms if noted_ms is None else noted_ms}:
            self._order.remove(timer.time, due_ms, store_key)

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
