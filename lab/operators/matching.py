"""Patterns in the records of a key, with each verb of theirs and each way to go on behind a match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import Row, within_grace
from stateflow.lab.operators.pattern_oracle import Asked, Part, Spec, matches
from stateflow.lab.operators.verb import Inputs, Rule, Verb, frozen, output

_WITHIN_MS, _GRACE_MS, _LATE_MS = 6_000, 3_000, 6_000


def _asked(*rests: int, is_rising: bool = False) -> Asked:
    return Asked(frozenset(rests), is_rising)


_A, _B, _C = Part("a", _asked(0, 1)), Part("b", _asked(2, 3)), Part("c", _asked(4, 5))
_MANY = Part("b", _asked(1, 2, 3), most=None)
_END = Part("c", _asked(3, 4))

SPECS = {
    "match a sequence": Spec((_A, _B, _C), _WITHIN_MS),
    "match what directly follows": Spec((_A, _B._replace(is_strict=True, is_optional=True), _C), _WITHIN_MS),
    "match one or more": Spec((_A, _MANY, _END), _WITHIN_MS),
    "match one or more, as few as possible": Spec((_A, _MANY._replace(is_greedy=False), _END), _WITHIN_MS),
    "match one or more until the time is up": Spec((_A, _MANY), _WITHIN_MS, after="next"),
    "match so many, one after the other": Spec(
        (_A, _MANY._replace(least=2, most=3, is_consecutive=True), _END), _WITHIN_MS, after="next"
    ),
    "match without what is excluded between": Spec((_A, _C._replace(absent=(_asked(2),))), _WITHIN_MS),
    "match without what is excluded to the end": Spec((_A, _B), _WITHIN_MS, (_asked(4),), "next"),
    "match given what was taken": Spec(
        (_A, Part("b", _asked(0, 1, 2, 3, is_rising=True), most=None), _C), _WITHIN_MS
    ),
    "match and skip to a step": Spec((_A, _MANY, _END), _WITHIN_MS, after=sf.SkipTo("b", "last")),
}


def pattern_verbs() -> list[Verb]:
    """All of them."""
    plain = [Verb(name, partial(_match, spec), partial(_results, spec)) for name, spec in SPECS.items()]
    spec = SPECS["match a sequence"]
    build, expected = partial(_match_in_order, spec), partial(_results_in_order, spec)
    return [*plain, Verb("match behind in_order with a grace", build, expected, late_ms=_LATE_MS)]


def _match(spec: Spec, inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    return _matched(spec, inputs, inputs.stream())


def _match_in_order(spec: Spec, inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    grace = timedelta(milliseconds=_GRACE_MS)
    return _matched(spec, inputs, inputs.stream().in_order(name="sorted", grace=grace))


def _matched(spec: Spec, inputs: Inputs, stream: sf.Stream[str, int]) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, list)
    stream.match(spec.pattern(), spec.values, name="found", after=spec.after, value=list).to(topic)
    return topic, "all"


def _results(spec: Spec, rows: Sequence[Row]) -> Iterable[tuple[Any, Any]]:
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.timestamp_ms, row.number)):
        by_key[row.key].append((row.timestamp_ms, row.given))
    for key, given in by_key.items():
        for found in matches(spec, given):
            yield key, frozen([list(values) for values in found.values])


def _results_in_order(spec: Spec, rows: Sequence[Row]) -> Iterable[tuple[Any, Any]]:
    return _results(spec, within_grace(rows, _GRACE_MS))
