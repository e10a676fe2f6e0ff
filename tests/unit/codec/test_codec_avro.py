from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stateflow.codec import from_description
from stateflow.codec.avro import AvroCodec
from stateflow.errors import ConfigError, DecodeError, EncodeError

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "test",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {"name": "stops", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"},
    ],
}
VALUE = {"tail": "N1", "delay": 5, "stops": ["JFK"], "kind": "B", "again": "A"}


def test_round_trip_and_description() -> None:
    codec = AvroCodec(FLIGHT)
    data = codec.encode(VALUE)
    assert data.hex() == "044e31" + "020a" + "02064a464b00" + "02" + "00"
    assert codec.decode(data) == VALUE
    described = msgspec.json.decode(msgspec.json.encode(codec.describe()))
    assert from_description(described).decode(data) == VALUE


def test_schema_as_text() -> None:
    assert AvroCodec('"long"').decode(AvroCodec("long").encode(7)) == 7


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(EncodeError):
        AvroCodec(FLIGHT).encode({"tail": 5})


@pytest.mark.parametrize("cut", [0, 1, 4, -1])
def test_truncated_records_are_decode_errors(cut: int) -> None:
    codec = AvroCodec(FLIGHT)
    with pytest.raises(DecodeError):
        codec.decode(codec.encode(VALUE)[:cut])


def test_bytes_left_over_and_oversize_are_decode_errors() -> None:
    codec = AvroCodec(FLIGHT)
    with pytest.raises(DecodeError, match="left over"):
        codec.decode(codec.encode(VALUE) + b"\0")
    with pytest.raises(DecodeError, match="more than"):
        AvroCodec("bytes", record_bytes_max=10).decode(b"\x16" + b"x" * 11)


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EMPTY = {"type": "record", "name": "Empty", "fields": []}


def nested(depth: int) -> Any:
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (NODE, "recursive"),
        ({**NODE, "namespace": "a.b"}, "recursive"),
        ({"type": "array", "items": "null"}, "no bytes"),
        ({"type": "array", "items": EMPTY}, "no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "no bytes"),
        (nested(150), "nests deeper"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "Unknown"}]}, "unknown type"),
        ({"type": "record", "fields": []}, "without a name"),
        ("{", "not JSON"),
        ({"name": "x"}, "no type"),
    ],
)
def test_unsafe_and_invalid_schemas_are_refused(schema: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        AvroCodec(schema)


def test_deep_but_bounded_schemas_are_fine() -> None:
    codec = AvroCodec(nested(20))
    value: Any = 5
    for _ in range(20):
        value = [value]
    assert codec.decode(codec.encode(value)) == value


def test_maps_of_null_take_bytes() -> None:
    codec = AvroCodec({"type": "map", "values": "null"})
    assert codec.decode(codec.encode({"a": None})) == {"a": None}
