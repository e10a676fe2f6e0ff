"""The matcher against Python's regular expressions: which way a match goes, for conditions on records alone."""

from __future__ import annotations

import random
import re

import pytest

from stateflow.lab.operators.pattern_oracle import Asked, Part, Spec
from stateflow.lab.operators.random_patterns import random_spec
from stateflow.operators.patterns.match import Match
from stateflow.operators.patterns.matching import Matcher, Offered, Taken

LETTERS = "ABCDEF"  # of values 0 to 5


def no_records(taken: Taken) -> Match[int]:
    raise AssertionError(f"no condition looks back at {taken}")


def by_matcher(spec: Spec, values: list[int]) -> list[tuple[int, int]] | None:
    """Steps and places of the records of the match that begins with the first; None for none."""
    matcher = Matcher(spec.pattern())
    begun = None
    for number, value in enumerate(values):
        record = Offered(number.to_bytes(1), value, no_records)
        begun = matcher.begin(record) if begun is None else matcher.offer(begun, record)
        if begun is None:
            return None
    assert begun is not None
    taken = matcher.close(begun)
    return None if taken is None else [(step, entry[0]) for step, entry in taken]


def one_of(*asked: Asked) -> str:
    return "".join(sorted({LETTERS[rest] for each in asked for rest in each.rests}))


class Regex:
    """A pattern of relaxed steps without exclusions as a regular expression over the letters of the values.

    Without groups: the expressions of Python report stale ones of ways that they gave up.
    """

    def __init__(self, spec: Spec) -> None:
        self.parts = spec.parts
        self.text = self.taking(0) + self.behind(0, 1)

    def taking(self, number: int) -> str:
        return f"[{one_of(self.parts[number].test)}]"

    def behind(self, number: int, count: int) -> str:
        """All that may come once a part has taken so many."""
        part = self.parts[number]
        repeats = part.most is None or count < part.most
        leaves = count >= part.least
        entries = self.entries(number + 1) if leaves else []
        tests = [self.parts[each].test for each in entries] + ([part.test] if repeats else [])
        skipped = f"[^{one_of(*tests)}]*" if tests else ""
        ways = []
        if repeats and part.most is None and leaves:
            again = f"(?:{skipped}[{one_of(part.test)}])*" + ("" if part.is_greedy else "?")
            ways.append(again + "(?:" + "|".join(self.leaving(number, entries, skipped)) + ")")
        else:
            taken = [skipped + self.taking(number) + self.behind(number, count + 1)] if repeats else []
            left = self.leaving(number, entries, skipped) if leaves else []
            ways = taken + left if part.is_greedy else left + taken
        return "(?:" + "|".join(ways) + ")"

    def leaving(self, number: int, entries: list[int], skipped: str) -> list[str]:
        ways = [skipped + self.taking(each) + self.behind(each, 1) for each in entries]
        if all(part.is_optional for part in self.parts[number + 1 :]):
            ways.append("")
        return ways

    def entries(self, number: int) -> list[int]:
        if number == len(self.parts):
            return []
        further = self.entries(number + 1) if self.parts[number].is_optional else []
        return [number, *further] if self.parts[number].is_greedy else [*further, number]


def relaxed(rng: random.Random) -> Spec:
    spec = random_spec(rng, 1_000)
    parts = [
        part._replace(
            absent=(), is_strict=False, is_consecutive=False, test=part.test._replace(is_rising=False)
        )
        for part in spec.parts
    ]
    return Spec(tuple(parts), 1_000)


@pytest.mark.parametrize("seed", range(4))
def test_the_preferred_way_is_that_of_a_regular_expression(seed: int) -> None:
    rng = random.Random(f"regex-{seed}")
    found = 0
    for _ in range(250):
        spec = relaxed(rng)
        values = [rng.choice(sorted(spec.parts[0].test.rests)), *(rng.randrange(6) for _ in range(9))]
        regex = Regex(spec)
        told = re.match(regex.text, "".join(LETTERS[value] for value in values))
        ours = by_matcher(spec, values)
        assert (ours is None) == (told is None), (spec, values)
        if told is not None and ours is not None:
            found += 1
            assert ours[-1][1] == told.end() - 1, (
                spec,
                values,
                regex.text,
            )  # where a way ends tells it from others
    assert found > 100


def test_too_many_ways_are_an_error_and_equal_places_are_one() -> None:
    every = Asked(frozenset(range(6)))
    blind = Spec(
        (Part("a", every), Part("b", every, most=None), Part("c", every, most=None), Part("d", every)), 9
    )
    assert by_matcher(blind, [0] * 100) is not None
    rising = every._replace(is_rising=True)
    looking = Spec((*blind.parts[:3], Part("d", rising)), 9)
    matcher = Matcher(looking.pattern())
    records = [Offered(n.to_bytes(2), 0, lambda _: Match({"a": [5]}, (0, 0))) for n in range(300)]
    begun = matcher.begin(records[0])
    assert begun is not None
    for record in records[1:257]:
        begun = matcher.offer(begun, record)
    with pytest.raises(ValueError, match="in more than 256 ways"):
        matcher.offer(begun, records[257])
