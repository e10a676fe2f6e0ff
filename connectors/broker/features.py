"""Asks a broker which feature levels its cluster has settled on: one ApiVersions request over a plain socket.

The client library has no call for it. Format: KIP-511 and KIP-584, ApiVersions version 3 (flexible, tagged
fields).
"""

from __future__ import annotations

import socket
import struct

_API_VERSIONS_KEY = 18
_REQUEST_VERSION = 3
_TAG_FINALIZED_FEATURES = 2
_RESPONSE_BYTES_MAX = 1 << 20
_API_ENTRY_BYTES = 6  # key, lowest and highest version: three int16


def finalized_features(host: str, port: int, *, timeout_seconds: float = 5.0) -> dict[str, int]:
    """Feature name → level in force on the whole cluster. Raises OSError when the broker cannot be asked."""
    with socket.create_connection((host, port), timeout_seconds) as connection:
        connection.sendall(_request())
        (size,) = struct.unpack(">i", _receive(connection, 4))
        if not 0 < size <= _RESPONSE_BYTES_MAX:
            raise ConnectionError(f"{host}:{port} does not speak Kafka's protocol")
        return parse_response(_receive(connection, size))


def parse_response(body: bytes) -> dict[str, int]:
    """The finalized features in an ApiVersions v3 response (without its length).

    Raises OSError on anything else.
    """
    try:
        return _parse(_Reader(body))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ConnectionError(f"an ApiVersions response could not be read: {error}") from error


def _request() -> bytes:
    client = b"stateflow"
    header = struct.pack(">hhih", _API_VERSIONS_KEY, _REQUEST_VERSION, 1, len(client)) + client + b"\x00"
    body = bytes([len(client) + 1]) + client + bytes([2]) + b"1" + b"\x00"  # software name and version
    return struct.pack(">i", len(header) + len(body)) + header + body


def _parse(reader: _Reader) -> dict[str, int]:
    reader.take(4)  # correlation id; the header of this one response has no tags
    (error_code,) = struct.unpack(">h", reader.take(2))
    if error_code:
        raise ConnectionError(f"the broker refused ApiVersions with error code {error_code}")
    for _ in range(reader.varint() - 1):
        reader.take(_API_ENTRY_BYTES)
        reader.skip_tags()
    reader.take(4)  # throttle time
    features: dict[str, int] = {}
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        field = _Reader(reader.take(size))
        if tag == _TAG_FINALIZED_FEATURES:
            for _ in range(field.varint() - 1):
                name = field.take(field.varint() - 1).decode()
                level_max, _level_min = struct.unpack(">hh", field.take(4))
                field.skip_tags()
                features[name] = level_max
    return features


class _Reader:
    """Walks over bytes, refusing to run past their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise IndexError("it is cut short")
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
        raise IndexError("a length has more than five bytes")

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts += part
    return bytes(parts)
