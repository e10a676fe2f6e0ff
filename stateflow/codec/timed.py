"""A value and the event time at which it was written."""

from __future__ import annotations

import struct
from typing import Any, Generic, NamedTuple, TypeVar

from stateflow.codec.base import Codec

T = TypeVar("T")

_TIME = struct.Struct(">q")
TIME_BYTES = _TIME.size


class Timed(NamedTuple, Generic[T]):
    """A value with its event time, ms since 1970 UTC."""

    timestamp_ms: int
    value: T


class TimedCodec(Codec[Timed[T]], Generic[T]):
    """Event time, ms, int64 big-endian ‖ value: as Kafka Streams' timestamped stores."""

    def __init__(self, value: Codec[T]) -> None:
        self._value = value

    def _encode(self, value: Timed[T]) -> bytes:
        return stamp(self._value.encode(value.value), value.timestamp_ms)

    def _decode(self, data: bytes) -> Timed[T]:
        return Timed(time_of(data), self._value.decode(data[TIME_BYTES:]))

    def describe(self) -> dict[str, Any]:
        """``{"codec": "timestamped", "value": …}``."""
        return {"codec": "timestamped", "value": self._value.describe()}

    def __repr__(self) -> str:
        return f"Timestamped({self._value!r})"


def stamp(data: bytes, timestamp_ms: int) -> bytes:
    """The bytes of a value with its event time before them."""
    return _TIME.pack(timestamp_ms) + data


def time_of(data: bytes) -> int:
    """The event time before a stamped value; raises ``struct.error`` when there is none."""
    (timestamp_ms,) = _TIME.unpack_from(data)
    return int(timestamp_ms)
