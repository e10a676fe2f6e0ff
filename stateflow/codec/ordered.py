"""Numbers whose bytes sort as they do: what keys of maps, elements of sets and indexes are written as.

Kafka's own integers are two's complement, so that −1 stands behind every positive number. Turning the sign bit
puts them in order; a float's other bits are turned as well where it is negative, since its magnitude then counts
downwards. Text in UTF-8 and plain bytes are in order as they are.
"""

from __future__ import annotations

import struct
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for
from stateflow.codec.scalar import Boolean, Bytes, String

_UNSIGNED = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_SIGN = 1 << 63
_ALL = (1 << 64) - 1


class OrderedIntegerCodec(Codec[int]):
    """A 64-bit integer, big-endian, sign bit turned: −1 before 0 before 1."""

    is_ordered = True

    def _encode(self, value: int) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError("not an int")
        return _UNSIGNED.pack(value + _SIGN)

    def _decode(self, data: bytes) -> int:
        (number,) = _UNSIGNED.unpack(data)
        return int(number) - _SIGN

    def describe(self) -> dict[str, Any]:
        """``{"codec": "ordered-integer", "bits": 64}``."""
        return {"codec": "ordered-integer", "bits": 64}

    def __repr__(self) -> str:
        return "OrderedInteger"


class OrderedFloatCodec(Codec[float]):
    """A 64-bit float, big-endian: sign bit turned, and all other bits too where it is negative.

    Negative zero is written as zero, so that equal numbers are equal keys; a NaN is refused.
    """

    is_ordered = True

    def _encode(self, value: float) -> bytes:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            raise TypeError("not a number that has an order")
        (bits,) = _UNSIGNED.unpack(_DOUBLE.pack(value + 0.0))
        return _UNSIGNED.pack(bits ^ _ALL if bits & _SIGN else bits | _SIGN)

    def _decode(self, data: bytes) -> float:
        (bits,) = _UNSIGNED.unpack(data)
        (value,) = _DOUBLE.unpack(_UNSIGNED.pack(bits ^ _SIGN if bits & _SIGN else bits ^ _ALL))
        return float(value)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "ordered-float", "bits": 64}``."""
        return {"codec": "ordered-float", "bits": 64}

    def __repr__(self) -> str:
        return "OrderedFloat"


OrderedInteger = OrderedIntegerCodec()
OrderedFloat = OrderedFloatCodec()


def key_codec_for(type_: Any) -> Codec[Any]:
    """The codec of map keys and set elements of a type: in natural order for int, float, bool, str and bytes.

    Raises ``ConfigError`` for a type that has no codec.
    """
    if type_ is int:
        return OrderedInteger
    if type_ is float:
        return OrderedFloat
    return codec_for(type_, "msgpack").for_keys()


_TAGS: dict[type, tuple[bytes, Codec[Any]]] = {
    bool: (b"\x01", Boolean),
    int: (b"\x02", OrderedInteger),
    float: (b"\x03", OrderedFloat),
    str: (b"\x04", String),
    bytes: (b"\x05", Bytes),
}
_CODECS = dict(_TAGS.values())


class TaggedCodec(Codec[Any]):
    """``01`` bool, ``02`` int, ``03`` float, ``04`` str or ``05`` bytes ‖ the value, each type in its natural order."""

    is_ordered = True

    def _encode(self, value: Any) -> bytes:
        if type(value) not in _TAGS:
            raise TypeError("an index holds bool, int, float, str and bytes")
        tag, codec = _TAGS[type(value)]
        return tag + codec.encode(value)

    def _decode(self, data: bytes) -> Any:
        return _CODECS[data[:1]].decode(data[1:])

    def describe(self) -> dict[str, Any]:
        """``{"codec": "tagged"}``."""
        return {"codec": "tagged"}

    def __repr__(self) -> str:
        return "Tagged"


Tagged = TaggedCodec()
