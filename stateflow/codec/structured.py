"""JSON and MessagePack, untyped and of a declared type (dataclass, Struct, NamedTuple, TypedDict, builtins).

Both are msgspec's: a declared type is checked while decoding, so a record of another shape is a
``DecodeError`` at the door rather than an ``AttributeError`` in the middle.
"""

from __future__ import annotations

import copy
import datetime
import functools
from collections.abc import Hashable, Sequence
from types import NoneType, UnionType
from typing import Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from stateflow.codec.base import Codec
from stateflow.codec.stable import may_lack_order, stable_encoder

T = TypeVar("T")
Wire = Literal["json", "msgpack"]

_PLAIN_TYPES = frozenset({dict, list, str, int, float, bool, bytes, datetime.datetime})
_MAPS = (dict, dict[str, Any])
"""Declared types of which any field may be read without the others: nothing is said of those."""
_SCALAR_TYPES = frozenset({int, float, str, bool, bytes, NoneType})
_SCHEMAS_MAX = 256
"""Kept, of types: making one takes a hundred times as long as the rest of a description."""


def _converters(wire: Wire, type_: Any) -> tuple[Any, Any]:
    module = msgspec.json if wire == "json" else msgspec.msgpack
    return module.Encoder(), module.Decoder(type_)


class UntypedCodec(Codec[Any]):
    """Anything that the format can express; comes back as dict, list, str, number, bool."""

    is_stable = False
    """True of one that writes equal values as equal bytes, whatever the order of their sets and dicts."""

    def __init__(self, wire: Wire) -> None:
        self.wire = self.projects = wire
        encoder, decoder = _converters(wire, Any)
        self._to_bytes, self._from_bytes = encoder.encode, decoder.decode

    def _encode(self, value: Any) -> bytes:
        return self._to_bytes(value)  # type: ignore[no-any-return]

    def _decode(self, data: bytes) -> Any:
        return self._from_bytes(data)

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[Any]:
        decode = self._from_bytes
        return [None if data is None else decode(data) for data in rows]

    def for_keys(self) -> Codec[Any]:
        """Sets and dicts are written sorted (:mod:`stateflow.codec.stable`)."""
        return _with_stable_bytes(self)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "json"}`` or ``{"codec": "msgpack"}``."""
        return {"codec": self.wire}

    def __repr__(self) -> str:
        return "Json" if self.wire == "json" else "MsgPack"


class PlainCodec(UntypedCodec):
    """MessagePack for values whose type nobody declared: refuses what would come back as something else.

    A dataclass would return as a dict, a tuple as a list; then it is better to say so at the first record
    than to let the next step find out. Only the outermost type is looked at.
    """

    def __init__(self) -> None:
        super().__init__("msgpack")

    def _encode(self, value: Any) -> bytes:
        if type(value) not in _PLAIN_TYPES:
            raise TypeError(
                f"a {type(value).__name__} would not come back as one: declare its type or codec (value=…)"
            )
        return self._to_bytes(value)  # type: ignore[no-any-return]


class TypedCodec(Codec[T], Generic[T]):
    """Values of one declared type. Raises ``TypeError`` when msgspec cannot handle the type.

    A value of another type than one of declared scalars (``int``, ``str | None``) is refused when it is encoded: as
    state it could not be read back. Of types with parts, only decoding looks at the parts.
    """

    is_stable = False
    """As of ``UntypedCodec``."""

    def __init__(self, type_: type[T], wire: Wire) -> None:
        self._type = type_
        self.wire = wire
        if type_ in _MAPS:
            self.projects = wire
        encoder, decoder = _converters(wire, type_)
        self._to_bytes, self._from_bytes = encoder.encode, decoder.decode
        self._scalars = _scalars_of(type_)

    @property
    def value_type(self) -> Any:
        """The declared type."""
        return self._type

    @property
    def is_of_scalars(self) -> bool:
        """Whether values have no parts, so that each is looked at when it is encoded."""
        return self._scalars is not None

    def _encode(self, value: T) -> bytes:
        data = self._to_bytes(value)
        known = self._scalars is None or type(value) in self._scalars
        if not known and self._from_bytes(data) != value:
            raise TypeError("it would come back as something else")
        return data  # type: ignore[no-any-return]

    def _decode(self, data: bytes) -> T:
        return self._from_bytes(data)  # type: ignore[no-any-return]

    def _encode_all(self, values: Sequence[T | None]) -> list[bytes | None]:
        quick = self._scalars is None or {*map(type, values)} - {NoneType} <= self._scalars
        encode = self._to_bytes if quick else self._encode
        return [None if value is None else encode(value) for value in values]

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[T | None]:
        decode = self._from_bytes
        return [None if data is None else decode(data) for data in rows]

    def for_keys(self) -> Codec[T]:
        """Sets and dicts are written sorted (:mod:`stateflow.codec.stable`); fields stay as declared."""
        return _with_stable_bytes(self) if may_lack_order(self._type) else self

    def describe(self) -> dict[str, Any]:
        """``{"codec": "json" or "msgpack", "type": its name, "schema": JSON schema where there is one}``."""
        described: dict[str, Any] = {"codec": self.wire, "type": type_name(self._type)}
        described["schema"] = _schema_of(cast(Hashable, self._type))
        return described

    def __repr__(self) -> str:
        return f"{'JsonOf' if self.wire == 'json' else 'MsgPackOf'}({type_name(self._type)})"


def _with_stable_bytes(given: Codec[T]) -> Codec[T]:
    codec: Any = given
    if codec.is_stable:
        return given
    stable: Any = copy.copy(codec)
    stable.is_stable = True
    stable._to_bytes = stable_encoder(codec._to_bytes)
    stable.for_keys = lambda: stable
    return cast("Codec[T]", stable)


@functools.lru_cache(maxsize=_SCHEMAS_MAX)
def _schema_of(type_: Hashable) -> dict[str, Any] | None:
    """A type's JSON schema; None for custom types, which encode, but have none."""
    try:
        return msgspec.json.schema(type_)
    except TypeError:
        return None


def _scalars_of(type_: Any) -> frozenset[type] | None:
    """The types of values that come back as they were, or None if the declared type is more than scalars."""
    is_union = get_origin(type_) is Union or isinstance(type_, UnionType)
    members = set(get_args(type_)) if is_union else {type_}
    if not members <= _SCALAR_TYPES:
        return None
    return frozenset(members | {int} if float in members else members)  # a float is read from an integer, too


def type_name(type_: Any) -> str:
    """A type as it is written in code, without its module."""
    return type_.__qualname__ if isinstance(type_, type) and not hasattr(type_, "__args__") else repr(type_)


class JsonCodec(UntypedCodec):
    """JSON."""

    def __init__(self) -> None:
        super().__init__("json")


class MsgPackCodec(UntypedCodec):
    """MessagePack: JSON's types and bytes, smaller and faster."""

    def __init__(self) -> None:
        super().__init__("msgpack")


def JsonOf(type_: type[T]) -> Codec[T]:  # noqa: N802 - reads as the type it makes
    """JSON of a declared type."""
    return TypedCodec(type_, "json")


def MsgPackOf(type_: type[T]) -> Codec[T]:  # noqa: N802 - reads as the type it makes
    """MessagePack of a declared type."""
    return TypedCodec(type_, "msgpack")


Json = JsonCodec()
MsgPack = MsgPackCodec()
Plain = PlainCodec()
