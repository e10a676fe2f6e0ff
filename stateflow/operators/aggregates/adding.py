"""Counting and adding up numbers: of many keys at once, and what numbers may stay numbers until the commit.

Numbers are added one by one, in the order of the records: a sum of floats is then a function of the log, and not of how
its records were cut into batches. So it is with integers that no codec takes. Between two records of a batch nobody
encodes an accumulator, so one that would be refused there is looked for, and the records are then folded one by one.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.scalar import IntegerCodec
from stateflow.operators.steps.fields import Pick, picked_of, picker

_WAITING_MAX = 1 << 62
"""Below what every codec of integers takes."""
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""What MessagePack takes."""


class Outgrown(ArithmeticError):
    """Between two records of a batch there was an integer that no codec takes: they must be folded one by one."""


def added(total: Any, values: Sequence[Any]) -> Any:
    """The total with each of the values added to it. Raises ``Outgrown`` for what it is before the last of them."""
    whole = reduce(operator.add, values, total)
    if len(values) > 1 and (not -_WAITING_MAX < whole < _WAITING_MAX or _may_outgrow(values)):
        totals = list(accumulate(values, initial=total))
        if any(map(outgrows, totals[1:-1])):
            raise Outgrown
    return whole


def _may_outgrow(parts: Sequence[Any]) -> bool:
    """False where sums of these are far from the limits, if what all of them come to is; None adds nothing."""
    if not parts:
        return False
    far = _WAITING_MAX // len(parts)
    try:
        return not (min(parts) > -far and max(parts) < far)
    except TypeError:  # there is None among them, or what is no number
        return _may_outgrow([part for part in parts if part is not None]) if None in parts else True


def outgrows(accumulator: Any) -> bool:
    """Whether it is an integer that MessagePack does not take."""
    return type(accumulator) is int and not _LEAST <= accumulator <= _MOST


def outgrowing(type_: Any) -> Callable[[Any], bool] | None:
    """``outgrows`` for accumulators of a type; None for a codec of which nothing is known."""
    limits = _limits_of(type_)
    if limits is None:
        return None
    least, most = limits
    return lambda accumulator: type(accumulator) is int and not least <= accumulator <= most


def _limits_of(type_: Any) -> tuple[int, int] | None:
    """The integers that are kept of a type: the least and the largest one."""
    if type_ is int:
        return _limits_of(IntegerCodec())
    if isinstance(type_, IntegerCodec):
        half = 1 << type_.describe()["bits"] - 1
        return -half, half - 1
    return None if isinstance(type_, Codec) else (_LEAST, _MOST)


def each(add: Callable[[Any, Any], Any], type_: Any) -> Callable[[Any, Sequence[Any]], Any]:
    """``add`` for each of some values. Raises ``Outgrown`` for an accumulator before the last of them."""
    limits = _limits_of(type_)
    checks, (least, most) = limits is not None, limits or (0, 0)

    def add_many(accumulator: Any, values: Sequence[Any]) -> Any:
        if not values:
            return accumulator
        coming = iter(values)
        accumulator = add(accumulator, next(coming))
        for value in coming:
            if type(accumulator) is int and checks and not least <= accumulator <= most:
                raise Outgrown
            accumulator = add(accumulator, value)
        return accumulator

    return add_many


def sum_rows(of: Pick | None) -> Callable[[dict[Any, Any], Sequence[Any], Sequence[Any]], None]:
    """Adds what ``of`` picks of each value to its key's total, None left out; for totals that may wait.

    Raises ``Outgrown``.
    """
    pick = None if of is None else picker(of)

    def add_rows(totals: dict[Any, Any], keys: Sequence[Any], values: Sequence[Any]) -> None:
        parts = values if pick is None else picked_of(pick, values)
        if _may_outgrow(parts):
            _add_checked(totals, keys, parts, skips_none=pick is not None)
        elif pick is None:
            for key, value in zip(keys, parts, strict=True):
                totals[key] += value
        else:
            for key, part in zip(keys, parts, strict=True):
                if part is not None:
                    totals[key] += part

    return add_rows


def _add_checked(
    totals: dict[Any, Any], keys: Sequence[Any], parts: Sequence[Any], *, skips_none: bool
) -> None:
    for key, part in zip(keys, parts, strict=True):
        if part is None and skips_none:
            continue
        totals[key] += part
        if outgrows(totals[key]):
            raise Outgrown


def count_rows(totals: dict[Any, int], keys: Sequence[Any], values: Sequence[Any]) -> None:  # noqa: ARG001 - counted
    """Adds one for each row of a key."""
    for key, rows in Counter(keys).items():
        totals[key] += rows


def kinds_of(type_: Any) -> tuple[type, ...] | None:
    """The numbers that a declared type takes, and gives back as they were; None where it is another type."""
    if type_ is Any or type_ == int | float:
        return int, float
    return (type_,) if type_ in (int, float) else None


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


def difference(whole: int | float, part: int | float) -> Any:
    """The whole without a part; None where that would not be exact."""
    return whole - part if isinstance(whole, int) and isinstance(part, int) else None


def pair_difference(whole: tuple[int, int | float], part: tuple[int, int | float]) -> Any:
    """The same of count and sum."""
    total = difference(whole[1], part[1])
    return None if total is None else (whole[0] - part[0], total)
