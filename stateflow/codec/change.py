"""A change of a table's value: what it was and what it is."""

from __future__ import annotations

import struct
from typing import Any, Generic, NamedTuple, TypeVar

from stateflow.codec.base import Codec

V = TypeVar("V")

_HEAD = struct.Struct(">BI")
_HAS_OLD, _HAS_NEW = 1, 2


class Change(NamedTuple, Generic[V]):
    """What a key's value was before an update, and what it is; None where there was, or is, none."""

    old: V | None
    new: V | None


class ChangeCodec(Codec[Change[V]], Generic[V]):
    """Which of the two are there (1 old, 2 new), uint8 ‖ length of the old value, uint32 big-endian ‖ old ‖ new."""

    def __init__(self, value: Codec[V]) -> None:
        self._value = value

    @property
    def value(self) -> Codec[V]:
        """The codec of the values."""
        return self._value

    def _encode(self, value: Change[V]) -> bytes:
        old = b"" if value.old is None else self._value.encode(value.old)
        new = b"" if value.new is None else self._value.encode(value.new)
        present = _HAS_OLD * (value.old is not None) | _HAS_NEW * (value.new is not None)
        return _HEAD.pack(present, len(old)) + old + new

    def _decode(self, data: bytes) -> Change[V]:
        present, old_bytes = _HEAD.unpack_from(data)
        new_at = _HEAD.size + old_bytes
        if present & ~(_HAS_OLD | _HAS_NEW) or len(data) < new_at:
            raise ValueError("not a change")
        old = self._value.decode(data[_HEAD.size : new_at]) if present & _HAS_OLD else None
        return Change(old, self._value.decode(data[new_at:]) if present & _HAS_NEW else None)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "change", "value": …}``."""
        return {"codec": "change", "value": self._value.describe()}

    def __repr__(self) -> str:
        return f"Change({self._value!r})"
