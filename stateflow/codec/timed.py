"""A value and the event time at which it was written, or also the one at which it expires."""

from __future__ import annotations

import struct
from typing import Any, Generic, NamedTuple, TypeVar

from stateflow.codec.base import Codec

T = TypeVar("T")

_TIME = struct.Struct(">q")
_TIMES = struct.Struct(">qq")
TIME_BYTES = _TIME.size
TIMES_BYTES = _TIMES.size
NEVER_MS = (1 << 63) - 1
"""When a value expires that was given no time to live."""


class Timed(NamedTuple, Generic[T]):
    """A value with its event time, ms since 1970 UTC."""

    timestamp_ms: int
    value: T


class Expiring(NamedTuple, Generic[T]):
    """A value with its event time and the one from which it is gone, ms since 1970 UTC."""

    timestamp_ms: int
    expires_ms: int
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


class ExpiringCodec(Codec[Expiring[T]], Generic[T]):
    """Event time, ms, int64 big-endian ‖ event time of expiry, ms, int64 big-endian, 2^63 − 1 for never ‖ value."""

    def __init__(self, value: Codec[T]) -> None:
        self._value = value

    def _encode(self, value: Expiring[T]) -> bytes:
        return stamp_both(self._value.encode(value.value), value.timestamp_ms, value.expires_ms)

    def _decode(self, data: bytes) -> Expiring[T]:
        return Expiring(*times_of(data), self._value.decode(data[TIMES_BYTES:]))

    def describe(self) -> dict[str, Any]:
        """``{"codec": "expiring", "value": …}``."""
        return {"codec": "expiring", "value": self._value.describe()}

    def __repr__(self) -> str:
        return f"Expiring({self._value!r})"


def stamp(data: bytes, timestamp_ms: int) -> bytes:
    """The bytes of a value with its event time before them."""
    return _TIME.pack(timestamp_ms) + data


def stamp_both(data: bytes, timestamp_ms: int, expires_ms: int) -> bytes:
    """The bytes of a value with its event time and that of its expiry before them."""
    return _TIMES.pack(timestamp_ms, expires_ms) + data


def time_of(data: bytes) -> int:
    """The event time before a stamped value; raises ``struct.error`` when there is none."""
    (timestamp_ms,) = _TIME.unpack_from(data)
    return int(timestamp_ms)


def times_of(data: bytes) -> tuple[int, int]:
    """Event time and expiry before a value that has both; raises ``struct.error`` when it has not."""
    timestamp_ms, expires_ms = _TIMES.unpack_from(data)
    return int(timestamp_ms), int(expires_ms)
