"""A part of a value by name: ``"cents"`` of a dict, a dataclass, a Struct or a named tuple."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from stateflow.callbacks import checked
from stateflow.codec.projected import ABSENT, ProjectedRow

Pick = str | Callable[[Any], Any]
"""A field's name, or a function or column expression that picks something out of a value."""


class Field:
    """Picks one field; raises ``KeyError`` or ``AttributeError`` where there is none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields = frozenset((name,))

    def __call__(self, value: Any) -> Any:
        """The field of one value."""
        if isinstance(value, Mapping):
            return value[self.name]
        found = getattr(value, self.name)
        if found is ABSENT and isinstance(value, ProjectedRow):
            raise KeyError(self.name)
        return found

    def of_many(self, values: Sequence[Any]) -> list[Any]:
        """The field of each value, all of one type."""
        if values and isinstance(values[0], ProjectedRow):
            found = list(map(attrgetter(self.name), values))
            if ABSENT in found:
                raise KeyError(self.name)
            return found
        return list(map(self, values))

    def __repr__(self) -> str:
        return f"Field({self.name!r})"


def picked_of(pick: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """What is picked out of each value; raises what the pick raises."""
    of_many = getattr(pick, "of_many", None)
    return list(map(pick, values)) if of_many is None else of_many(values)


def picker(pick: Pick) -> Callable[[Any], Any]:
    """The function behind a pick; raises ``GraphError`` for one that cannot be called for its result."""
    return Field(pick) if isinstance(pick, str) else checked(pick, "What picks a part of a value")
