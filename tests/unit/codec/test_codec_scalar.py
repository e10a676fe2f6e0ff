from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.codec import Boolean, Bytes, Codec, Float, Float32, Int32, Integer, String, from_description
from stateflow.errors import DecodeError, EncodeError


@pytest.mark.parametrize(
    ("codec", "value", "data"),
    [
        (Bytes, b"\x00\xff", "00ff"),
        (String, "größe", "6772c3b6c39f65"),
        (Integer, -2, "fffffffffffffffe"),
        (Int32, 258, "00000102"),
        (Float, 1.5, "3ff8000000000000"),
        (Float32, 1.5, "3fc00000"),
        (Boolean, True, "01"),
    ],
)
def test_bytes_are_those_of_kafkas_serializers(codec: Codec[Any], value: object, data: str) -> None:
    assert codec.encode(value).hex() == data
    assert codec.decode(bytes.fromhex(data)) == value
    assert from_description(codec.describe()) == codec


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))))
def test_many_integers_with_gaps(values: list[int | None]) -> None:
    assert Integer.decode_many(Integer.encode_many(values)) == values


@given(st.lists(st.one_of(st.none(), st.text())))
def test_many_strings_with_gaps(values: list[str | None]) -> None:
    assert String.decode_many(String.encode_many(values)) == values


@pytest.mark.parametrize(
    ("codec", "value"),
    [(Bytes, "text"), (String, b"bytes"), (Integer, 2**63), (Int32, 2**31), (Integer, 1.5), (Boolean, 1)],
)
def test_a_value_that_does_not_fit_is_refused(codec: Codec[Any], value: object) -> None:
    with pytest.raises(EncodeError) as caught:
        codec.encode(value)
    assert type(value).__name__ in str(caught.value)


@pytest.mark.parametrize(
    ("codec", "data"),
    [(String, b"\xff"), (Integer, b"1234567"), (Int32, b"12345678"), (Float, b""), (Boolean, b"\x02")],
)
def test_foreign_bytes_are_refused(codec: Codec[Any], data: bytes) -> None:
    with pytest.raises(DecodeError):
        codec.decode(data)


def test_the_first_bad_row_is_named() -> None:
    with pytest.raises(DecodeError) as decoding:
        String.decode_many([b"a", None, b"\xff", b"\xfe"])
    assert decoding.value.fields["row"] == 2
    with pytest.raises(EncodeError) as encoding:
        Integer.encode_many([1, 2**64])
    assert encoding.value.fields["row"] == 1
