"""The codec of a Python type, and the type that a function says it returns."""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Boolean, Bytes, Float, Integer, String
from stateflow.codec.structured import TypedCodec, UntypedCodec, Wire
from stateflow.errors import ConfigError

T = TypeVar("T")

_SCALARS: dict[Any, Codec[Any]] = {bytes: Bytes, str: String, int: Integer, float: Float, bool: Boolean}
_ITERABLES = (list, tuple, set, collections.abc.Iterable, collections.abc.Iterator, collections.abc.Sequence)


def codec_for(type_: Codec[T] | type[T], wire: Wire = "json") -> Codec[T]:
    """The codec of a type; a codec is returned as it is.

    bytes, str, int, float and bool become Kafka's own formats; anything else that msgspec can handle
    (dataclass, Struct, NamedTuple, TypedDict, list, dict, union, datetime …) is written as ``wire``. Raises
    ``ConfigError`` for a type that has no codec.
    """
    if isinstance(type_, Codec):
        return type_
    if type_ in _SCALARS:
        return _SCALARS[type_]
    if type_ is Any or type_ is object:
        return UntypedCodec(wire)
    try:
        _refuse_custom(msgspec.inspect.type_info(type_))
        return TypedCodec(type_, wire)
    except TypeError as cause:
        raise ConfigError(
            f"There is no codec for {type_!r}: {cause}.",
            action="Use a dataclass, a msgspec.Struct, a NamedTuple or builtins, or pass a Codec.",
        ) from cause


def _refuse_custom(info: Any) -> None:
    """msgspec takes any class on trust and fails at the first value; this fails when the graph is built."""
    todo, seen = [info], set()
    while todo:
        part = todo.pop()
        if isinstance(part, msgspec.inspect.CustomType):
            raise TypeError(f"{part.cls!r} has no fields that could be written")
        if isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(part) not in seen:
            seen.add(id(part))
            todo.extend(getattr(part, name) for name in part.__struct_fields__)
        elif isinstance(part, tuple):
            todo.extend(part)


def result_type(function: Callable[..., Any]) -> Any:
    """The annotated return type of a function, or what an expression ``returns``; None when it does not say."""
    if inspect.isclass(function):
        return function  # a class used as a function returns its instances
    told = getattr(function, "returns", None)
    if told is not None:
        return told
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target).get("return")
    except (NameError, TypeError, AttributeError):
        return None  # annotations of names that are only imported for type checkers


def item_type(type_: Any) -> Any:
    """X of ``list[X]``, ``Iterator[X]`` and the like; None for anything else."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin in _ITERABLES and len(arguments) == 1:
        return arguments[0]
    if origin is collections.abc.Generator:
        return arguments[0]
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return arguments[0]
    return None


def codec_or_none(type_: Any, wire: Wire) -> Codec[Any] | None:
    """The codec of a type that was merely annotated: None when there is none, or when it says too little."""
    if type_ is None or type_ is Any or type_ is object or isinstance(type_, TypeVar):
        return None
    try:
        return codec_for(type_, wire)
    except ConfigError:
        return None
