"""Verbs that ask outside services, here one that answers late, fails at times and never in the same order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import Row
from stateflow.lab.operators.verb import Inputs, Rule, Verb, output

_FAILURES = 2
"""Of a question, and as many retries: calls made side by side may share them, and none has more."""
Results = Iterable[tuple[Any, Any]]


def calling_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("calls in order", _in_order, _in_order_results),
        Verb("calls as they come", _as_they_come, _sums),
    ]


class _Service:
    """Answers three times the question; the first attempts at some fail, whoever makes them."""

    def __init__(self) -> None:
        self._failed: Counter[int] = Counter()

    async def ask(self, question: int) -> int:
        """The call."""
        for _ in range(question % 5):
            await asyncio.sleep(0)
        if question % 7 == 0 and self._failed[question] < _FAILURES:
            self._failed[question] += 1
            raise ConnectionError(f"try {question} again")
        return 3 * question


def _in_order(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    """The newest answer of each key shows the order."""
    topic, pause = output(inputs), timedelta(0)
    inputs.stream().map_async(_Service().ask, concurrency=4, retries=_FAILURES, pause=pause).to(topic)
    return topic, "newest"


def _in_order_results(rows: Sequence[Row]) -> Results:
    return [(row.key, 3 * row.given) for row in rows]


def _as_they_come(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    """Asked for a part, with a cache; summed in the same stage."""
    topic, cache = output(inputs), sf.Cache(5, timedelta(seconds=2))
    answered = inputs.stream().map_async(
        _Service().ask,
        of=_rest,
        into=_added,
        ordered=False,
        retries=_FAILURES,
        pause=timedelta(0),
        cache=cache,
        value=int,
    )
    answered.sum(name="sums").to(topic)
    return topic, "newest"


def _rest(value: int) -> int:
    return value % 10


def _added(value: int, answer: int) -> int:
    return value + answer


def _sums(rows: Sequence[Row]) -> Results:
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        sums[row.key] += _added(row.given, 3 * _rest(row.given))
    return sums.items()
