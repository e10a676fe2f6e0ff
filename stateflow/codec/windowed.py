"""The key of a window's result."""

from __future__ import annotations

import struct
from typing import Any, Generic, NamedTuple, TypeVar

from stateflow.codec.base import Codec
from stateflow.codec.scalar import BytesCodec

K = TypeVar("K")

_START = struct.Struct(">q")


class Windowed(NamedTuple, Generic[K]):
    """A key in one window: event times from ``start_ms`` up to, not including, ``end_ms``."""

    key: K
    start_ms: int
    end_ms: int


class WindowedCodec(Codec[Windowed[K]], Generic[K]):
    """Key bytes ‖ window start, ms, int64 big-endian: as Kafka Streams' TimeWindowedSerializer.

    The size of the window is not in the bytes; the codec knows it.
    """

    def __init__(self, key: Codec[K], size_ms: int) -> None:
        self.key = key
        self.size_ms = size_ms

    def _encode(self, value: Windowed[K]) -> bytes:
        return self.key.encode(value.key) + _START.pack(value.start_ms)

    def _decode(self, data: bytes) -> Windowed[K]:
        key, start_ms = split_windowed(data)
        return Windowed(self.key.decode(key), start_ms, start_ms + self.size_ms)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "windowed", "key": …, "size_ms": …}``."""
        return {"codec": "windowed", "key": self.key.describe(), "size_ms": self.size_ms}

    def __repr__(self) -> str:
        return f"WindowedKey({self.key!r}, size_ms={self.size_ms})"


def split_windowed(data: bytes) -> tuple[bytes, int]:
    """The bytes of the key and the window's start, ms."""
    (start_ms,) = _START.unpack(data[-_START.size :])
    return data[: -_START.size], start_ms


_TYPES = {
    "string": "str",
    "integer": "int",
    "ordered-integer": "int",
    "float": "float",
    "ordered-float": "float",
    "boolean": "bool",
}


def can_stand_for(outside: Codec[Any], inner: Codec[Any]) -> bool:
    """Whether a topic's key codec is declared for the inner key of windows, or for bytes whatever they are.

    It is the inner key's own codec, or one of the same type of value (text, numbers, one dataclass) in another
    format. A codec that takes anything, or one of the application's own, may be meant for the window as well.
    """
    if isinstance(outside, BytesCodec) or outside == inner:
        return True
    held = _type_of(inner)
    return held is not None and _type_of(outside) == held


def _type_of(codec: Codec[Any]) -> str | None:
    described = codec.describe()
    return described.get("type") or _TYPES.get(described["codec"])
