"""The bytes of a row that is held back: a change here is a new format."""

from __future__ import annotations

import pytest

from stateflow.codec.held import Held, HeldCodec
from stateflow.codec.scalar import Integer
from stateflow.codec.table import from_description
from stateflow.errors import DecodeError
from stateflow.operators.steps.headers import packed

CODEC = HeldCodec(Integer)
HELD = Held(1_000, 10, 20, 7, packed((("a", b"b"),)))
TIMES = "00000000000003e8" + "000000000000000a" + "0000000000000014"
HEADERS = "0001" + "61" + "00000001" + "62"
BYTES = bytes.fromhex(TIMES + "03" + "00000008" + HEADERS + "0000000000000007")


def test_a_value_with_headers() -> None:
    assert CODEC.encode(HELD) == BYTES
    assert CODEC.decode(BYTES) == HELD


@pytest.mark.parametrize(
    ("held", "flags"),
    [
        (Held(1_000, 10, 20), "01"),
        (Held(1_000, 10, 20, was_told=True), "05"),
        (Held(1_000, 10, 20, holds=False, was_told=True), "04"),
    ],
)
def test_deletions_and_keys_that_were_told(held: Held, flags: str) -> None:
    data = bytes.fromhex(TIMES + flags + "00000000")
    assert CODEC.encode(held) == data
    assert CODEC.decode(data) == held
    assert HeldCodec.holds(data) is held.holds


def test_tools_read_it_without_the_application() -> None:
    assert CODEC.describe() == {"codec": "held", "value": {"codec": "integer", "bits": 64}}
    shown = from_description(CODEC.describe()).decode(BYTES)
    assert shown["value"] == 7
    assert shown["due_ms"] == 1_000
    assert "headers" not in shown


def test_flags_of_another_version_are_damage() -> None:
    with pytest.raises(DecodeError):
        CODEC.decode(bytes.fromhex(TIMES + "08" + "00000000"))
