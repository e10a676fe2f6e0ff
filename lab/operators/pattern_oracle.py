"""Patterns as data, and their matches by brute force: every way to take records is tried, in the order of preference.

Shares no code with the matcher that it judges: there is no state, each beginning is tried anew on each longer part of
the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple

import stateflow as sf

Taken = tuple[tuple[int, int], ...]
"""Numbers of parts and of records."""


class Asked(NamedTuple):
    """What a value must be: its rest by 6 one of these, and, if asked, more than the last one that part 0 took."""

    rests: frozenset[int]
    is_rising: bool = False

    def fits(self, value: int, firsts: Sequence[int]) -> bool:
        """Whether it is, behind those that part 0 took."""
        return value % 6 in self.rests and (not self.is_rising or not firsts or value > firsts[-1])


class Part(NamedTuple):
    """One step."""

    name: str
    test: Asked
    absent: tuple[Asked, ...] = ()
    is_strict: bool = False
    least: int = 1
    most: int | None = 1
    is_optional: bool = False
    is_greedy: bool = True
    is_consecutive: bool = False


class Found(NamedTuple):
    """A match: its values by part, and when it was certain."""

    values: tuple[tuple[int, ...], ...]
    at_ms: int


@dataclass(frozen=True)
class Spec:
    """A pattern, and what a match leaves to others."""

    parts: tuple[Part, ...]
    within_ms: int
    absent_at_end: tuple[Asked, ...] = ()
    after: Literal["past-last", "next"] | sf.SkipTo = "past-last"

    def pattern(self) -> sf.Pattern[int]:
        """The same in the words of the library."""
        first, *rest = self.parts
        steps = _counted(
            sf.pattern(int).begin(first.name, _where(first.test), given=self._given(first.test)), first
        )
        for part in rest:
            for test in part.absent:
                steps = steps.without(_where(test), given=self._given(test))
            add = steps.next if part.is_strict else steps.then
            steps = _counted(add(part.name, _where(part.test), given=self._given(part.test)), part)
        for test in self.absent_at_end:
            steps = steps.without(_where(test), given=self._given(test))
        return steps.within(timedelta(milliseconds=self.within_ms))

    def values(self, match: sf.Match[int]) -> list[list[int]]:
        """A match as the values that each part took."""
        return [match.all(part.name) for part in self.parts]

    def _given(self, test: Asked) -> Callable[[int, sf.Match[int]], bool] | None:
        name = self.parts[0].name
        return (lambda value, taken: name not in taken or value > taken[name]) if test.is_rising else None


def _where(test: Asked) -> Callable[[int], bool]:
    return lambda value: value % 6 in test.rests


def _counted(steps: sf.PatternSteps[int], part: Part) -> sf.PatternSteps[int]:
    if part.is_optional:
        steps = steps.optional(greedy=part.is_greedy)
    if (part.least, part.most) == (1, 1):
        return steps
    how = {"greedy": part.is_greedy, "consecutive": part.is_consecutive}
    return steps.one_or_more(**how) if part.most is None else steps.times(part.least, part.most, **how)


def matches(spec: Spec, rows: Sequence[tuple[int, int]]) -> list[Found]:
    """Every match in the records of one key, as (time, value) in order, in the order in which they are certain."""
    decided = []
    for begin in range(len(rows)):
        end = _decision(spec, rows, begin)
        if end is not None:
            decided.append((*end, begin))
    found, from_record = [], 0
    given_up: set[int] = set()
    for at_ms, _, _, taken, begin in sorted(decided, key=lambda each: (*each[:3], each[4])):
        if begin in given_up:
            continue
        found.append(Found(_values(spec, rows, taken), at_ms))
        from_record = _from(spec, taken)
        given_up |= set(range(from_record))
    return found


def _decision(spec: Spec, rows: Sequence[tuple[int, int]], begin: int) -> tuple[int, int, int, Taken] | None:
    """When what begins with a record is a match for certain (time, before records of it or not, record), and which."""
    first_ms, value = rows[begin]
    if not spec.parts[0].test.fits(value, ()):
        return None
    until_ms = first_ms + spec.within_ms
    for last in range(begin, len(rows)):
        if rows[last][0] >= until_ms:
            break
        best = next(_Search(spec, rows[: last + 1], is_over=False).ways(begin), None)
        if best is None:
            return None
        if best.is_whole:
            return rows[last][0], 1, last, best.taken
    kept = [row for row in rows if row[0] < until_ms]
    best = next(_Search(spec, kept, is_over=True).ways(begin), None)
    return None if best is None else (until_ms, 0, 0, best.taken)


def _from(spec: Spec, taken: Taken) -> int:
    if spec.after == "next":
        return 0
    if spec.after == "past-last":
        return taken[-1][1] + 1
    assert isinstance(spec.after, sf.SkipTo), "the third of them"
    names = [part.name for part in spec.parts]
    records = [record for part, record in taken if names[part] == spec.after.step]
    return min(records) if spec.after.record == "first" else max(records)


def _values(spec: Spec, rows: Sequence[tuple[int, int]], taken: Taken) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(rows[record][1] for part, record in taken if part == number)
        for number in range(len(spec.parts))
    )


class _Way(NamedTuple):
    """Records taken; either a match as they are, or more may still be taken."""

    taken: Taken
    is_whole: bool


class _At(NamedTuple):
    """Where a search stands: the next record, and how it came there."""

    record: int
    part: int
    total: int
    taken: Taken
    has_passed: bool = False
    is_barred: bool = False


class _Search:
    """All ways through the records up to some, the preferred first."""

    def __init__(self, spec: Spec, rows: Sequence[tuple[int, int]], *, is_over: bool) -> None:
        self._spec = spec
        self._rows = rows
        self._is_over = is_over
        """Whether the time of the match is up: then no more records come."""

    def ways(self, begin: int) -> Iterator[_Way]:
        """Those of the match that begins with a record."""
        return self._from(_At(begin + 1, 0, 1, ((0, begin),)))

    def _from(self, at: _At) -> Iterator[_Way]:
        part = self._spec.parts[at.part]
        may_repeat = (part.most is None or at.total < part.most) and not (
            part.is_consecutive and at.has_passed
        )
        may_leave = at.total >= part.least and not at.is_barred
        further = list(self._further(at.part + 1, at.has_passed)) if may_leave else []
        is_last = all(each.is_optional for each in self._spec.parts[at.part + 1 :])
        may_end = may_leave and is_last and (self._is_over or not self._spec.absent_at_end)
        if at.record == len(self._rows):
            waits = bool(self._spec.absent_at_end) and is_last and may_leave
            if (may_repeat or further or waits) and not self._is_over:
                yield _Way(at.taken, False)
            if may_end:
                yield _Way(at.taken, True)
            return
        value = self._rows[at.record][1]
        firsts = [self._rows[record][1] for number, record in at.taken if number == 0]
        repeated = [at.part] if may_repeat and part.test.fits(value, firsts) else []
        entered = [each for each in further if self._spec.parts[each].test.fits(value, firsts)]
        for number in repeated + entered if part.is_greedy else entered + repeated:
            total = at.total + 1 if number == at.part else 1
            yield from self._from(_At(at.record + 1, number, total, (*at.taken, (number, at.record))))
        if repeated or entered:
            if may_end and not self._spec.absent_at_end:
                yield _Way(at.taken, True)
            return
        excluded = self._spec.parts[at.part + 1].absent if at.part + 1 < len(self._spec.parts) else ()
        excluded = excluded or (self._spec.absent_at_end if is_last else ())
        is_barred = at.is_barred or (
            at.total >= part.least and any(test.fits(value, firsts) for test in excluded)
        )
        yield from self._from(at._replace(record=at.record + 1, has_passed=True, is_barred=is_barred))

    def _further(self, number: int, has_passed: bool) -> Iterator[int]:
        """The parts that may take the next record, the preferred first."""
        if number == len(self._spec.parts):
            return
        part = self._spec.parts[number]
        entry = [] if part.is_strict and has_passed else [number]
        if not part.is_optional:
            yield from entry
            return
        rest = list(self._further(number + 1, has_passed))
        yield from entry + rest if part.is_greedy else rest + entry
