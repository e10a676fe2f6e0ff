"""Plain values of any type, told apart by their first byte: what an index is asked for."""

from __future__ import annotations

from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.ordered import OrderedFloat, OrderedInteger
from stateflow.codec.scalar import Boolean, Bytes, String

_TAGS: dict[type, tuple[bytes, Codec[Any]]] = {
    bool: (b"\x01", Boolean),
    int: (b"\x02", OrderedInteger),
    float: (b"\x03", OrderedFloat),
    str: (b"\x04", String),
    bytes: (b"\x05", Bytes),
}
_CODECS = dict(_TAGS.values())


class TaggedCodec(Codec[Any]):
    """``01`` bool, ``02`` int, ``03`` float, ``04`` str or ``05`` bytes ‖ the value, each type in its natural order."""

    is_ordered = True

    def _encode(self, value: Any) -> bytes:
        if type(value) not in _TAGS:
            raise TypeError("an index holds bool, int, float, str and bytes")
        tag, codec = _TAGS[type(value)]
        return tag + codec.encode(value)

    def _decode(self, data: bytes) -> Any:
        return _CODECS[data[:1]].decode(data[1:])

    def describe(self) -> dict[str, Any]:
        """``{"codec": "tagged"}``."""
        return {"codec": "tagged"}

    def __repr__(self) -> str:
        return "Tagged"


Tagged = TaggedCodec()
