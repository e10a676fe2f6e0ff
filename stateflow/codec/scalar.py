"""Codecs of single values, byte for byte those of Kafka's own serializers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import repeat
from types import NoneType
from typing import Any, Literal

from stateflow.codec.base import Codec
from stateflow.errors import GraphError

_INTEGERS = {32: ">i", 64: ">q"}
_FLOATS = {32: ">f", 64: ">d"}


def _format(formats: dict[int, str], bits: object) -> struct.Struct:
    if not isinstance(bits, int) or bits not in formats:
        raise GraphError(
            f"There are no numbers of {bits!r} bits.", action="Kafka has those of 32 or 64 bits."
        )
    return struct.Struct(formats[bits])


class BytesCodec(Codec[bytes]):
    """Bytes as they are."""

    is_ordered = True

    def _encode(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError("not bytes")
        return value

    def _decode(self, data: bytes) -> bytes:
        return data

    def _encode_all(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        if not all(map(isinstance, values, repeat((bytes, NoneType)))):
            raise TypeError("not bytes")
        return list(values)

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[bytes | None]:
        return list(rows)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "bytes"}``."""
        return {"codec": "bytes"}

    def __repr__(self) -> str:
        return "Bytes"


class StringCodec(Codec[str]):
    """UTF-8 text, as Kafka's StringSerializer."""

    is_ordered = True
    checks_quickly = True

    def _encode(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise TypeError("not a str")
        return value.encode()

    def _decode(self, data: bytes) -> str:
        return data.decode()

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[str | None]:
        return [None if data is None else data.decode() for data in rows]

    def reads_all(self, rows: Sequence[bytes]) -> bool:
        """Whether all are UTF-8: so is then what they are together, with a character between that ends any other."""
        try:
            b"\0".join(rows).decode()
        except UnicodeDecodeError:
            return False
        return True

    def describe(self) -> dict[str, Any]:
        """``{"codec": "string"}``."""
        return {"codec": "string"}

    def __repr__(self) -> str:
        return "String"


class IntegerCodec(Codec[int]):
    """A signed big-endian integer of 32 or 64 bits, as Kafka's IntegerSerializer and LongSerializer."""

    checks_quickly = True

    def __init__(self, bits: Literal[32, 64] = 64) -> None:
        self._bits = bits
        self._format = _format(_INTEGERS, bits)

    def _encode(self, value: int) -> bytes:
        return self._format.pack(value)

    def _decode(self, data: bytes) -> int:
        (value,) = self._format.unpack(data)
        return int(value)

    def _encode_all(self, values: Sequence[int | None]) -> list[bytes | None]:
        pack = self._format.pack
        return [None if value is None else pack(value) for value in values]

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[int | None]:
        unpack = self._format.unpack
        return [None if data is None else unpack(data)[0] for data in rows]

    def reads_all(self, rows: Sequence[bytes]) -> bool:
        """Whether all are as long as such a number."""
        return {*map(len, rows)} <= {self._format.size}

    def describe(self) -> dict[str, Any]:
        """``{"codec": "integer", "bits": …}``."""
        return {"codec": "integer", "bits": self._bits}

    def __repr__(self) -> str:
        return "Integer" if self._bits == 64 else "Int32"


class FloatCodec(Codec[float]):
    """A big-endian IEEE 754 number of 32 or 64 bits, as Kafka's FloatSerializer and DoubleSerializer."""

    checks_quickly = True

    def __init__(self, bits: Literal[32, 64] = 64) -> None:
        self._bits = bits
        self._format = _format(_FLOATS, bits)

    def _encode(self, value: float) -> bytes:
        return self._format.pack(value)

    def _decode(self, data: bytes) -> float:
        (value,) = self._format.unpack(data)
        return float(value)

    def _encode_all(self, values: Sequence[float | None]) -> list[bytes | None]:
        pack = self._format.pack
        return [None if value is None else pack(value) for value in values]

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[float | None]:
        unpack = self._format.unpack
        return [None if data is None else unpack(data)[0] for data in rows]

    def reads_all(self, rows: Sequence[bytes]) -> bool:
        """Whether all are as long as such a number."""
        return {*map(len, rows)} <= {self._format.size}

    def describe(self) -> dict[str, Any]:
        """``{"codec": "float", "bits": …}``."""
        return {"codec": "float", "bits": self._bits}

    def __repr__(self) -> str:
        return "Float" if self._bits == 64 else "Float32"


class BooleanCodec(Codec[bool]):
    """One byte, 0 or 1, as Kafka's BooleanSerializer."""

    is_ordered = True

    def _encode(self, value: bool) -> bytes:
        if not isinstance(value, bool):
            raise TypeError("not a bool")
        return b"\x01" if value else b"\x00"

    def _decode(self, data: bytes) -> bool:
        if data not in (b"\x00", b"\x01"):
            raise ValueError("a boolean is one byte, 0 or 1")
        return data == b"\x01"

    def describe(self) -> dict[str, Any]:
        """``{"codec": "boolean"}``."""
        return {"codec": "boolean"}

    def __repr__(self) -> str:
        return "Boolean"


Bytes = BytesCodec()
String = StringCodec()
Integer = IntegerCodec(64)
Int32 = IntegerCodec(32)
Float = FloatCodec(64)
Float32 = FloatCodec(32)
Boolean = BooleanCodec()
