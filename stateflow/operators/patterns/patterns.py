"""Patterns: which records of one key, one after the other, make a match. Written step by step, checked when written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from stateflow.callbacks import checked_or_none
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.patterns.match import Match

V = TypeVar("V")

Where = Callable[[V], object]
Given = Callable[[V, Match[V]], object]


@dataclass(frozen=True, slots=True)
class Condition:
    """What a record must be: by itself, and given what was taken before it."""

    where: Callable[[Any], object] | None
    given: Callable[[Any, Match[Any]], object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternStep:
    """One step of a pattern: which records it takes, how many, and what may lie before it."""

    name: str
    condition: Condition
    is_strict: bool
    """Whether its first record directly follows the last one taken before it."""
    absent: tuple[Condition, ...]
    """What no record may be that lies between the last one taken before it and its first one."""
    least: int = 1
    most: int | None = 1
    is_optional: bool = False
    is_greedy: bool = True
    is_consecutive: bool = False

    @property
    def repeats(self) -> bool:
        """True for one that may take several records."""
        return self.most != 1

    @property
    def shape(self) -> str:
        """All but its conditions, as text."""
        counted = "" if (self.least, self.most) == (1, 1) else f"{{{self.least},{self.most or ''}}}"
        marks = "?" * self.is_optional + "~" * (not self.is_greedy) + "=" * self.is_consecutive
        return f"{'next ' * self.is_strict}{'not ' * len(self.absent)}{self.name}{counted}{marks}"


@dataclass(frozen=True, slots=True)
class Pattern(Generic[V]):
    """A pattern that is whole: steps, what may not follow them, and how long a match may take."""

    steps: tuple[PatternStep, ...]
    absent_at_end: tuple[Condition, ...]
    within_ms: int

    @property
    def shape(self) -> str:
        """All but conditions and duration, as text: what matches that have begun depend on."""
        return "; ".join([step.shape for step in self.steps] + ["not"] * len(self.absent_at_end))

    def step_number(self, name: str) -> int:
        """Which step has that name. Raises ``GraphError`` for none."""
        names = [step.name for step in self.steps]
        if name not in names:
            raise GraphError(
                f"The pattern has no step {name!r}.", action=f"Name one of {', '.join(map(repr, names))}."
            )
        return names.index(name)


@dataclass(frozen=True, slots=True)
class PatternSteps(Generic[V]):
    """A pattern that is being written; ``within`` makes it whole. Each method returns a new one."""

    steps: tuple[PatternStep, ...]
    absent: tuple[Condition, ...] = ()
    """What may not come before the step that is written next."""

    def then(
        self, name: str, where: Where[V] | None = None, *, given: Given[V] | None = None
    ) -> PatternSteps[V]:
        """One more step, which takes the first record behind that fits; others in between are passed over.

        ``where`` looks at the record, ``given`` also at what was taken before it; without both every record fits.
        """
        return self._with(name, where, given, is_strict=False)

    def next(
        self, name: str, where: Where[V] | None = None, *, given: Given[V] | None = None
    ) -> PatternSteps[V]:
        """One more step, which must take the record that directly follows the last one taken."""
        if self.absent:
            raise GraphError(
                f"Nothing can lie before the step {name!r}, and something is excluded there.",
                action="Leave without(…) out, or write then(…) in the place of next(…).",
            )
        return self._with(name, where, given, is_strict=True)

    def without(self, where: Where[V] | None = None, *, given: Given[V] | None = None) -> PatternSteps[V]:
        """No such record lies between the step before and the one behind; at the end, until ``within`` has passed.

        The record that the step behind takes does not lie between. A pattern that ends so matches when its time is up.
        """
        last = self.steps[-1]
        if last.is_optional:
            raise _ambiguous(
                f"where the records without(…) excludes begin, behind the optional step {last.name!r}",
                "Exclude them behind a step that is always there.",
            )
        if where is None and given is None:
            raise GraphError(
                f"Behind the step {last.name!r} every record is excluded.",
                action="Give without(…) a condition, or say by next(…) that a step directly follows.",
            )
        return replace(self, absent=(*self.absent, Condition(where, given)))

    def optional(self, *, greedy: bool = True) -> PatternSteps[V]:
        """The step before may be missing; a greedy one takes a record that the steps behind would take, too."""
        last = self._last("optional")
        if len(self.steps) == 1:
            raise _ambiguous(
                f"with which record a match begins, as its first step {last.name!r} is optional",
                "Begin with a step that is always there.",
            )
        if last.absent:
            raise _ambiguous(
                f"where the records without(…) excludes end, before the optional step {last.name!r}",
                "Exclude them before a step that is always there.",
            )
        return self._changed(is_optional=True, is_greedy=greedy)

    def one_or_more(self, *, greedy: bool = True, consecutive: bool = False) -> PatternSteps[V]:
        """The step before takes all records that fit until the one behind takes one.

        Where a record fits both, a greedy step takes it as long as the steps behind find others. ``consecutive``: its
        records directly follow each other.
        """
        return self._repeated("one_or_more", 1, None, greedy, consecutive)

    def times(
        self, least: int, most: int | None = None, *, greedy: bool = True, consecutive: bool = False
    ) -> PatternSteps[V]:
        """The step before takes so many records: exactly ``least``, or up to ``most``."""
        most = least if most is None else most
        if least < 1 or most < least:
            raise GraphError(
                f"The step {self.steps[-1].name!r} takes {least} to {most} records.",
                action="Give 1 or more, and most=… not below least; optional() makes it 0, too.",
            )
        return self._repeated("times", least, most, greedy, consecutive)

    def within(self, span: timedelta) -> Pattern[V]:
        """The pattern as a whole: its last record comes less than ``span`` of event time after its first.

        Raises ``GraphError`` for definitions that would be ambiguous.
        """
        within_ms = declared_ms("time within which a pattern matches", span)
        if within_ms < 1:
            raise GraphError("The pattern matches within no time at all.", action="Give 1 ms or more.")
        for step in _ending(self.steps):
            if not step.is_greedy:
                raise _ambiguous(
                    f"when a match ends, as the step {step.name!r} is not greedy and nothing has to follow it",
                    "Leave greedy=False out, or add the step that ends it.",
                )
        return Pattern(self.steps, self.absent, within_ms)

    def _with(
        self, name: str, where: Where[V] | None, given: Given[V] | None, *, is_strict: bool
    ) -> PatternSteps[V]:
        if name in {step.name for step in self.steps}:
            raise _ambiguous(f"which step {name!r} is meant: two have that name", "Give each its own name.")
        step = _step(name, where, given, is_strict=is_strict, absent=self.absent)
        return PatternSteps((*self.steps, step))

    def _last(self, what: str) -> PatternStep:
        if self.absent:
            raise GraphError(
                f"{what}() follows without(…), which is no step.", action=f"Write {what}() behind a step."
            )
        return self.steps[-1]

    def _repeated(
        self, what: str, least: int, most: int | None, greedy: bool, consecutive: bool
    ) -> PatternSteps[V]:
        last = self._last(what)
        if last.repeats:
            raise _ambiguous(
                f"how many records the step {last.name!r} takes: it was said twice", "Say it once."
            )
        if last.is_optional and last.is_greedy != greedy:
            raise _ambiguous(
                f"whether the step {last.name!r} is greedy: it was said in two ways", "Say the same in both."
            )
        return self._changed(least=least, most=most, is_greedy=greedy, is_consecutive=consecutive)

    def _changed(self, **how: Any) -> PatternSteps[V]:
        last = self.steps[-1]
        if how.get("is_optional") and last.repeats and last.is_greedy != how["is_greedy"]:
            raise _ambiguous(
                f"whether the step {last.name!r} is greedy: it was said in two ways", "Say the same in both."
            )
        return replace(self, steps=(*self.steps[:-1], replace(last, **how)))


@dataclass(frozen=True, slots=True)
class PatternOf(Generic[V]):
    """Values of one type, of which a pattern is to be written."""

    def begin(
        self, name: str, where: Where[V] | None = None, *, given: Given[V] | None = None
    ) -> PatternSteps[V]:
        """The first step: every record that fits begins a match."""
        return PatternSteps((_step(name, where, given, is_strict=False, absent=()),))


def pattern(of: type[V]) -> PatternOf[V]:
    """A pattern in records with values of one type: ``sf.pattern(Payment).begin(…).then(…).within(…)``.

    Each step takes one record unless ``optional``, ``one_or_more`` or ``times`` behind it says otherwise. A record
    that a match could take is not passed over. ``docs/patterns.md`` has an example of each verb.
    """
    if not isinstance(of, type):
        raise GraphError(f"A pattern of {of!r}.", action="Give the type of the stream's values, or object.")
    return PatternOf()


AfterMatch = Literal["past-last", "next"]
"""Where further matches may begin: behind the last record of the one that was found, or with any record."""


@dataclass(frozen=True, slots=True)
class SkipTo:
    """Further matches may begin with the first, or the last, record of a step of the match that was found."""

    step: str
    record: Literal["first", "last"] = "first"


def checked_after(found: Pattern[Any], after: AfterMatch | SkipTo) -> None:
    """Raise ``GraphError`` for a strategy that a pattern cannot follow."""
    if not isinstance(after, SkipTo):
        if after not in ("past-last", "next"):
            raise GraphError(
                f"Matches are to go on {after!r}.",
                action='Write after="past-last", after="next" or after=sf.SkipTo(step).',
            )
        return
    number = found.step_number(after.step)
    step = found.steps[number]
    if after.record not in ("first", "last"):
        raise GraphError(f"A step has no {after.record!r} record.", action='Write "first" or "last".')
    if step.is_optional:
        raise _ambiguous(
            f"where matches go on, as the step {after.step!r} is optional", "Name one that is always there."
        )
    if number == 0 and (after.record == "first" or step.least == 1):
        raise GraphError(
            f"Behind a match the next one may begin with the {after.record} record of {after.step!r}, which may be"
            " that of the match itself: it would be found again for ever.",
            action='Name a later step, or write after="next".',
        )


def _step(
    name: str,
    where: Callable[[Any], object] | None,
    given: Callable[[Any, Match[Any]], object] | None,
    *,
    is_strict: bool,
    absent: tuple[Condition, ...],
) -> PatternStep:
    if not isinstance(name, str) or not name:
        raise GraphError(f"A step of a pattern is called {name!r}.", action="Give it a name of its own.")
    checked_or_none(where, "where of the pattern's step", name)
    checked_or_none(given, "given of the pattern's step", name)
    return PatternStep(name=name, condition=Condition(where, given), is_strict=is_strict, absent=absent)


def _ending(steps: Sequence[PatternStep]) -> Iterator[PatternStep]:
    """The steps behind which a match may end."""
    for step in reversed(steps):
        yield step
        if not step.is_optional:
            break


def _ambiguous(what: str, action: str) -> GraphError:
    return GraphError(f"The pattern does not say {what}.", action=action)
