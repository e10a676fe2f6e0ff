"""A value and how far the input is contained in it."""

from __future__ import annotations

import struct
from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec

T = TypeVar("T")

_COVER = struct.Struct(">8sq")
COVER_BYTES = _COVER.size


class OffsetStampedCodec(Codec[T], Generic[T]):
    """Log id, 8 bytes ‖ ``offset_next``, int64 big-endian ‖ value: the values of an *eventual* changelog.

    Decodes to the value alone; encodes with a cover that contains nothing. The log id ties the offset to one
    generation of the topics: behind another id the offset means nothing.
    """

    def __init__(self, value: Codec[T]) -> None:
        self._value = value

    def _encode(self, value: T) -> bytes:
        return cover(self._value.encode(value), bytes(8), 0)

    def _decode(self, data: bytes) -> T:
        _COVER.unpack_from(data)  # what is too short to have a cover is no value
        return self._value.decode(data[COVER_BYTES:])

    def describe(self) -> dict[str, Any]:
        """``{"codec": "covered", "value": …}``."""
        return {"codec": "covered", "value": self._value.describe()}

    def __repr__(self) -> str:
        return f"Covered({self._value!r})"


def log_id(topic_id: str) -> bytes:
    """The eight bytes that stand for a Kafka topic id inside covered values."""
    from hashlib import blake2b  # loads OpenSSL, which few processes need so early

    return blake2b(topic_id.encode(), digest_size=8).digest()


def cover(data: bytes, log: bytes, offset_next: int) -> bytes:
    """The bytes of a value with its cover before them."""
    return _COVER.pack(log, offset_next) + data


def covered_next(data: bytes, log: bytes) -> int:
    """First offset of the input that is not contained in the value; 0 when it was written for another log.

    Raises ``struct.error`` for bytes without a cover.
    """
    found, offset_next = _COVER.unpack_from(data)
    return int(offset_next) if found == log else 0
