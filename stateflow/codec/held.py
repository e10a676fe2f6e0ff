"""A row that is held back: when it is due, where it stands in event time, and whether its key was told before."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from stateflow.codec.base import Codec

_HEAD = struct.Struct(">qqqBI")
_FLAGS_AT = struct.calcsize(">qqq")
_HOLDS, _HAS_VALUE, _TOLD = 1, 2, 4


class Held(NamedTuple):
    """What is held of one key; times are ms since 1970 UTC."""

    due_ms: int
    """Event time at which it is told, or, where nothing is held, forgotten that the key was told."""
    timestamp_ms: int
    mark_ms: int
    value: Any = None
    """None for a deletion."""
    headers: bytes = b""
    """As ``operators.steps.headers.packed`` writes them."""
    holds: bool = True
    """False where there is nothing to tell: kept is only that the key was told."""
    was_told: bool = False
    """Whether something was told of the key that a deletion would withdraw."""


class HeldCodec(Codec[Held]):
    """Due, time and mark, ms, int64 ‖ flags uint8 ‖ length of the headers uint32 ‖ headers ‖ value, if there is one.

    Flags: 1 a row is held, 2 it has a value, 4 the key was told before.
    """

    def __init__(self, value: Codec[Any]) -> None:
        self._value = value

    def encode(self, value: Held) -> bytes:
        """The bytes of a row; raises ``EncodeError`` of the value's codec."""
        return self._encode(value)

    def _encode(self, value: Held) -> bytes:
        flags = _HOLDS * value.holds | _HAS_VALUE * (value.value is not None) | _TOLD * value.was_told
        head = _HEAD.pack(value.due_ms, value.timestamp_ms, value.mark_ms, flags, len(value.headers))
        return head + value.headers + (b"" if value.value is None else self._value.encode(value.value))

    def _decode(self, data: bytes) -> Held:
        due_ms, timestamp_ms, mark_ms, flags, headers_bytes = _HEAD.unpack_from(data)
        if flags & ~(_HOLDS | _HAS_VALUE | _TOLD):
            raise ValueError(f"flags {flags}, which this version does not know")
        value_at = _HEAD.size + headers_bytes
        return Held(
            due_ms,
            timestamp_ms,
            mark_ms,
            self._value.decode(data[value_at:]) if flags & _HAS_VALUE else None,
            data[_HEAD.size : value_at],
            bool(flags & _HOLDS),
            bool(flags & _TOLD),
        )

    @staticmethod
    def holds(data: bytes) -> bool:
        """Whether encoded bytes hold a row."""
        return bool(data[_FLAGS_AT] & _HOLDS)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "held", "value": …}``."""
        return {"codec": "held", "value": self._value.describe()}

    def __repr__(self) -> str:
        return f"Held({self._value!r})"


class ShownHeldCodec(HeldCodec):
    """The same bytes for tools: what is held reads as a dict, without its headers."""

    def _decode(self, data: bytes) -> Any:
        shown = super()._decode(data)._asdict()
        del shown["headers"]
        return shown
