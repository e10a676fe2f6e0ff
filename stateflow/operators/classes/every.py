"""Something that is done at regular intervals, and an operator's rounds: a call for each of its keys at each tick.

A round is no scan of a store: each key has a timer that is set anew for the next tick as long as there is state of it.
So a round takes as many bounded turns as it needs, is committed in parts, survives crashes like all that is pending,
and moves with its keys. Ticks are multiples of the interval since 1970 UTC, the same for all keys and tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from stateflow.catalog.model import KeyLayout
from stateflow.clock import Clock
from stateflow.codec.timer import TimerTime
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.state.layout import prefix_end, prefixed_key
from stateflow.state.scope import Scope
from stateflow.state.timers import DueTimer, Timers
from stateflow.store.base import StateStore

ROUND = "sf:every"
"""Name of the timer that stands for a key's next round."""


@dataclass(frozen=True, slots=True)
class Every:
    """At each multiple of an interval since 1970 UTC: ``Every(timedelta(minutes=5))``.

    ``time`` is event time, or the clock's with ``"processing"``. Raises ``GraphError`` for less than 1 ms, for
    fractions of one, and for an unknown word.
    """

    interval: timedelta
    time: TimerTime = "event"

    def __post_init__(self) -> None:
        if self.interval_ms < 1:
            raise GraphError(f"Every {self.interval} is no interval.", action="Give 1 ms or more.")
        if self.time not in ("event", "processing"):
            raise GraphError(
                f"An interval is one of 'event' or 'processing' time, not {self.time!r}.",
                action="Correct time=… in the code.",
            )

    @property
    def interval_ms(self) -> int:
        """The interval, ms."""
        return declared_ms("interval", self.interval)

    def next_ms(self, after_ms: int) -> int:
        """The first tick behind a time, ms since 1970 UTC."""
        return (after_ms // self.interval_ms + 1) * self.interval_ms


class Rounds:
    """Which keys of one task take part in rounds, and in which next."""

    def __init__(
        self,
        every: Every,
        timers: Timers,
        scope: Scope,
        clock: Clock,
        stores: Sequence[tuple[StateStore, KeyLayout]],
    ) -> None:
        self._every = every
        self._timers = timers
        self._scope = scope
        self._clock = clock
        self._stores = stores

    def note_record(self) -> None:
        """The current key had a record: it takes part from now on if there is state of it.

        Raises ``ValueError`` in event time for a record that has none.
        """
        if self._timers.due_ms(ROUND) is None and self._has_state():
            since_ms = max(self._scope.timestamp_ms, self._scope.mark_ms)
            if self._every.time == "event" and since_ms < 0:
                raise ValueError("the record has no event time, which every=… is to follow")
            self._set(since_ms)

    def note_round(self, due: DueTimer) -> None:
        """The current key had its turn: in event time none of its ticks is left out, by the clock those missed are."""
        if self._has_state():
            self._set(due.timer.due_ms)

    def _set(self, after_ms: int) -> None:
        every = self._every
        since_ms = self._clock.now_ms() if every.time == "processing" else after_ms
        self._timers.set(ROUND, every.next_ms(since_ms), every.time)

    def _has_state(self) -> bool:
        key = self._scope.key
        for store, layout in self._stores:
            if layout == "plain":
                if store.get(key) is not None:
                    return True
            elif store.range(prefix := prefixed_key(key), prefix_end(prefix), 1):
                return True
        return False
