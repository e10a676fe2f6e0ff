"""Kafka's primitive types: as bytes of a request, and read from an answer one after another."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def kafka_string(text: str) -> bytes:
    """A Kafka STRING: int16 length, then UTF-8."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def kafka_array(parts: Iterable[bytes]) -> bytes:
    """A Kafka ARRAY: int32 count, then the elements."""
    elements = list(parts)
    return struct.pack(">i", len(elements)) + b"".join(elements)


def unsigned_varint(value: int) -> bytes:
    """A Kafka UNSIGNED_VARINT: seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str) -> bytes:
    """A Kafka COMPACT_STRING: its length and one as a varint, then UTF-8."""
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def compact_array(parts: Iterable[bytes]) -> bytes:
    """A Kafka COMPACT_ARRAY: the count and one as a varint, then the elements."""
    elements = list(parts)
    return unsigned_varint(len(elements) + 1) + b"".join(elements)


class Cursor:
    """Reads Kafka's primitive types one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return len(self._data) - self._at

    def bytes(self, size: int) -> bytes:
        """The next bytes, as they are."""
        part = self._data[self._at : self._at + size]
        self._at += size
        return part

    def skip(self, size: int) -> None:
        """Pass over so many bytes."""
        self._at += size

    def _unpack(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(value)

    def int8(self) -> int:
        """An INT8."""
        return self._unpack(">b", 1)

    def int16(self) -> int:
        """An INT16."""
        return self._unpack(">h", 2)

    def int32(self) -> int:
        """An INT32."""
        return self._unpack(">i", 4)

    def int64(self) -> int:
        """An INT64."""
        return self._unpack(">q", 8)

    def string(self) -> str:
        """A STRING; empty also where it is null."""
        return self.bytes(max(0, self.int16())).decode()

    def unsigned(self) -> int:
        """An UNSIGNED_VARINT."""
        value = shift = 0
        while True:
            byte = self._unpack(">B", 1)
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7

    def compact_string(self) -> str:
        """A COMPACT_STRING; empty also where it is null."""
        return self.bytes(max(0, self.unsigned() - 1)).decode()

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        """Several numbers, one after another."""
        values = form.unpack_from(self._data, self._at)
        self._at += form.size
        return values

    def tags(self) -> None:
        """Pass over tagged fields."""
        self.tagged_fields(self.unsigned())

    def tagged_fields(self, count: int) -> None:
        """Pass over so many tagged fields."""
        for _ in range(count):
            self.unsigned()
            self.skip(self.unsigned())
