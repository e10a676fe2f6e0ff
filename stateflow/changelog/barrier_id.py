"""The id of a savepoint barrier in a record's headers.

What a task sends to a repartition topic behind its barrier point carries the barrier's id, until the savepoint is
complete or aborted: see ``runtime/snapshots/savepoint_participant.py``. ``docs/formats.md`` has the bytes.
"""

from __future__ import annotations

import struct

from stateflow.changelog.format import BARRIER_HEADER
from stateflow.errors import StateCorrupt
from stateflow.record import Headers

_ID = struct.Struct(">q")


def barrier_header(barrier_id: int) -> Headers:
    """The header of everything that is sent behind a barrier: its id, int64, big-endian."""
    return ((BARRIER_HEADER, _ID.pack(barrier_id)),)


def barrier_id_in(headers: Headers) -> int | None:
    """The id of the barrier that a record is behind; None where it carries none. Raises ``StateCorrupt``."""
    for name, value in headers:
        if name == BARRIER_HEADER:
            if len(value) != _ID.size:
                raise StateCorrupt(
                    f"a barrier id on a repartition topic has {len(value)} bytes instead of {_ID.size}.",
                    action="something else writes to this repartition topic; only the application itself may.",
                )
            return int(_ID.unpack(value)[0])
    return None


def without_barrier_id(headers: Headers) -> Headers:
    """The headers without a barrier id."""
    return tuple(header for header in headers if header[0] != BARRIER_HEADER)
