"""The soonest entries of something larger: keys by the time at which they fall due, in bounded memory.

Never logged. It may hold entries that are no longer true, so whoever takes one out compares it
with the store; but it never lacks an entry that comes before its horizon. Putting a time off therefore costs
nothing: the earlier entry stays, and is put right when it comes up.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

ENTRIES_MAX = 10_000
_STALE_MIN = 1_024


class Soonest:
    """A heap of (due time, key), at most ``entries_max`` keys."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._horizon: tuple[int, bytes] | None = None
        """Every entry before this one is here; None: all are."""
        self._entries_max = entries_max
        self._heap: list[tuple[int, bytes]] = []
        self._due_ms: dict[bytes, int] = {}
        self._few_until_ms: int | None = None
        self._added = 0
        """Entries since ``few_until_ms`` was found."""

    def __len__(self) -> int:
        return len(self._due_ms)

    def add(self, key: bytes, due_ms: int) -> None:
        """Note that a key falls due then. A later time than the noted one changes nothing yet."""
        if self._horizon is not None and (due_ms, key) >= self._horizon:
            return
        noted_ms = self._due_ms.get(key)
        if noted_ms is not None and noted_ms <= due_ms:
            return
        self._due_ms[key] = due_ms
        self._added += 1
        heappush(self._heap, (due_ms, key))
        if len(self._due_ms) > self._entries_max:
            self._keep_soonest(self._entries_max // 2)
        elif len(self._heap) > 2 * len(self._due_ms) + _STALE_MIN:
            self._rebuild()

    def pop(self, now_ms: int) -> tuple[int, bytes] | None:
        """Take out the soonest entry that is due, equal times in the order of keys; None when none is."""
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, key = heappop(self._heap)
            if self._due_ms.get(key) == due_ms:
                del self._due_ms[key]
                return due_ms, key
        return None

    def may_be_due(self, now_ms: int) -> bool:
        """False when certainly nothing is due, here or beyond the horizon."""
        if self._horizon is not None and self._horizon[0] <= now_ms:
            return True
        return bool(self._heap) and self._heap[0][0] <= now_ms

    @property
    def first_ms(self) -> int | None:
        """A time before which certainly nothing is due; None when nothing is at all."""
        ends_ms = [] if self._horizon is None else [self._horizon[0]]
        return min([*ends_ms, *(due_ms for due_ms, _ in self._heap[:1])], default=None)

    def few_until_ms(self, count: int) -> int | None:
        """A time up to which at most twice so many fall due, those noted in vain included; None: never more."""
        if len(self._due_ms) <= count:
            return None if self._horizon is None else self._horizon[0] - 1
        found_ms = self._few_until_ms
        is_past = found_ms is not None and self._heap[0][0] > found_ms
        if found_ms is None or is_past or self._added > count:
            found_ms = self._few_until_ms = sorted(self._due_ms.values())[count] - 1
            self._added = 0
        return found_ms

    def is_exhausted(self, now_ms: int) -> bool:
        """True when what is due now lies beyond the horizon: then fill it anew from the store."""
        if self._horizon is None or self._horizon[0] > now_ms:
            return False
        return not self._heap or self._heap[0][0] > now_ms

    def clear(self) -> None:
        """Forget everything, the horizon too: what is added from now on is all there is."""
        self._horizon = self._few_until_ms = None
        self._heap, self._due_ms = [], {}

    def refill(self, entries: Sequence[tuple[int, bytes]], horizon: tuple[int, bytes] | None) -> None:
        """Hold these, in their order, in the place of what there was: all that come before ``horizon``."""
        self._horizon, self._few_until_ms = horizon, None
        self._heap = list(entries)  # sorted, so a heap
        self._due_ms = {key: due_ms for due_ms, key in reversed(entries)}

    @property
    def horizon(self) -> tuple[int, bytes] | None:
        """Every entry before this one is here; None: all are."""
        return self._horizon

    def noted_ms(self, key: bytes) -> int | None:
        """The time that is noted of a key; None where it lies beyond the horizon, or there is none."""
        return self._due_ms.get(key)

    def _end_at(self, horizon: tuple[int, bytes]) -> None:
        self._horizon = horizon if self._horizon is None else min(self._horizon, horizon)

    def _keep_soonest(self, count: int) -> None:
        ordered = sorted((due_ms, key) for key, due_ms in self._due_ms.items())
        self._end_at(ordered[count])
        self._heap = ordered[:count]  # sorted, so a heap
        self._due_ms = {key: due_ms for due_ms, key in self._heap}

    def _rebuild(self) -> None:
        self._heap = [(due_ms, key) for key, due_ms in self._due_ms.items()]
        heapify(self._heap)
