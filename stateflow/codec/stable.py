"""Values in one order, so that equal ones have equal bytes: what keys are written from.

A set comes in another order in each process, since Python salts the hashes of text, and a dict as it was filled.
Bytes of a value may differ so; those of a key may not: they choose its partition, and state is found by them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

from stateflow.codec.type_parts import SCALARS, field_names, parts_of

Encode = Callable[[Any], bytes]

_TEXT = {str}
_WITHOUT_ORDER = (
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.DictType,
    inspect.TypedDictType,
    inspect.AnyType,
    inspect.CustomType,
)
"""Types whose values may come in any order, or contain such."""


def may_lack_order(type_: Any) -> bool:
    """Whether equal values of a type may be encoded differently: it has sets, dicts or untyped parts."""
    return any(isinstance(part, _WITHOUT_ORDER) for part in parts_of(type_))


def stable_encoder(encode: Encode) -> Encode:
    """An encoder that puts a value in order before; text and numbers cost it a look at their type."""
    return lambda value: encode(value if type(value) in SCALARS else in_order(value, encode))


def in_order(value: Any, encode: Encode) -> Any:
    """The value with its sets as lists and its dicts sorted: text as text, anything else by the encoded bytes.

    Fields stay as they are declared. What has neither sets nor dicts is returned as it is.
    """
    if type(value) in SCALARS:
        return value
    if isinstance(value, set | frozenset):
        if {*map(type, value)} == _TEXT:
            return sorted(value)
        return sorted((in_order(each, encode) for each in value), key=encode)
    if isinstance(value, dict):
        if {*map(type, value)} == _TEXT:
            return {key: in_order(value[key], encode) for key in sorted(value)}
        entries = [(in_order(key, encode), in_order(each, encode)) for key, each in value.items()]
        return dict(sorted(entries, key=lambda entry: encode(entry[0])))
    if isinstance(value, list | tuple):
        return _sequence_in_order(value, encode)
    return _object_in_order(value, encode)


def _sequence_in_order(value: list[Any] | tuple[Any, ...], encode: Encode) -> Any:
    items = [in_order(each, encode) for each in value]
    if all(map(_is, items, value)):
        return value
    return tuple(items) if isinstance(value, tuple) else items  # a tuple can be the key of a dict


def _object_in_order(value: Any, encode: Encode) -> Any:
    """A copy of a dataclass or Struct that has other values in some fields; its ``__init__`` is not run again."""
    changed: dict[str, Any] = {}
    for name in _fields(value):
        found = getattr(value, name, msgspec.UNSET)
        put = in_order(found, encode)
        if put is not found:
            changed[name] = put
    if not changed:
        return value
    ordered = copy.copy(value)
    for name, put in changed.items():
        if isinstance(value, msgspec.Struct):
            msgspec.structs.force_setattr(ordered, name, put)
        else:
            object.__setattr__(ordered, name, put)  # it may be frozen
    return ordered


def _fields(value: Any) -> tuple[str, ...]:
    names = field_names(value)
    return tuple(field.name for field in getattr(value, "__attrs_attrs__", ())) if names is None else names


def _is(one: object, other: object) -> bool:
    return one is other
