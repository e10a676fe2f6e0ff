"""A value that may be missing, and a place that holds none."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec

T = TypeVar("T")

_ABSENT = b"\x00"
_PRESENT = b"\x01"


class OptionalCodec(Codec[T | None], Generic[T]):
    """``01`` ‖ value, or ``00`` for none: where "there is none" must be written down."""

    def __init__(self, value: Codec[T]) -> None:
        self._value = value

    def _encode(self, value: T | None) -> bytes:
        return _ABSENT if value is None else _PRESENT + self._value.encode(value)

    def _decode(self, data: bytes) -> T | None:
        if data == _ABSENT:
            return None
        if data[:1] != _PRESENT:
            raise ValueError("an optional value begins with 00 or 01")
        return self._value.decode(data[1:])

    def describe(self) -> dict[str, Any]:
        """``{"codec": "optional", "value": …}``."""
        return {"codec": "optional", "value": self._value.describe()}

    def __repr__(self) -> str:
        return f"Optional({self._value!r})"


class NothingCodec(Codec[None]):
    """No bytes at all: the value beside a key that says everything."""

    def _encode(self, value: None) -> bytes:
        if value is not None:
            raise TypeError("nothing can be stored here")
        return b""

    def _decode(self, data: bytes) -> None:
        if data:
            raise ValueError("nothing should be stored here")

    def describe(self) -> dict[str, Any]:
        """``{"codec": "none"}``."""
        return {"codec": "none"}

    def __repr__(self) -> str:
        return "Nothing"
