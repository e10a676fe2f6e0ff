"""The bytes of values in an envelope: a change here is a new format version."""

from __future__ import annotations

from stateflow.catalog.model import SchemaEntry
from stateflow.codec.evolving import MAGIC, enveloped, opened
from stateflow.codec.scalar import Bytes, Integer, String
from stateflow.state.declaration import state
from stateflow.state.declare import declared_fields
from stateflow.state.evolution import application_codec, tool_codec
from stateflow.state.value import Value

HEAD = "ff73667600" + "00000002"


class First:
    name: Value[bytes | None] = state()


def test_envelope() -> None:
    assert enveloped(b"ab", 2).hex() == HEAD + "6162"
    assert opened(bytes.fromhex(HEAD + "6162")) == (2, b"ab")
    assert opened(b"ab") == (1, b"ab")


def test_the_first_version_stands_bare_unless_it_looks_like_an_envelope() -> None:
    (field,) = declared_fields(First, "op")
    entry = field.entry("", String)
    codec = application_codec(Bytes, entry, entry, {})
    assert codec.encode(b"\xff") == b"\xff"
    assert codec.encode(MAGIC + b"x").hex() == "ff73667600" + "00000001" + "ff73667600" + "78"
    for value in (b"", b"\xff", MAGIC, MAGIC + b"x" * 20):
        assert codec.decode(codec.encode(value)) == value
    assert codec.decode(MAGIC) == MAGIC, "too short for an envelope"


def test_a_tool_reads_values_of_every_schema() -> None:
    text, number = {"codec": "string"}, {"codec": "integer", "bits": 64}
    schemas = [
        SchemaEntry(number=1, version=1, value_codec={"codec": "timestamped", "value": number}),
        SchemaEntry(number=2, version=2, value_codec={"codec": "timestamped", "value": text}),
    ]
    codec = tool_codec({"codec": "timestamped", "value": text}, schemas)
    stamp = bytes(8)
    assert codec.decode(stamp + Integer.encode(-1)).value == -1
    assert codec.decode(stamp + bytes.fromhex(HEAD + "6162")).value == "ab"
