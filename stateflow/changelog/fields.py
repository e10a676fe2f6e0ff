"""Reading the fields of a binary value one after the other, and writing texts into one."""

from __future__ import annotations

import struct
from typing import Any

_LENGTH = struct.Struct(">H")


class Fields:
    """A place in some bytes. Everything that reads past their end raises ``ValueError`` or ``struct.error``."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._at = 0

    @property
    def left_bytes(self) -> int:
        """Bytes not read yet."""
        return len(self._value) - self._at

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """The next fields, as ``struct`` lays them out."""
        found = struct.unpack_from(layout, self._value, self._at)
        self._at += struct.calcsize(layout)
        return found

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        if count > self.left_bytes:
            raise ValueError(f"a field of {count} bytes where {self.left_bytes} are left")
        self._at += count
        return self._value[self._at - count : self._at]

    def text(self) -> str:
        """The next text: uint16 length, then UTF-8. Raises ``UnicodeDecodeError``, too."""
        (length,) = self.unpack(_LENGTH.format)
        return self.take(length).decode()

    def end(self) -> None:
        """Raise ``ValueError`` unless all was read."""
        if self.left_bytes:
            raise ValueError(f"{self.left_bytes} bytes too many")


def text(value: str) -> bytes:
    """A text as :meth:`Fields.text` reads it."""
    encoded = value.encode()
    return _LENGTH.pack(len(encoded)) + encoded
