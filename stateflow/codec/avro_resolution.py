"""Avro's schema resolution: values written with one schema, read with another."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

from stateflow.codec.avro import RECORD_BYTES_MAX, AvroCodec, check_safe
from stateflow.codec.base import Codec

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class ResolvingAvro(Codec[Any]):
    """Reads what was written with ``written`` as values of the schema of ``reader``; never writes."""

    def __init__(self, reader: AvroCodec, written: Any) -> None:
        import fastavro

        check_safe(written)
        self._reader = reader
        self._written = fastavro.parse_schema(written)
        self._read = fastavro.schemaless_reader

    def _encode(self, value: Any) -> bytes:  # noqa: ARG002 - Codec's
        raise TypeError("values are written with the schema of now")

    def _decode(self, data: bytes) -> Any:
        if len(data) > RECORD_BYTES_MAX:
            raise ValueError(f"more than {RECORD_BYTES_MAX} bytes")
        source = io.BytesIO(data)
        value = self._read(source, self._written, self._reader.parsed)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes left over")
        return value

    def describe(self) -> dict[str, Any]:
        """As the reader's."""
        return self._reader.describe()


def avro_obstacles(reader: Any, writer: Any) -> Iterator[str]:
    """Why some values of the writer's schema cannot be read with the reader's, by the rules of Avro's specification."""
    return _Resolution(reader, writer).between(reader, writer, "the value")


class _Resolution:
    """Two schemas, each with the types that it names."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader_names: dict[str, Any] = dict(_named_types(reader))
        self._writer_names: dict[str, Any] = dict(_named_types(writer))

    def between(self, reader: Any, writer: Any, where: str) -> Iterator[str]:
        """Obstacles between two parts of the schemas."""
        reader, writer = _whole(reader, self._reader_names), _whole(writer, self._writer_names)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.between(reader, branch, where)
        elif isinstance(reader, list):
            if not any(self._fits(branch, writer, where) for branch in reader):
                yield f"{where} may have been {_type(writer)}, which is not in the union any more"
        elif _type(reader) != _type(writer):
            if _type(reader) not in _PROMOTIONS.get(_type(writer), ()):
                yield f"{where} was {_type(writer)} and is {_type(reader)}"
        else:
            yield from self._same_type(reader, writer, where)

    def _fits(self, reader: Any, writer: Any, where: str) -> bool:
        return next(self.between(reader, writer, where), None) is None

    def _same_type(self, reader: Any, writer: Any, where: str) -> Iterator[str]:
        kind = _type(reader)
        if kind in ("record", "error"):
            yield from self._records(reader, writer, where)
        elif kind == "array":
            yield from self.between(reader["items"], writer["items"], f"an item of {where}")
        elif kind == "map":
            yield from self.between(reader["values"], writer["values"], f"what {where} maps to")
        elif kind == "fixed" and (reader["size"] != writer["size"] or not _same_name(reader, writer)):
            yield f"{where} has another name or size"
        elif kind == "enum":
            gone = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if not _same_name(reader, writer):
                yield f"{where} has another name"
            if gone and "default" not in reader:
                yield f"{where} may have been {gone[0]!r}, which is gone"

    def _records(self, reader: Any, writer: Any, where: str) -> Iterator[str]:
        if not _same_name(reader, writer):
            yield f"{where} was the record {writer['name']!r} and is {reader['name']!r}"
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            before = next((written[name] for name in names if name in written), None)
            if before is not None:
                yield from self.between(field["type"], before["type"], f"the field {field['name']!r}")
            elif "default" not in field:
                yield f"the field {field['name']!r} of {where} is new and has no default"


def _type(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, Mapping) else str(schema)


def _whole(schema: Any, names: Mapping[str, Any]) -> Any:
    """A type by its definition: names looked up, ``{"type": …}`` around primitives and definitions taken off."""
    while True:
        if isinstance(schema, str) and schema in names:
            schema = names[schema]
        elif isinstance(schema, Mapping) and not isinstance(schema["type"], str):
            schema = schema["type"]
        else:
            return schema


def _named_types(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _named_types(branch)
    elif isinstance(schema, Mapping):
        if "name" in schema and schema.get("type") in ("record", "error", "enum", "fixed"):
            yield str(schema["name"]), schema
            if "namespace" in schema:
                yield f"{schema['namespace']}.{schema['name']}", schema
        for inner in ("items", "values", "type"):
            yield from _named_types(schema.get(inner))
        for field in schema.get("fields", ()):
            yield from _named_types(field["type"])


def _same_name(reader: Any, writer: Any) -> bool:
    """Unqualified names count; the reader may know the writer's by an alias."""
    names = [reader["name"], *reader.get("aliases", ())]
    return writer["name"].rpartition(".")[2] in {str(name).rpartition(".")[2] for name in names}
