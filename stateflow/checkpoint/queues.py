"""Records in flight as a file: what a savepoint keeps of a repartition topic. Bytes: ``docs/formats.md``."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from stateflow.errors import StateCorrupt
from stateflow.record import Headers, Record

_MAGIC = b"SFQ\x01"
_HEAD = struct.Struct(">qii")
_COUNT = struct.Struct(">H")
_NAME = struct.Struct(">H")
_LENGTH = struct.Struct(">i")
_NULL = -1


def write_records(file: Path, records: Iterable[Record]) -> tuple[int, int, str]:
    """Write records in their order; returns their number, the file's bytes and its SHA-256."""
    digest, size_bytes, count = hashlib.sha256(), 0, 0
    with file.open("wb") as sink:
        for data in _pieces(records):
            sink.write(data)
            digest.update(data)
            size_bytes += len(data)
            count += 1
    return count - 1, size_bytes, digest.hexdigest()


def read_records(file: Path, topic: str, partition: int) -> Iterator[Record]:
    """The records of a file, in order; their offsets count from 0. Raises ``StateCorrupt``."""
    with file.open("rb") as source:
        if source.read(len(_MAGIC)) != _MAGIC:
            raise _damaged(file, "it does not begin as such a file does")
        offset = 0
        while head := source.read(_HEAD.size):
            timestamp_ms, key_bytes, value_bytes = _unpacked(_HEAD, head, file)
            key = _read(source, key_bytes, file)
            value = _read(source, value_bytes, file)
            headers = _read_headers(source, file)
            yield Record(topic, partition, offset, timestamp_ms, key, value, headers)
            offset += 1


def _pieces(records: Iterable[Record]) -> Iterator[bytes]:
    yield _MAGIC
    for record in records:
        key, value = record.key, record.value
        parts = [_HEAD.pack(record.timestamp_ms, _length(key), _length(value)), key or b"", value or b""]
        parts.append(_COUNT.pack(len(record.headers)))
        for name, data in record.headers:
            encoded = name.encode()
            parts += [_NAME.pack(len(encoded)), encoded, _LENGTH.pack(_length(data)), data or b""]
        yield b"".join(parts)


def _length(data: bytes | None) -> int:
    return _NULL if data is None else len(data)


def _read_headers(source: BinaryIO, file: Path) -> Headers:
    (count,) = _unpacked(_COUNT, source.read(_COUNT.size), file)
    headers = []
    for _ in range(count):
        (name_bytes,) = _unpacked(_NAME, source.read(_NAME.size), file)
        name = _read(source, name_bytes, file) or b""
        (value_bytes,) = _unpacked(_LENGTH, source.read(_LENGTH.size), file)
        try:
            headers.append((name.decode(), _read(source, value_bytes, file)))
        except UnicodeDecodeError as error:
            raise _damaged(file, "a header's name is not UTF-8") from error
    return tuple(headers)  # type: ignore[arg-type]  # a header's value may be null, whatever its type says


def _read(source: BinaryIO, size_bytes: int, file: Path) -> bytes | None:
    if size_bytes == _NULL:
        return None
    if size_bytes < 0:
        raise _damaged(file, "a length is negative")
    data = source.read(size_bytes)
    if len(data) != size_bytes:
        raise _damaged(file, "it ends in the midst of a record")
    return data


def _unpacked(form: struct.Struct, data: bytes, file: Path) -> tuple[int, ...]:
    if len(data) != form.size:
        raise _damaged(file, "it ends in the midst of a record")
    return form.unpack(data)


def _damaged(file: Path, why: str) -> StateCorrupt:
    return StateCorrupt(
        f"the records in flight in {file.name} cannot be read: {why}.",
        action="restore from another savepoint.",
        file=file.name,
    )
