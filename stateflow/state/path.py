"""Keys inside keys: the steps of a nested map, and the instants of a versioned value, in order.

A step is its bytes with every ``00`` written as ``00 ff``, ended by ``00 01``. So steps of any length stand one
behind the other without a length before them, and byte order is the order of the first step, then of the second,
and so on (the encoding of strings in FoundationDB's tuple layer, with an end of two bytes).

Instants count downwards, so that the newest version of a key comes first and "as of" is one seek.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from stateflow.errors import DecodeError

_ZERO, _ESCAPED_ZERO, _END = b"\x00", b"\x00\xff", b"\x00\x01"
_INSTANT = struct.Struct(">Q")
_INSTANT_LAST = (1 << 63) - 1


def escaped(data: bytes) -> bytes:
    """The bytes of a step without its end: what all steps that begin with ``data`` begin with."""
    return data.replace(_ZERO, _ESCAPED_ZERO)


def step(data: bytes) -> bytes:
    """One step of a path that goes on behind it."""
    return data.replace(_ZERO, _ESCAPED_ZERO) + _END


def first_step(path: bytes) -> tuple[bytes, bytes]:
    """The first step of a path, decoded, and what follows. Raises ``DecodeError`` where none ends."""
    data, end, rest = path.partition(_END)
    if not end:
        raise _not_a_path(path)
    return data.replace(_ESCAPED_ZERO, _ZERO), rest


def split_path(path: bytes, steps: int) -> Iterator[bytes]:
    """The parts of a path: ``steps`` − 1 steps and the last part as it is. Raises ``DecodeError``."""
    for _ in range(steps - 1):
        data, path = first_step(path)
        yield data
    yield path


def instant(at_ms: int) -> bytes:
    """A time, ms, so that later ones sort before earlier ones. ``struct.error`` beyond int64."""
    return _INSTANT.pack(_INSTANT_LAST - at_ms)


def instant_of(data: bytes) -> int:
    """The time that :func:`instant` wrote, ms. Raises ``DecodeError``."""
    if len(data) != _INSTANT.size:
        raise _not_a_path(data)
    (turned,) = _INSTANT.unpack(data)
    return _INSTANT_LAST - int(turned)


def _not_a_path(path: bytes) -> DecodeError:
    return DecodeError(
        f"A path of {len(path)} bytes does not end where it should.",
        action="Check that the catalog's entry for this store describes the changelog it names.",
        path=path[:64].hex(),
    )
