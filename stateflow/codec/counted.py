"""The accumulator of a window of records, and how many of its key's records had come when it was written."""

from __future__ import annotations

import struct
from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec

T = TypeVar("T")

_SEEN = struct.Struct(">q")
SEEN_BYTES = _SEEN.size


class CountedValueCodec(Codec[T], Generic[T]):
    """Records of the key so far, int64 big-endian ‖ value. Decodes to the value alone; encodes with none seen.

    ``size`` and ``advance`` are in its description, so that the catalog refuses other windows over the same state.
    """

    def __init__(self, value: Codec[T], size: int, advance: int) -> None:
        self._value = value
        self._size = size
        self._advance = advance

    def _encode(self, value: T) -> bytes:
        return with_seen(self._value.encode(value), 0)

    def _decode(self, data: bytes) -> T:
        seen_in(data)
        return self._value.decode(data[SEEN_BYTES:])

    def describe(self) -> dict[str, Any]:
        """``{"codec": "counted", "value": …, "size": …, "advance": …}``."""
        described = {"codec": "counted", "value": self._value.describe()}
        return {**described, "size": self._size, "advance": self._advance}

    def __repr__(self) -> str:
        return f"Counted({self._value!r})"


def with_seen(data: bytes, seen: int) -> bytes:
    """The bytes of a value with the number of records before them."""
    return _SEEN.pack(seen) + data


def seen_in(data: bytes) -> int:
    """The number of records before a value; raises ``struct.error`` when there is none."""
    (seen,) = _SEEN.unpack_from(data)
    return int(seen)
