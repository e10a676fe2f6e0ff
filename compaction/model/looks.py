"""When a pass comes, where cleaner threads look from time to time only: how long a cycle is, how far it reaches back.

A pass takes the closed segments and leaves the one being written, which is ``left`` seconds old then, anything up to a
whole segment. The log is due again when what was left is ``due`` seconds old. The thread looks at the end of its turn
and then every ``backoff``, so the next pass starts after n = ⌈(due − left − turn) / backoff⌉ more of these, none when
the log fell due during the turn. What is then in the log and not cleaned goes back left + turn + n · backoff, at most
due + backoff: the segments that make it due *and* the backoff, whichever of them is longer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_SAME = 1e-9
"""Of a time: by so little two of them differ when they are one."""


class Looks(NamedTuple):
    """When one partition is looked at and cleaned; all times in seconds."""

    segment: float
    """From one closed segment to the next."""
    due: float
    """Age at which what a pass left makes the next one due: of the first record in the segment being written."""
    backoff: float
    turn: float
    """From the start of a pass until its thread has served the partitions that are due with it."""

    @property
    def left_min(self) -> float:
        """How much a pass leaves at least."""
        if self.backoff >= self.segment:
            return 0.0
        # Passes come shortly after a log fell due. By the ratio that is when a segment is closed; by
        # max.compaction.lag.ms it may be in the midst of one.
        left = math.fmod(self.due, self.segment) if self.due > self.segment else 0.0
        # Three segments are rarely three times one to the last bit: what lies just below a segment is none.
        return 0.0 if self.segment - left <= _SAME * self.due else left

    @property
    def left_spread(self) -> float:
        """What a pass leaves lies anywhere between the least and so much more."""
        return min(self.backoff, self.segment)

    @property
    def left_mean(self) -> float:
        """How much a pass leaves on average."""
        return min(self.segment, self.left_min + self.left_spread / 2)

    @property
    def period(self) -> float:
        """From the start of one pass to the start of the next, on average."""
        turn = self.turn
        waiting = self.due - self.left_min - turn
        spread = self.left_spread
        if spread <= 0:
            return turn + max(0.0, waiting)
        total = self._waited(waiting) - self._waited(waiting - spread)
        return turn + total / spread

    @property
    def reach_max(self) -> float:
        """How far back what was never cleaned goes when a pass starts, over all phases of segments to looks."""
        latest = self.left_min + self.left_spread
        waiting = self.due - self.left_min - self.turn
        if waiting <= 0:
            return latest + self.turn
        if self.backoff <= 0:
            return self.due
        from_looks = latest + self.turn + math.ceil(waiting / self.backoff) * self.backoff
        return max(min(self.due + self.backoff, from_looks), self._at_once(latest))

    @property
    def reach_worst(self) -> float:
        """The same, relying on nothing but that a thread looks again after its backoff."""
        return max(self.due + self.backoff, self.segment + self.turn)

    def until_next(self, left: float, due: float, others: float = 0.0) -> tuple[float, bool]:
        """From the start of a pass that left so much to the start of the next, and whether its thread slept meanwhile.

        ``due`` is the age that makes the next one due. Before its next look the thread is busy with other topics for
        ``others``; as it has cleaned something, it does not sleep before that look.
        """
        waiting = due - left - self.turn
        if waiting <= others:
            return self.turn + others, False
        between = self.backoff + others
        return self.turn + (math.ceil(waiting / between) * between if between > 0 else waiting), True

    def _at_once(self, latest: float) -> float:
        """Where a log can fall due during the turn, the next pass follows at once."""
        return latest + self.turn if latest + self.turn >= self.due else 0.0

    def _waited(self, waiting: float) -> float:
        """∫ backoff · ⌈x / backoff⌉ dx from 0 to ``waiting``."""
        if waiting <= 0:
            return 0.0
        if self.backoff <= 0:
            return waiting * waiting / 2
        whole, rest = divmod(waiting, self.backoff)
        return self.backoff * (self.backoff * whole * (whole + 1) / 2 + (whole + 1) * rest)
