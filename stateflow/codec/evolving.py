"""Values of a store whose schema has changed: each says by which schema it was written, or is of the first one.

A value in an *envelope* is ``ff 73 66 76 00`` ‖ number of its schema, uint32 big-endian ‖ value. Schemas are
numbered by the catalog. A value outside an envelope was written before there was a second schema. Values that would
themselves begin like an envelope are put into one, so the two are never mistaken for each other.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol

from stateflow.codec.base import Codec
from stateflow.errors import CatalogIncompatible

MAGIC = b"\xffsfv\x00"
FIRST_NUMBER = 1
_NUMBER = struct.Struct(">I")
_HEAD_BYTES = len(MAGIC) + _NUMBER.size


class ValueReader(Protocol):
    """Turns bytes of one schema into values of today."""

    def decode(self, data: bytes) -> Any:
        """The value; raises ``DecodeError``."""
        ...


class EvolvingCodec(Codec[Any]):
    """Writes values of one schema; reads those of every schema in ``readers``, by number.

    ``number`` is the schema that is written. With ``is_bare`` values go without an envelope, as before any change.
    """

    def __init__(
        self, codec: Codec[Any], number: int, readers: Mapping[int, ValueReader], *, is_bare: bool
    ) -> None:
        self._codec = codec
        self._number = number
        self._readers = readers
        self._head = enveloped(b"", number)
        self._is_bare = is_bare
        self._first = readers.get(FIRST_NUMBER)

    @property
    def bare(self) -> Codec[Any] | None:
        """The codec of all values outside envelopes, written and read; None where they were of another schema.

        It must not be given a value whose bytes begin with ``MAGIC``.
        """
        return self._codec if self._is_bare and self._first is self._codec else None

    def encode(self, value: Any) -> bytes:
        """The bytes of one value, in an envelope where it needs one; raises ``EncodeError``."""
        data = self._codec.encode(value)
        return data if self._is_bare and not data.startswith(MAGIC) else self._head + data

    def decode(self, data: bytes) -> Any:
        """The value of some bytes, brought up to today.

        Raises ``DecodeError``, or ``CatalogIncompatible`` for a value of a schema that this process does not know:
        that no policy for single records may pass over.
        """
        if self._first is not None and not data.startswith(MAGIC):
            return self._first.decode(data)
        number, body = opened(data)
        reader = self._readers.get(number)
        if reader is None:
            raise self._unknown(number)
        return reader.decode(body)

    def _encode(self, value: Any) -> bytes:
        return self.encode(value)

    def _decode(self, data: bytes) -> Any:
        return self.decode(data)

    def _encode_all(self, values: Sequence[Any | None]) -> list[bytes | None]:
        encoded = self._codec.encode_many(values)
        if self._is_bare and not _any_enveloped(encoded):
            return encoded
        head, is_bare = self._head, self._is_bare
        return [
            data if data is None or (is_bare and not data.startswith(MAGIC)) else head + data
            for data in encoded
        ]

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[Any | None]:
        if isinstance(self._first, Codec) and not _any_enveloped(rows):
            return self._first.decode_many(rows)
        return super()._decode_all(rows)

    def _unknown(self, number: int) -> CatalogIncompatible:
        return CatalogIncompatible(
            f"a value was written by schema {number} of its store; this process knows the schemas"
            f" {', '.join(map(str, sorted(self._readers)))}.",
            action="a newer version of the application writes to this state: start this worker again with that"
            " version; if it is the newest, a start lets it read the catalog anew.",
            schema=number,
        )

    def describe(self) -> dict[str, Any]:
        """As the codec that is written."""
        return self._codec.describe()

    def __repr__(self) -> str:
        return repr(self._codec)


def _any_enveloped(rows: Sequence[bytes | None]) -> bool:
    return any(map(bytes.startswith, filter(None, rows), repeat(MAGIC)))


def enveloped(data: bytes, number: int) -> bytes:
    """A value in its envelope."""
    return MAGIC + _NUMBER.pack(number) + data


def opened(data: bytes) -> tuple[int, bytes]:
    """Number of the schema and bytes of the value; those outside an envelope are of the first schema."""
    if not data.startswith(MAGIC) or len(data) < _HEAD_BYTES:
        return FIRST_NUMBER, data
    (number,) = _NUMBER.unpack_from(data, len(MAGIC))
    return int(number), data[_HEAD_BYTES:]
