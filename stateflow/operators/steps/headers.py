"""Headers of records: those of users, which travel with rows, and those of stateflow itself, which users never see."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stateflow.changelog.format import BARRIER_HEADER, MARK_HEADER, ORIGIN_HEADER, WATERMARK_HEADER
from stateflow.record import Headers, RecordBatch

INTERNAL = frozenset({WATERMARK_HEADER, MARK_HEADER, BARRIER_HEADER, ORIGIN_HEADER})
"""Names that only stateflow writes, on its own repartition topics. Whatever else comes with such a name is left out."""

_NAME_LENGTH, _CONTENT_LENGTH = struct.Struct(">H"), struct.Struct(">I")

HeadersLike = Mapping[str, bytes | str] | Sequence[tuple[str, bytes | str]]
"""What headers are set from: a mapping of names to values, or pairs, as a name may come twice. Text becomes UTF-8."""


def headers_of(given: HeadersLike) -> Headers:
    """Headers as they are written. Raises ``ValueError`` or ``TypeError`` for those that cannot be."""
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((_name(name), _content(name, content)) for name, content in pairs)


def with_own_headers(batch: RecordBatch) -> RecordBatch:
    """The rows of a raw batch with the headers that users have given them; one without a value is empty."""
    if not any(batch.headers):
        return replace(batch, headers=[]) if batch.headers else batch
    own = [
        () if not headers or (len(headers) == 1 and headers[0][0] in INTERNAL) else own_headers(headers)
        for headers in batch.headers
    ]
    return replace(batch, headers=own if any(own) else [])


def own_headers(headers: Headers) -> Headers:
    """The headers that users have given a record."""
    return tuple((name, content or b"") for name, content in headers if name not in INTERNAL)


def packed(headers: Headers) -> bytes:
    """Headers as bytes: for each, length uint16 ‖ name ‖ length uint32 ‖ content; nothing for none."""
    parts = []
    for name, content in headers:
        encoded = name.encode()
        parts += [_NAME_LENGTH.pack(len(encoded)), encoded, _CONTENT_LENGTH.pack(len(content)), content]
    return b"".join(parts)


def unpacked(data: bytes) -> Headers:
    """What ``packed`` has written."""
    headers, at = [], 0
    while at < len(data):
        name_at = at + _NAME_LENGTH.size
        name_end = name_at + int(_NAME_LENGTH.unpack_from(data, at)[0])
        content_at = name_end + _CONTENT_LENGTH.size
        at = content_at + int(_CONTENT_LENGTH.unpack_from(data, name_end)[0])
        headers.append((data[name_at:name_end].decode(), data[content_at:at]))
    return tuple(headers)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError(f"a header's name is a text that is not empty, not {name!r}")
    if name in INTERNAL:
        raise ValueError(f"the header {name!r} is stateflow's own: choose another name")
    return name


def _content(name: str, content: object) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, bytes):
        raise TypeError(f"the header {name!r} is bytes or text, not {type(content).__name__}")
    return content
