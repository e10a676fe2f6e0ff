"""A store's position as bytes, in the positions family: see ``docs/formats.md``."""

from __future__ import annotations

import struct

from stateflow.errors import StateForeign
from stateflow.store.base import StorePosition

_VERSION = 1
_HEAD = struct.Struct(">Bqq")


def encode_position(position: StorePosition) -> bytes:
    """Version uint8, offset_next int64, applied_ms int64 (big-endian), then the topic id in UTF-8."""
    assert position.offset_next >= 0, "a position names an offset of the log"
    return _HEAD.pack(_VERSION, position.offset_next, position.applied_ms) + position.topic_id.encode()


def decode_position(encoded: bytes) -> StorePosition:
    """The position read back; ``StateForeign`` for bytes of a version that is not known here."""
    if len(encoded) < _HEAD.size or encoded[0] != _VERSION:
        raise StateForeign(
            f"a store's position is written in a form that this version does not know: {encoded[:32].hex()}.",
            action="upgrade stateflow, or delete the state directory: it is restored from the changelog.",
        )
    _, offset_next, applied_ms = _HEAD.unpack_from(encoded)
    return StorePosition(encoded[_HEAD.size :].decode(), offset_next, applied_ms)
