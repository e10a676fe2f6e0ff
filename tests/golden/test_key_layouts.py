"""The bytes of every key layout: a change here is a new format version."""

from __future__ import annotations

import pytest

from stateflow.catalog.model import KeyLayout
from stateflow.errors import DecodeError
from stateflow.state.layout import (
    index_bytes,
    index_of,
    prefix_end,
    prefixed_key,
    routing_key,
    split_prefixed,
    split_window,
    window_key,
    window_suffix,
)


def test_window_key_is_that_of_kafka_streams() -> None:
    key = window_key(b"ab", 1_700_000_000_000)
    assert key.hex() == "6162" + "0000018bcfe56800" + "00000000"
    assert key.endswith(window_suffix(1_700_000_000_000))
    assert split_window(key) == (b"ab", 1_700_000_000_000)


def test_prefixed_key() -> None:
    key = prefixed_key(b"ab", b"rest")
    assert key.hex() == "00000002" + "6162" + b"rest".hex()
    assert split_prefixed(key) == (b"ab", b"rest")
    assert prefixed_key(b"").hex() == "00000000"


def test_list_index() -> None:
    assert index_bytes(258).hex() == "0000000000000102"
    assert index_of(index_bytes(258)) == 258


@pytest.mark.parametrize(
    ("layout", "key"),
    [
        ("plain", b"ab"),
        ("window", bytes.fromhex("6162" + "0000018bcfe56800" + "00000000")),
        ("prefixed", bytes.fromhex("00000002" + "6162" + "ffff")),
        ("prefixed", bytes.fromhex("00000002" + "6162")),
    ],
)
def test_routing_key_is_readable_from_the_layout_alone(layout: KeyLayout, key: bytes) -> None:
    assert routing_key(layout, key) == b"ab"


@pytest.mark.parametrize(
    ("layout", "key"), [("window", b"short"), ("prefixed", b"\0\0"), ("prefixed", b"\0\0\0\x09abc")]
)
def test_foreign_bytes_are_refused(layout: KeyLayout, key: bytes) -> None:
    with pytest.raises(DecodeError, match=layout):
        routing_key(layout, key)


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"ab", b"ac"), (b"a\xff", b"b"), (b"\xff\xff", None), (b"", None)]
)
def test_prefix_end(prefix: bytes, end: bytes | None) -> None:
    assert prefix_end(prefix) == end
