"""The mark of a snapshot cut in a record's headers.

Cuts are numbered. What a task sends to a repartition topic after its place in cut n carries n, until the cut is over:
see ``runtime/cuts.py``. ``docs/formats.md`` has the bytes.
"""

from __future__ import annotations

import struct

from stateflow.changelog.format import CUT_HEADER
from stateflow.errors import StateCorrupt
from stateflow.record import Headers

_NUMBER = struct.Struct(">q")


def mark_header(number: int) -> Headers:
    """The header of everything that is sent behind a cut: its number, int64, big-endian."""
    return ((CUT_HEADER, _NUMBER.pack(number)),)


def number_in(headers: Headers) -> int | None:
    """The cut that a record is behind; None for an unmarked one. Raises ``StateCorrupt``."""
    for name, value in headers:
        if name == CUT_HEADER:
            if len(value) != _NUMBER.size:
                raise StateCorrupt(
                    f"a mark of a cut on a repartition topic has {len(value)} bytes instead of {_NUMBER.size}.",
                    action="something else writes to this repartition topic; only the application itself may.",
                )
            return int(_NUMBER.unpack(value)[0])
    return None


def unmarked(headers: Headers) -> Headers:
    """The headers without the mark of a cut."""
    return tuple(header for header in headers if header[0] != CUT_HEADER)
