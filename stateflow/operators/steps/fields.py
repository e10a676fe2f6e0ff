"""A part of a value by name: ``"cents"`` of a dict, a dataclass, a Struct or a named tuple."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Pick = str | Callable[[Any], Any]
"""A field's name, or a function that picks something out of a value."""


class Field:
    """Picks one field; raises ``KeyError`` or ``AttributeError`` where there is none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Any:
        """The field of one value."""
        return value[self.name] if isinstance(value, Mapping) else getattr(value, self.name)

    def __repr__(self) -> str:
        return f"Field({self.name!r})"


def picker(pick: Pick) -> Callable[[Any], Any]:
    """The function behind a pick."""
    return Field(pick) if isinstance(pick, str) else pick
