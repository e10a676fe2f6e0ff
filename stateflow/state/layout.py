"""Where the routing key stands in a store's keys. ``docs/formats.md`` has the same to the byte.

Three layouts, told apart by the name in the catalog alone, so that a changelog can be re-routed without the
code that wrote it:

- ``plain``: the store key *is* the routing key.
- ``window``: routing key ‖ window start, ms, int64 big-endian ‖ sequence number, int32 big-endian, 0. This
  is the key of Kafka Streams' window store. Starts are not negative, so byte order within a key is time
  order.
- ``prefixed``: length of the routing key, uint32 big-endian ‖ routing key ‖ the rest (list index, map key).
"""

from __future__ import annotations

import struct

from stateflow.catalog.model import KeyLayout
from stateflow.errors import DecodeError

_WINDOW_SUFFIX = struct.Struct(">qi")
_LENGTH = struct.Struct(">I")
_INDEX = struct.Struct(">Q")
_WINDOW_SUFFIX_BYTES = _WINDOW_SUFFIX.size
LENGTH_BYTES = _LENGTH.size
"""Of a prefixed store key: by these its prefix is as long as it is."""


def routing_key(layout: KeyLayout, key: bytes) -> bytes:
    """The routing key inside a store key. Raises ``DecodeError`` for bytes that cannot be of this layout."""
    if layout == "plain":
        return key
    if layout == "window":
        if len(key) < _WINDOW_SUFFIX_BYTES:
            raise _not_of(layout, key)
        return key[:-_WINDOW_SUFFIX_BYTES]
    return split_prefixed(key)[0]


def window_suffix(start_ms: int) -> bytes:
    """What follows the routing key of every window that starts then."""
    return _WINDOW_SUFFIX.pack(start_ms, 0)


def window_key(key: bytes, start_ms: int) -> bytes:
    """Store key of one window of one routing key."""
    return key + _WINDOW_SUFFIX.pack(start_ms, 0)


def split_window(store_key: bytes) -> tuple[bytes, int]:
    """Routing key and window start (ms) of a store key."""
    if len(store_key) < _WINDOW_SUFFIX_BYTES:
        raise _not_of("window", store_key)
    start_ms, _sequence = _WINDOW_SUFFIX.unpack_from(store_key, len(store_key) - _WINDOW_SUFFIX_BYTES)
    return store_key[:-_WINDOW_SUFFIX_BYTES], start_ms


def prefixed_key(key: bytes, rest: bytes = b"") -> bytes:
    """Store key of one part of a routing key's list or map; with no ``rest`` the prefix of all its parts."""
    return _LENGTH.pack(len(key)) + key + rest


def split_prefixed(store_key: bytes) -> tuple[bytes, bytes]:
    """Routing key and rest of a store key."""
    if len(store_key) < LENGTH_BYTES:
        raise _not_of("prefixed", store_key)
    (length,) = _LENGTH.unpack_from(store_key)
    rest_at = LENGTH_BYTES + length
    if len(store_key) < rest_at:
        raise _not_of("prefixed", store_key)
    return store_key[LENGTH_BYTES:rest_at], store_key[rest_at:]


def prefix_bytes(store_key: bytes) -> int:
    """How long the prefix of a prefixed store key is: the rest begins there."""
    return LENGTH_BYTES + int(_LENGTH.unpack_from(store_key)[0])


def index_bytes(index: int) -> bytes:
    """A list index as the rest of a prefixed key: uint64 big-endian, so that byte order is list order."""
    return _INDEX.pack(index)


def index_of(rest: bytes) -> int:
    """The list index that :func:`index_bytes` wrote."""
    if len(rest) != _INDEX.size:
        raise _not_of("prefixed", rest)
    (index,) = _INDEX.unpack(rest)
    return int(index)


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key after all keys that begin with ``prefix``; None means no upper end."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes([stripped[-1] + 1])


def _not_of(layout: KeyLayout, key: bytes) -> DecodeError:
    return DecodeError(
        f"A store key of {len(key)} bytes is not of the layout {layout}.",
        action="Check that the catalog's entry for this store describes the changelog it names.",
        layout=layout,
        key=key[:64].hex(),
    )
