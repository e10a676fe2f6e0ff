"""Expressions over the fields of a value: ``sf.col("cents") > 0``.

They stand wherever a function of the value may, and say what a function cannot: which fields they read. A step before
state can then take just those out of a record (``stateflow/operators/steps/reads.py``), and a batch is computed column
by column. None is SQL's NULL: what is computed of it is None, ``&`` and ``|`` follow the logic of three values, and a
filter keeps what is True. A field that a dict does not have is None.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, NoReturn

from stateflow.errors import GraphError
from stateflow.operators.steps.column_functions import ColumnFunction, field_of_many, field_of_one


class Column(ColumnFunction):
    """A column computed of values: immutable, without effects, and a function of one value, too.

    What cannot be computed (text plus a number, a division by zero) raises, and follows the policy of the step.
    """

    __slots__ = ("_compute", "_text", "fields", "returns")
    __hash__ = None  # type: ignore[assignment]
    """``==`` makes a column, so columns cannot be told apart by it."""

    def __init__(
        self,
        compute: Callable[[Sequence[Any]], list[Any]],
        fields: frozenset[str],
        text: str,
        returns: Any = None,
    ) -> None:
        self._compute, self._text = compute, text
        self.fields = fields
        """Fields of the value that it reads."""
        self.returns = returns
        """Type of what it computes, where that is known."""

    def of_many(self, values: Sequence[Any]) -> list[Any]:
        """What it is for each of the values."""
        return self._compute(values)

    def __repr__(self) -> str:
        return self._text

    def __bool__(self) -> NoReturn:
        raise GraphError(
            f"{self._text} is no true or false before there is a value.",
            action="Write & for and, | for or, ~ for not, with each comparison in brackets; between() and is_in() for"
            " chains and `in`.",
        )

    # --- arithmetic -------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Column:
        return _both(operator.add, self, other, "+")

    def __radd__(self, other: Any) -> Column:
        return _both(operator.add, other, self, "+")

    def __sub__(self, other: Any) -> Column:
        return _both(operator.sub, self, other, "-")

    def __rsub__(self, other: Any) -> Column:
        return _both(operator.sub, other, self, "-")

    def __mul__(self, other: Any) -> Column:
        return _both(operator.mul, self, other, "*")

    def __rmul__(self, other: Any) -> Column:
        return _both(operator.mul, other, self, "*")

    def __truediv__(self, other: Any) -> Column:
        return _both(operator.truediv, self, other, "/", float)

    def __rtruediv__(self, other: Any) -> Column:
        return _both(operator.truediv, other, self, "/", float)

    def __floordiv__(self, other: Any) -> Column:
        return _both(operator.floordiv, self, other, "//")

    def __mod__(self, other: Any) -> Column:
        return _both(operator.mod, self, other, "%")

    def __neg__(self) -> Column:
        return _each(operator.neg, self, f"-{self._text}")

    def __abs__(self) -> Column:
        return _each(abs, self, f"abs({self._text})")

    # --- comparison and logic ---------------------------------------------------------------------------

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return _both(operator.eq, self, other, "==", bool)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return _both(operator.ne, self, other, "!=", bool)

    def __lt__(self, other: Any) -> Column:
        return _both(operator.lt, self, other, "<", bool)

    def __le__(self, other: Any) -> Column:
        return _both(operator.le, self, other, "<=", bool)

    def __gt__(self, other: Any) -> Column:
        return _both(operator.gt, self, other, ">", bool)

    def __ge__(self, other: Any) -> Column:
        return _both(operator.ge, self, other, ">=", bool)

    def __and__(self, other: Any) -> Column:
        return _logic(_and, False, self, other, "&")

    def __rand__(self, other: Any) -> Column:
        return _logic(_and, False, other, self, "&")

    def __or__(self, other: Any) -> Column:
        return _logic(_or, True, self, other, "|")

    def __ror__(self, other: Any) -> Column:
        return _logic(_or, True, other, self, "|")

    def __invert__(self) -> Column:
        return _each(_not, self, f"~{self._text}", bool)

    def between(self, low: Any, high: Any) -> Column:
        """Not below ``low`` and not above ``high``."""
        return _logic(_and, False, self >= low, self <= high, "&")

    def is_in(self, choices: Iterable[Any]) -> Column:
        """Whether it is one of these values; None for None."""
        listed = tuple(choices)
        shown = ", ".join(sorted(dict.fromkeys(map(repr, listed))))
        return _each(_among(listed), self, f"{self._text}.is_in({shown})", bool)

    # --- what there is no value for ---------------------------------------------------------------------

    def is_null(self) -> Column:
        """Whether there is no value."""
        compute = self._compute
        return Column(
            lambda values: [part is None for part in compute(values)],
            self.fields,
            f"{self._text}.is_null()",
            bool,
        )

    def is_not_null(self) -> Column:
        """Whether there is a value."""
        compute = self._compute
        return Column(
            lambda values: [part is not None for part in compute(values)],
            self.fields,
            f"{self._text}.is_not_null()",
            bool,
        )

    def fill_null(self, other: Any) -> Column:
        """This, or the other column or value where this is None."""
        first, second = self._compute, as_column(other)

        def compute(values: Sequence[Any]) -> list[Any]:
            found = first(values)
            others = _where(second, values, [one is None for one in found])
            return [next(others) if one is None else one for one in found]

        return Column(
            compute,
            self.fields | second.fields,
            f"{self._text}.fill_null({other!r})",
            self.returns,
        )

    # --- text and types ---------------------------------------------------------------------------------

    def cast(self, type_: type[int] | type[float] | type[str]) -> Column:
        """As another type, as Python converts it; text that is no number raises."""
        return _each(type_, self, f"{self._text}.cast({type_.__name__})", type_)

    def lower(self) -> Column:
        """Text in small letters."""
        return _each(str.lower, self, f"{self._text}.lower()", str)

    def upper(self) -> Column:
        """Text in capital letters."""
        return _each(str.upper, self, f"{self._text}.upper()", str)

    def strip(self) -> Column:
        """Text without white space at its ends."""
        return _each(str.strip, self, f"{self._text}.strip()", str)

    def length(self) -> Column:
        """Characters of a text, items of a list."""
        return _each(len, self, f"{self._text}.length()", int)

    def contains(self, part: str) -> Column:
        """Whether a text has this in it, as it is written."""
        return _each(lambda text: part in _text(text), self, f"{self._text}.contains({part!r})", bool)

    def starts_with(self, part: str) -> Column:
        """Whether a text begins so."""
        return _each(
            lambda text: _text(text).startswith(part), self, f"{self._text}.starts_with({part!r})", bool
        )

    def ends_with(self, part: str) -> Column:
        """Whether a text ends so."""
        return _each(lambda text: _text(text).endswith(part), self, f"{self._text}.ends_with({part!r})", bool)


def col(name: str, *path: str) -> Column:
    """The field of a value, and on from there: ``sf.col("customer", "city")``.

    Values may be dicts, where a field that is absent is None, or objects with attributes.
    """
    for part in (name, *path):
        if not isinstance(part, str) or not part:
            raise GraphError(
                f"{part!r} is no name of a field.", action='Give names as text: sf.col("cents").'
            )

    def compute(values: Sequence[Any]) -> list[Any]:
        column = field_of_many(name, values)
        for inner in path:
            column = [None if part is None else field_of_one(inner, part) for part in column]
        return column

    return Column(compute, frozenset((name,)), f"col({', '.join(map(repr, (name, *path)))})")


def when(condition: Column, value: Any, *, otherwise: Any = None) -> Column:
    """One column or value where the condition is True, another where it is False or None.

    Each is computed where it is taken only: ``sf.when(n != 0, total / n)`` divides by nothing.
    """
    yes, no = as_column(value), as_column(otherwise)

    def compute(values: Sequence[Any]) -> list[Any]:
        taken = [chosen is True for chosen in condition.of_many(values)]
        ones, others = _where(yes, values, taken), _where(no, values, map(operator.not_, taken))
        return [next(ones) if is_taken else next(others) for is_taken in taken]

    return Column(
        compute,
        condition.fields | yes.fields | no.fields,
        f"when({condition!r}, {value!r}, otherwise={otherwise!r})",
        yes.returns if yes.returns is no.returns else None,
    )


def as_column(value: Any) -> Column:
    """A column as it is; any other value as a column that is always this."""
    if isinstance(value, Column):
        return value
    returns = type(value) if type(value) in (int, float, str, bool) else None
    return Column(lambda values: [value] * len(values), frozenset(), repr(value), returns)


# --- how they are computed ------------------------------------------------------------------------------


def _each(function: Callable[[Any], Any], column: Column, text: str, returns: Any = None) -> Column:
    compute = column.of_many
    return Column(
        lambda values: [None if part is None else function(part) for part in compute(values)],
        column.fields,
        text,
        returns,
    )


def _both(function: Callable[[Any, Any], Any], one: Any, two: Any, sign: str, returns: Any = None) -> Column:
    left, right = as_column(one), as_column(two)
    text, fields = f"({one!r} {sign} {two!r})", left.fields | right.fields
    if not isinstance(two, Column) and two is not None:
        first = left.of_many
        return Column(
            lambda values: [None if part is None else function(part, two) for part in first(values)],
            fields,
            text,
            returns,
        )
    return Column(
        lambda values: [
            None if part is None or other is None else function(part, other)
            for part, other in zip(left.of_many(values), right.of_many(values), strict=True)
        ],
        fields,
        text,
        returns,
    )


def _where(column: Column, values: Sequence[Any], wanted: Iterable[bool]) -> Iterator[Any]:
    """A column of those values alone that are wanted."""
    return iter(column.of_many(list(compress(values, wanted))))


def _logic(function: Callable[[Any, Any], Any], decided: bool, one: Any, two: Any, sign: str) -> Column:
    """Where the first is ``decided``, so is the whole, and the second is not computed: as ``and`` and ``or``."""
    left, right = as_column(one), as_column(two)

    def compute(values: Sequence[Any]) -> list[Any]:
        firsts = left.of_many(values)
        seconds = _where(right, values, [first is not decided for first in firsts])
        return [decided if first is decided else function(first, next(seconds)) for first in firsts]

    return Column(
        compute,
        left.fields | right.fields,
        f"({one!r} {sign} {two!r})",
        bool,
    )


def _among(listed: tuple[Any, ...]) -> Callable[[Any], bool]:
    """``in`` of these; lists and dicts among them, or looked for, are compared one by one."""
    try:
        hashed = frozenset(listed)
    except TypeError:
        return listed.__contains__

    def is_among(value: Any) -> bool:
        try:
            return value in hashed
        except TypeError:  # it has no hash
            return value in listed

    return is_among


def _and(one: Any, two: Any) -> bool | None:
    first, second = _truth(one), _truth(two)
    if first is False or second is False:
        return False
    return None if first is None or second is None else True


def _or(one: Any, two: Any) -> bool | None:
    first, second = _truth(one), _truth(two)
    if first is True or second is True:
        return True
    return None if first is None or second is None else False


def _not(one: Any) -> bool | None:
    truth = _truth(one)
    return None if truth is None else not truth


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is no true or false: compare it with something")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")
