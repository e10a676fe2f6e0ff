"""Random patterns: every verb, in every combination that is no ambiguity."""

from __future__ import annotations

import random
from typing import Literal

import stateflow as sf
from stateflow.lab.operators.pattern_oracle import Asked, Part, Spec

_NAMES = "abcd"


def random_spec(rng: random.Random, within_ms: int) -> Spec:
    """A pattern of one to four steps, and what a match leaves to others."""
    parts: list[Part] = []
    for number in range(rng.choice((1, 2, 3, 3, 4))):
        parts.append(_part(rng, number, parts[-1] if parts else None))
    for number in reversed(range(len(parts))):  # what a match may end with is greedy
        parts[number] = parts[number]._replace(is_greedy=True)
        if not parts[number].is_optional:
            break
    at_end = () if parts[-1].is_optional or rng.random() < 0.7 else (_test(rng, 1, number=1),)
    return Spec(tuple(parts), within_ms, at_end, _after(rng, parts))


def _part(rng: random.Random, number: int, before: Part | None) -> Part:
    is_optional = number > 0 and rng.random() < 0.3
    is_strict = number > 0 and rng.random() < 0.25
    may_exclude = before is not None and not before.is_optional and not is_optional and not is_strict
    least, most = rng.choice(((1, 1), (1, 1), (1, 1), (1, None), (2, 2), (1, 2), (2, 3)))
    return Part(
        name=_NAMES[number],
        test=_test(rng, rng.choice((1, 2, 2, 3)), number),
        absent=(_test(rng, 1, number),) if may_exclude and rng.random() < 0.3 else (),
        is_strict=is_strict,
        least=least,
        most=most,
        is_optional=is_optional,
        is_greedy=((least, most) == (1, 1) and not is_optional) or rng.random() < 0.6,
        is_consecutive=(least, most) != (1, 1) and rng.random() < 0.2,
    )


def _test(rng: random.Random, size: int, number: int) -> Asked:
    return Asked(frozenset(rng.sample(range(6), size)), is_rising=number > 0 and rng.random() < 0.15)


def _after(rng: random.Random, parts: list[Part]) -> Literal["past-last", "next"] | sf.SkipTo:
    steps = [part.name for part in parts[1:] if not part.is_optional]
    if not steps or rng.random() < 0.7:
        return rng.choice(("past-last", "next"))
    return sf.SkipTo(rng.choice(steps), rng.choice(("first", "last")))
