"""Counting and adding up numbers: of many keys at once, and what numbers may stay numbers until the commit.

Numbers are added one by one, in the order of the records: a sum of floats is then a function of the log, and not of how
its records were cut into batches.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from stateflow.operators.steps.fields import Pick, picked_of, picker

_WAITING_MAX = 1 << 62
"""Below what every codec of integers takes."""


def added(total: Any, values: Iterable[Any]) -> Any:
    """The total with each of the values added to it."""
    return reduce(operator.add, values, total)


def sum_rows(of: Pick | None) -> Callable[[dict[Any, Any], Sequence[Any], Sequence[Any]], None]:
    """Adds what ``of`` picks of each value to its key's total, None left out."""
    pick = None if of is None else picker(of)

    def add_rows(totals: dict[Any, Any], keys: Sequence[Any], values: Sequence[Any]) -> None:
        if pick is None:
            for key, value in zip(keys, values, strict=True):
                totals[key] += value
        else:
            for key, part in zip(keys, picked_of(pick, values), strict=True):
                if part is not None:
                    totals[key] += part

    return add_rows


def count_rows(totals: dict[Any, int], keys: Sequence[Any], values: Sequence[Any]) -> None:  # noqa: ARG001 - counted
    """Adds one for each row of a key."""
    for key, rows in Counter(keys).items():
        totals[key] += rows


def only(*kinds: type) -> Callable[[Sequence[Any]], bool]:
    """Whether accumulators are numbers that may wait for the commit, and of these types; None where there is none."""

    def may_wait(accumulators: Sequence[Any]) -> bool:
        numbers = [accumulator for accumulator in accumulators if accumulator is not None]
        return (
            {type(number) for number in numbers} <= set(kinds)
            and are_numbers(numbers)
            and not any(number != number for number in numbers)
        )

    return may_wait


def are_numbers(accumulators: Sequence[Any]) -> bool:
    """Integers of Python's own that fit, or floats. What a NaN hides from min and max does not pass."""
    if not {type(accumulator) for accumulator in accumulators} <= {int, float}:
        return False
    least, most = min(accumulators, default=0), max(accumulators, default=0)
    return bool(least > -_WAITING_MAX and most < _WAITING_MAX)
