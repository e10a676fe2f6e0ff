"""The bytes of a pending timer: a change here is a new format version."""

from __future__ import annotations

import pytest

from stateflow.codec.scalar import String
from stateflow.codec.table import from_description
from stateflow.codec.timer import EncodedTimer, Timer
from stateflow.errors import DecodeError
from stateflow.state.layout import prefixed_key, routing_key
from stateflow.state.timers import timers_entry

DUE_MS, SET_MS = 1_700_000_000_000, 1_699_999_990_000
BYTES = bytes.fromhex("01" + "00" + "0000018bcfe56800" + "0000018bcfe540f0")


def test_value() -> None:
    assert EncodedTimer.encode(Timer("event", DUE_MS, SET_MS)) == BYTES
    assert EncodedTimer.decode(BYTES) == Timer("event", DUE_MS, SET_MS)
    assert EncodedTimer.encode(Timer("processing", DUE_MS, SET_MS))[:2].hex() == "0101"


def test_a_payload_stands_behind_it_in_a_format_of_its_own() -> None:
    payload = bytes.fromhex("81a16101")  # {"a": 1} in MessagePack
    data = b"\x02" + BYTES[1:] + payload
    assert EncodedTimer.encode(Timer("event", DUE_MS, SET_MS, payload)) == data
    assert EncodedTimer.decode(data) == Timer("event", DUE_MS, SET_MS, payload)
    shown = from_description({"codec": "timer"}).decode(data)
    assert shown == {"time": "event", "due_ms": DUE_MS, "set_ms": SET_MS, "payload": {"a": 1}}


def test_key_and_entry() -> None:
    entry = timers_entry("fraud-timers", String)
    assert (entry.kind, entry.layout) == ("timers", "prefixed")
    assert entry.value_codec == {"codec": "timer", "map_key": {"codec": "string"}}
    key = prefixed_key(b"ab", b"idle")
    assert key.hex() == "00000002" + "6162" + "69646c65"
    assert routing_key(entry.layout, key) == b"ab"


def test_tools_read_it_by_its_description() -> None:
    shown = from_description({"codec": "timer"}).decode(BYTES)
    assert shown == {"time": "event", "due_ms": DUE_MS, "set_ms": SET_MS}


@pytest.mark.parametrize(
    "data",
    [b"", BYTES[:-1], BYTES + b"\0", b"\x02" + BYTES[1:], b"\x03" + BYTES[1:], b"\x01\x02" + BYTES[2:]],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        EncodedTimer.decode(data)
