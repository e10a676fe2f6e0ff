"""Records of a key that wait in state for event time: a map from (time, number) to values, in the order of time."""

from __future__ import annotations

import struct
from typing import Any

from stateflow.state.mapof import MapOf

_ENTRY = struct.Struct(">QI")

Waiting = MapOf[bytes, Any]


def next_entry(waiting: Waiting, at_ms: int) -> bytes:
    """The map key for one more record of that time, behind those that wait already."""
    same = waiting.range(first_at(at_ms), first_at(at_ms + 1))
    return _ENTRY.pack(at_ms, _ENTRY.unpack(same[-1][0])[1] + 1 if same else 0)


def first_at(at_ms: int) -> bytes:
    """No record of that time, or of a later one, comes before this map key; negative times are 0."""
    return _ENTRY.pack(max(0, at_ms), 0)


def time_of(entry: bytes) -> int:
    """The time of a record, ms."""
    return int(_ENTRY.unpack(entry)[0])
