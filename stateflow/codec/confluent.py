"""Avro in the Confluent wire format: each value names its writer's schema by a registry's number."""

from __future__ import annotations

import copy
import struct
from collections.abc import Mapping
from typing import Any

from stateflow.codec.avro import AvroCodec
from stateflow.codec.avro_resolution import ResolvingAvro
from stateflow.codec.base import Codec
from stateflow.codec.schema_registry import Schemas

_HEAD = struct.Struct(">bI")
_MAGIC = 0


class ConfluentAvro(Codec[Any]):
    """``00`` ‖ number of the schema, uint32 big-endian ‖ Avro's binary encoding. For topics, not for state:
    joins and other verbs that hold records back keep them as plain Avro of ``schema``.

    Values are written with ``schema``, registered under ``subject`` (by convention ``<topic>-value``) when the first
    is written, and read as values of ``schema``, whichever they were written with. Without a subject only reading is
    possible. Raises ``SchemaUnavailable`` where the registry does not answer, which no error policy passes over.
    """

    def __init__(
        self, schema: Mapping[str, Any] | str, schemas: Schemas, *, subject: str | None = None
    ) -> None:
        self._codec = AvroCodec(schema)
        self._schemas = schemas
        self._subject = subject
        self._head: bytes | None = None
        self._readers: dict[int, Codec[Any]] = {}

    def for_keys(self) -> Codec[Any]:
        """With sorted maps."""
        changed = copy.copy(self)
        changed._codec = self._codec.for_keys()
        return changed

    def _encode(self, value: Any) -> bytes:
        data = self._codec.encode(value)
        if self._head is None:
            if self._subject is None:
                raise TypeError("no subject was given to register the schema under")
            self._head = _HEAD.pack(
                _MAGIC, self._schemas.register(self._subject, self._codec.describe()["schema"])
            )
        return self._head + data

    def _decode(self, data: bytes) -> Any:
        magic, number = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError(f"it begins with {magic:#04x}, not with 00 and the number of a schema")
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = ResolvingAvro(self._codec, self._schemas.schema(number))
        return reader.decode(data[_HEAD.size :])

    @property
    def as_state(self) -> Codec[Any]:
        """Plain Avro of the schema, which the catalog has: tools and restores do not ask a registry."""
        return self._codec

    def describe(self) -> dict[str, Any]:
        """``{"codec": "confluent-avro", "schema": …}``: tools without the registry cannot read it."""
        return {"codec": "confluent-avro", "schema": self._codec.describe()["schema"]}

    def __repr__(self) -> str:
        return f"Confluent{self._codec!r}"
