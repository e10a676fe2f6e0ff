"""What types and values are made of, as msgspec sees them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec

SCALARS = frozenset({str, int, float, bool, bytes, type(None)})


def parts_of(type_: Any) -> Iterator[Any]:
    """All types that a type is made of, itself included, and fields, as ``msgspec.inspect`` describes them."""
    todo, seen = [msgspec.inspect.type_info(type_)], set()
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):
            todo.extend(part)
        elif isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(part) not in seen:
            seen.add(id(part))
            yield part
            todo.extend(getattr(part, name) for name in part.__struct_fields__)


def field_names(value: Any) -> tuple[str, ...] | None:
    """The fields of a Struct or a dataclass; None of anything else."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return None
