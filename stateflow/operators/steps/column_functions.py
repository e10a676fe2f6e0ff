"""Functions of a value that are computed for a whole batch, and say which fields they read."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from stateflow.codec.projected import ProjectedRow, present

_MISSING = object()


class ColumnFunction(ABC):
    """A function of a value that is computed for a whole batch, and says which fields it reads. It has no effects."""

    __slots__ = ()
    fields: frozenset[str]

    @abstractmethod
    def of_many(self, values: Sequence[Any]) -> list[Any]:
        """What it is for each of the values."""

    def __call__(self, value: Any) -> Any:
        """What it is for one value."""
        return self.of_many((value,))[0]


class Columns(ColumnFunction):
    """Several columns of a value as one dict."""

    def __init__(self, parts: Mapping[str, ColumnFunction]) -> None:
        self._names, self._parts = tuple(parts), tuple(parts.values())
        self.fields = frozenset[str]().union(*(part.fields for part in self._parts))
        self.returns = dict[str, Any]

    def of_many(self, values: Sequence[Any]) -> list[Any]:
        """A dict for each of the values."""
        names = self._names
        columns = [part.of_many(values) for part in self._parts]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def __repr__(self) -> str:
        return ", ".join(f"{name}={part!r}" for name, part in zip(self._names, self._parts, strict=True))


class FirstTrue(ColumnFunction):
    """Which of several columns is the first that is True of a value; their number where none is."""

    def __init__(self, parts: Sequence[ColumnFunction]) -> None:
        self._parts = tuple(parts)
        self.fields = frozenset[str]().union(*(part.fields for part in parts))

    def of_many(self, values: Sequence[Any]) -> list[int]:
        """The number of each value's. A column is computed of those alone for which none before it is true."""
        found = [len(self._parts)] * len(values)
        open_rows = list(range(len(values)))
        for number, part in enumerate(self._parts):
            computed = zip(open_rows, part.of_many([values[row] for row in open_rows]), strict=True)
            open_rows = []
            for row, true in computed:
                if true:
                    found[row] = number
                else:
                    open_rows.append(row)
        return found


def field_of_many(name: str, values: Sequence[Any]) -> list[Any]:
    """The field of each value; a batch is mostly of one type."""
    first = type(values[0]) if values else None
    if first is dict:
        try:
            return [value.get(name) for value in values]
        except AttributeError:  # a batch of several types
            pass
    elif first is not None and issubclass(first, ProjectedRow):
        return [present(part) for part in map(operator.attrgetter(name), values)]
    return [field_of_one(name, value) for value in values]


def field_of_one(name: str, value: Any) -> Any:
    """The field of one value, None where a dict has none; raises ``AttributeError`` for an object without it."""
    if isinstance(value, Mapping):
        return value.get(name)
    found = getattr(value, name, _MISSING)
    if found is _MISSING:
        raise AttributeError(f"a {type(value).__name__} has no field {name!r}")
    return present(found)
