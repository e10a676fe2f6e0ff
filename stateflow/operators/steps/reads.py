"""What steps read of the values that reach them, and reading records no further than that.

A step that was given names of fields or column expressions knows which fields it reads; one with a function of its own
reads the whole value. Where all steps behind a topic's records know, and the topic's codec is plain JSON or
MessagePack, only those fields are made objects; a step that passes values on with the same codec sends the bytes that
came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.projected import ProjectedRow, Projection, can_be_fields


@dataclass(frozen=True, slots=True)
class Reads:
    """Fields that are read of a value, and whether its bytes are passed on."""

    fields: frozenset[str] = frozenset()
    as_bytes: bool = False

    def __or__(self, other: Reads) -> Reads:
        return Reads(self.fields | other.fields, self.as_bytes or other.as_bytes)


def reads_of(function: object) -> Reads | None:
    """What a function of a value reads, where it says so; None for one that may read anything."""
    fields = getattr(function, "fields", None)
    return Reads(fields) if isinstance(fields, frozenset) else None


def all_of(parts: Iterable[Reads | None]) -> Reads | None:
    """What several read together; None when one of them may read anything."""
    together = Reads()
    for part in parts:
        if part is None:
            return None
        together |= part
    return together


class Reader:
    """Decodes the values that a step takes in, as far as it and the steps behind it read them."""

    def __init__(self, codec: Codec[Any], reads: Callable[[], Reads | None]) -> None:
        self.codec, self._reads = codec, reads
        self._projection: Projection | None = None
        self._is_planned = False

    def decode_many(self, rows: Sequence[bytes | None]) -> list[Any]:
        """The value of each row, all read in part or all whole. Raises ``DecodeError`` as the codec does."""
        if not self._is_planned:  # the steps behind it are known by the first batch
            self._projection, self._is_planned = self._planned(), True
        found = None if self._projection is None else self._projection.read(rows)
        return self.codec.decode_many(rows) if found is None else found

    def decode(self, data: bytes) -> Any:
        """The whole value of one."""
        return self.codec.decode(data)

    def _planned(self) -> Projection | None:
        reads = self._reads()
        if reads is None or self.codec.projects is None or not can_be_fields(reads.fields):
            return None
        return Projection(self.codec.projects, reads.fields, keep_bytes=reads.as_bytes)


def encoded_one(codec: Codec[Any], value: Any) -> bytes:
    """The same of one value."""
    return value.as_bytes_ if isinstance(value, ProjectedRow) else codec.encode(value)


def encoded(codec: Codec[Any], values: Sequence[Any]) -> list[bytes | None]:
    """Values of a batch as bytes; those that were read in part as they came, which is what the codec makes of them."""
    if values and isinstance(values[0], ProjectedRow):
        return [value.as_bytes_ for value in values]
    return codec.encode_many(values)
