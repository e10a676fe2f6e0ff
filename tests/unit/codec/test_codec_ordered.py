"""Codecs of keys: bytes that sort as the values do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.codec import Codec, from_description
from stateflow.codec.optional import NothingCodec, OptionalCodec
from stateflow.codec.ordered import OrderedFloat, OrderedInteger, key_codec_for
from stateflow.codec.scalar import Boolean, Bytes, Integer, String
from stateflow.errors import DecodeError, EncodeError

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        (OrderedInteger, INT64),
        (OrderedFloat, st.floats(allow_nan=False)),
        (String, st.text()),
        (Bytes, st.binary()),
        (Boolean, st.booleans()),
    ],
    ids=repr,
)
def test_bytes_sort_as_values(codec: Codec[Any], values: st.SearchStrategy[Any]) -> None:
    assert codec.is_ordered

    @given(values, values)
    def check(one: Any, two: Any) -> None:
        assert (codec.encode(one) < codec.encode(two)) == (one < two)
        assert codec.decode(codec.encode(one)) == one

    check()


@pytest.mark.parametrize("wrong", [True, "1", 1 << 63, None, 1.5])
def test_only_integers_of_64_bits(wrong: object) -> None:
    with pytest.raises(EncodeError):
        OrderedInteger.encode(wrong)  # type: ignore[arg-type]


def test_what_has_no_order_is_refused() -> None:
    with pytest.raises(EncodeError):
        OrderedFloat.encode(float("nan"))
    assert not Integer.is_ordered


@pytest.mark.parametrize(
    "codec", [OrderedInteger, OrderedFloat, OptionalCodec(String), NothingCodec()], ids=repr
)
def test_descriptions_build_the_codec(codec: Codec[Any]) -> None:
    assert from_description(codec.describe()) == codec


def test_an_optional_value_and_none_are_told_apart() -> None:
    codec = OptionalCodec(String)
    assert [codec.decode(codec.encode(value)) for value in ("", None, "x")] == ["", None, "x"]
    for wrong in (b"", b"\x02x"):
        with pytest.raises(DecodeError):
            codec.decode(wrong)
    with pytest.raises(DecodeError):
        NothingCodec().decode(b"x")
    with pytest.raises(EncodeError):
        NothingCodec().encode(1)  # type: ignore[arg-type]


def test_keys_get_the_codec_that_keeps_their_order() -> None:
    kinds = {int: OrderedInteger, float: OrderedFloat, str: String, bytes: Bytes, bool: Boolean}
    assert {type_: key_codec_for(type_) for type_ in kinds} == kinds
    assert not key_codec_for(tuple[str, int]).is_ordered
