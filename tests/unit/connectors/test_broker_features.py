"""The one raw request of the broker start: what it reads, and that it never trusts a length."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.connectors.broker.features import parse_response


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def response(features: dict[str, int], *, error: int = 0) -> bytes:
    """An ApiVersions v3 response with one api entry, an unknown tag and the finalized features."""
    entry = struct.pack(">hhh", 18, 0, 4) + b"\0"
    finalized = bytes([len(features) + 1])
    for name, level in features.items():
        finalized += compact(name) + struct.pack(">hh", level, level) + b"\0"
    epoch = struct.pack(">q", 7)
    tags = b"\x02" + b"\x01" + bytes([len(epoch)]) + epoch + b"\x02" + bytes([len(finalized)]) + finalized
    return struct.pack(">ih", 1, error) + b"\x02" + entry + struct.pack(">i", 0) + tags


def test_reads_the_levels() -> None:
    wanted = {"transaction.version": 2, "group.version": 1}
    assert parse_response(response(wanted)) == wanted


def test_a_broker_without_features_has_none() -> None:
    assert parse_response(struct.pack(">ih", 1, 0) + b"\x01" + struct.pack(">i", 0) + b"\0") == {}


def test_an_error_code_is_an_error() -> None:
    with pytest.raises(ConnectionError, match="error code 35"):
        parse_response(response({}, error=35))


@pytest.mark.parametrize("length", range(0, 40, 3))
def test_a_cut_response_is_an_error(length: int) -> None:
    with pytest.raises(ConnectionError, match="could not be read"):
        parse_response(response({"group.version": 1})[:length])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        levels = parse_response(body)
    except ConnectionError:
        return
    assert all(isinstance(level, int) for level in levels.values())
