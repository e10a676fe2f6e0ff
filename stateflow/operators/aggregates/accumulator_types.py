"""What type an accumulator is of which nobody said it: from annotations, its first value, or the stream's values.

Such an accumulator is stored as before, as MessagePack of any shape, and the catalog says so: the type tells only as
what it is read. Plain data (dict, list, str, number) needs no type, so none is inferred for it, and nothing is refused
because an annotation says ``int`` and the function returns a float.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec

from stateflow.codec.infer import codec_or_none, result_type
from stateflow.codec.type_parts import parts_of
from stateflow.operators.steps.fields import Pick

_PLAIN = (
    msgspec.inspect.AnyType,
    msgspec.inspect.NoneType,
    msgspec.inspect.BoolType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.StrType,
    msgspec.inspect.BytesType,
    msgspec.inspect.ListType,
    msgspec.inspect.DictType,
    msgspec.inspect.TypedDictType,
    msgspec.inspect.LiteralType,
    msgspec.inspect.UnionType,
    msgspec.inspect.Field,
)
"""What MessagePack gives back as it was without being told."""
_BUILTINS = (int, float, str, bool, bytes, list, dict, type(None))


def known_type(function: Callable[..., Any] | None) -> Any:
    """What a function is annotated to return, where that is a type to read values as; else None."""
    return None if function is None else _kept(result_type(function))


def type_of_initial(initial: Any) -> Any:
    """The type of a first accumulator, given as a class or as a value; None for plain data and for a function."""
    if isinstance(initial, type):
        return _kept(initial)
    return None if callable(initial) else _kept(type(initial))


def part_type(of: Pick | None, values: Any) -> Any:
    """The type of what ``of`` picks of values of a type; None where it is plain or cannot be told."""
    if of is None:
        return _kept(values)
    if not isinstance(of, str):
        return known_type(of)
    try:
        return _kept(get_type_hints(values).get(of))
    except (NameError, TypeError, AttributeError):
        return None  # no class with fields, or annotations of names that are only imported for type checkers


def optional_type(type_: Any) -> Any:
    """The type or None."""
    return None if type_ is None else type_ | None


def list_type(type_: Any) -> Any:
    """A list of the type."""
    return None if type_ is None else list[type_]


def _kept(type_: Any) -> Any:
    codec = codec_or_none(type_, "msgpack")
    if codec is None or type_ in _BUILTINS or _is_plain(type_):
        return None
    return type_


def _is_plain(type_: Any) -> bool:
    return all(isinstance(part, _PLAIN) for part in parts_of(type_))
