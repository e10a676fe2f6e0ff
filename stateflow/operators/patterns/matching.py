"""Matching records against a pattern: the ways in which a match that has begun may still go on, the preferred first.

A match begins with each record that fits the first step, and each comes to one result at most: of all the ways to take
records, the most preferred that reaches the end (as regular expressions choose, greedy or not). A *way* is a place in
the pattern and the records it has taken. Each record is offered to every way, which takes it by each step that it fits,
and else passes it over. What is certain is decided at once: a match waits only while a way that is preferred to it may
still reach the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stateflow.operators.patterns.match import Match
from stateflow.operators.patterns.patterns import Condition, Pattern, PatternStep

WAYS_MAX = 256
"""Ways that one match may go at a time. Only conditions on earlier records (``given``) can make more than steps."""

Taken = list[tuple[int, bytes]]
"""Numbers of steps and the entries of the records they took, in order."""


class Way(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """A place in the pattern."""

    step: int
    """The step that took the last record."""
    count: int
    """How many records it has taken; of an unlimited one no more than it needs."""
    taken: Taken
    has_passed: bool = False
    """Whether a record was passed over since, where that matters."""
    is_barred: bool = False
    """Whether a record came since that is excluded before the next step."""


class Begun(msgspec.Struct, array_like=True):
    """A match that has begun: its ways, the preferred first, and what it comes to if none reaches the end."""

    ways: list[Way]
    whole: Taken | None = None


class Offered:
    """A record that is offered to matches; what it is by itself is asked once."""

    def __init__(self, entry: bytes, value: Any, read: Callable[[Taken], Match[Any]]) -> None:
        self.entry = entry
        self._value = value
        self._read = read
        self._known: dict[int, bool] = {}

    def fits(self, condition: Condition, taken: Taken) -> bool:
        """Whether it meets a condition, behind those taken before."""
        known = self._known.get(id(condition))
        if known is None:
            known = condition.where is None or bool(condition.where(self._value))
            self._known[id(condition)] = known
        return known and (condition.given is None or bool(condition.given(self._value, self._read(taken))))


class Matcher:
    """The rules of one pattern."""

    def __init__(self, pattern: Pattern[Any]) -> None:
        self._steps = pattern.steps
        self._last = len(pattern.steps) - 1
        self._absent = [step.absent for step in pattern.steps[1:]] + [pattern.absent_at_end]
        """By step, what is excluded behind it."""
        self._waits_at_end = bool(pattern.absent_at_end)
        self._entries = {
            (number, has_passed): tuple(self._entries_behind(number + 1, has_passed))
            for number in range(len(pattern.steps))
            for has_passed in (False, True)
        }
        """By step and whether a record was passed over: the steps that may take the next one, the preferred first."""
        self._may_end = [
            all(step.is_optional for step in self._steps[n + 1 :]) for n in range(len(self._steps))
        ]
        looking_back = [_looks_back(step) for step in self._steps]
        at_end = any(each.given is not None for each in pattern.absent_at_end)
        self._looks_back = [any(looking_back[n:]) or at_end for n in range(len(self._steps))]
        """By step, whether what comes of a way depends on the records it has taken."""

    def begin(self, record: Offered) -> Begun | None:
        """The match that begins with a record; None where it fits the first step not."""
        first = self._steps[0]
        if not record.fits(first.condition, []):
            return None
        return self._in_order([self._taking(0, 0, [], record)], None)

    def offer(self, begun: Begun, record: Offered) -> Begun:
        """What becomes of a match with one more record. Raises ``ValueError`` for one with too many ways."""
        ways = [after for way in begun.ways for after in self._after(way, record)]
        return begun if ways == begun.ways else self._in_order(ways, begun.whole)

    def close(self, begun: Begun) -> Taken | None:
        """What a match comes to when its time is up; None for nothing."""
        if self._waits_at_end:
            return next((way.taken for way in begun.ways if self._can_end(way)), None)
        return begun.whole

    def _in_order(self, ways: Sequence[Way], whole: Taken | None) -> Begun:
        """Ways without those that nothing can come of any more, as one that is preferred does at least as well."""
        kept: list[Way] = []
        met: set[tuple[int, int, bool, bool]] = set()
        for way in ways:
            place = way.step, way.count, way.has_passed, way.is_barred
            if place in met and not self._looks_back[way.step]:
                continue
            met.add(place)
            if self._waits_at_end or not self._can_end(way):
                kept.append(way)
                continue
            if self._entries[way.step, way.has_passed] or self._can_repeat(way):
                kept.append(way)
            whole = way.taken
            break
        if len(kept) > WAYS_MAX:
            raise ValueError(
                f"a match of the pattern could go on in more than {WAYS_MAX} ways: let fewer records fit several steps"
            )
        return Begun(kept, whole)

    def _after(self, way: Way, record: Offered) -> list[Way]:
        repeated, entered = [], []
        step = self._steps[way.step]
        if self._can_repeat(way) and record.fits(step.condition, way.taken):
            repeated.append(self._taking(way.step, way.count, way.taken, record))
        if self._can_leave(way):
            entered = [
                self._taking(number, 0, way.taken, record)
                for number in self._entries[way.step, way.has_passed]
                if record.fits(self._steps[number].condition, way.taken)
            ]
        if not repeated and not entered:
            return self._passing(way, record)
        return repeated + entered if step.is_greedy else entered + repeated

    def _taking(self, number: int, count: int, taken: Taken, record: Offered) -> Way:
        step = self._steps[number]
        count = min(count + 1, step.least) if step.most is None else count + 1
        return Way(number, count, [*taken, (number, record.entry)])

    def _passing(self, way: Way, record: Offered) -> list[Way]:
        """The way beside a record that it cannot take; none where it cannot go on behind it."""
        step, can_leave, is_barred = self._steps[way.step], self._can_leave(way), way.is_barred
        if can_leave:
            is_barred = any(record.fits(each, way.taken) for each in self._absent[way.step])
        may_repeat = self._is_unfilled(way) and not step.is_consecutive
        may_leave = can_leave and not is_barred
        behind = self._entries[way.step, True]
        at_end = self._waits_at_end and self._may_end[way.step]
        if not may_repeat and not (may_leave and (behind or at_end)):
            return []
        matters = step.is_consecutive or behind != self._entries[way.step, False]
        return [Way(way.step, way.count, way.taken, way.has_passed or matters, is_barred)]

    def _can_repeat(self, way: Way) -> bool:
        return self._is_unfilled(way) and not (self._steps[way.step].is_consecutive and way.has_passed)

    def _is_unfilled(self, way: Way) -> bool:
        step = self._steps[way.step]
        return step.most is None or way.count < step.most

    def _can_leave(self, way: Way) -> bool:
        return way.count >= self._steps[way.step].least and not way.is_barred

    def _can_end(self, way: Way) -> bool:
        return self._may_end[way.step] and self._can_leave(way)

    def _entries_behind(self, number: int, has_passed: bool) -> list[int]:
        if number > self._last:
            return []
        step: PatternStep = self._steps[number]
        entry = [] if step.is_strict and has_passed else [number]
        if not step.is_optional:
            return entry
        further = self._entries_behind(number + 1, has_passed)
        return entry + further if step.is_greedy else further + entry


def _looks_back(step: PatternStep) -> bool:
    return any(each.given is not None for each in (step.condition, *step.absent))
