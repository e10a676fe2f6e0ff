from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from stateflow.codec import (
    Codec,
    Integer,
    Json,
    JsonOf,
    MsgPack,
    MsgPackOf,
    Plain,
    String,
    Windowed,
    WindowedCodec,
    codec_for,
    from_description,
)
from stateflow.codec.infer import codec_or_none, item_type, result_type
from stateflow.errors import ConfigError, DecodeError, EncodeError


@dataclass
class Delay:
    airport: str
    minutes: int


class Flight(msgspec.Struct):
    tail: str
    day: datetime.date


class Pair(NamedTuple):
    left: str
    right: int


VALUES = [Delay("JFK", 12), Flight("N14228", datetime.date(2013, 1, 1)), Pair("a", 1)]


@pytest.mark.parametrize("make", [JsonOf, MsgPackOf])
@pytest.mark.parametrize("value", VALUES)
def test_declared_types_come_back_as_themselves(make: Callable[[Any], Codec[Any]], value: object) -> None:
    codec = make(type(value))
    assert codec.decode(codec.encode(value)) == value
    assert type(codec.decode(codec.encode(value))) is type(value)


@pytest.mark.parametrize("type_", [list[int], dict[str, Delay], int | None, tuple[str, int]])
def test_builtins_with_arguments(type_: Any) -> None:
    value = {list[int]: [1], dict[str, Delay]: {"a": Delay("x", 1)}, int | None: 5}.get(type_, ("a", 1))
    codec = codec_for(type_, "msgpack")
    assert codec.decode(codec.encode(value)) == value


def test_another_shape_is_refused_while_decoding() -> None:
    with pytest.raises(DecodeError, match="minutes"):
        JsonOf(Delay).decode(b'{"airport": "JFK", "minutes": "many"}')


def test_a_reader_without_the_class_sees_builtins() -> None:
    for codec in (JsonOf(Delay), MsgPackOf(Delay)):
        described = msgspec.json.decode(msgspec.json.encode(codec.describe()))
        assert described["type"] == "Delay"
        generic = from_description(described)
        assert generic.decode(codec.encode(Delay("JFK", 12))) == {"airport": "JFK", "minutes": 12}


def test_untyped_json_and_msgpack() -> None:
    value = {"a": [1, 2.5, None, "x", True]}
    for codec in (Json, MsgPack):
        assert codec.decode(codec.encode(value)) == value
        assert from_description(codec.describe()) == codec
    assert Json.encode(Delay("JFK", 1)) == b'{"airport":"JFK","minutes":1}'


@pytest.mark.parametrize("value", [Delay("a", 1), Pair("a", 1), (1, 2), {1}])
def test_undeclared_values_that_would_change_type_are_refused(value: object) -> None:
    with pytest.raises(EncodeError, match="declare its type"):
        Plain.encode(value)


def test_undeclared_plain_values() -> None:
    for value in ({"a": 1}, [1], "x", 5, 1.5, True, b"raw"):
        assert Plain.decode(Plain.encode(value)) == value


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 5000, b"\xc1"])
def test_hostile_bytes_are_decode_errors(data: bytes) -> None:
    for codec in (Json, MsgPack, JsonOf(Delay), MsgPackOf(Delay)):
        if codec is MsgPack and data[:1] in (b"{", b"["):
            continue  # valid MessagePack: a small integer, then bytes left over
        with pytest.raises(DecodeError):
            codec.decode(data)


def test_scalars_are_kafkas_own() -> None:
    assert codec_for(str) is String
    assert codec_for(int) is Integer
    assert codec_for(Json) is Json


def test_a_type_without_codec_is_refused() -> None:
    with pytest.raises(ConfigError, match="no codec"):
        codec_for(type(lambda: None))


def test_windowed_key_is_key_and_start() -> None:
    codec = WindowedCodec(String, 60_000)
    key = Windowed("ab", 120_000, 180_000)
    assert codec.encode(key).hex() == "6162" + "000000000001d4c0"
    assert codec.decode(codec.encode(key)) == key
    assert from_description(codec.describe()) == codec
    with pytest.raises(DecodeError):
        codec.decode(b"short")


def annotated(value: str) -> Delay:
    return Delay(value, 0)


def many(value: str) -> Iterator[Delay]:
    yield annotated(value)


def test_what_a_function_says_it_returns() -> None:
    assert result_type(annotated) is Delay
    assert result_type(Delay) is Delay
    assert result_type(lambda value: value) is None
    assert result_type(str.lower) is None
    assert item_type(result_type(many)) is Delay
    assert item_type(list[int]) is int
    assert item_type(Iterable[str]) is str
    assert item_type(dict[str, int]) is None


def test_annotations_that_say_too_little_have_no_codec() -> None:
    assert codec_or_none(Any, "json") is None
    assert codec_or_none(None, "json") is None
    assert codec_or_none(Delay, "json") == JsonOf(Delay)


@pytest.mark.parametrize("make", [JsonOf, MsgPackOf])
@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        (int | None, [3, -(2**63)], [1.5, "3", True]),
        (float, [1.5, 3], ["1.5", False]),
        (str | None, ["a"], [1, b"a"]),
        (bool, [True], [1]),
    ],
)
def test_a_scalar_of_another_type_is_refused_before_it_is_written(
    make: Callable[[Any], Codec[Any]], declared: Any, good: list[Any], bad: list[Any]
) -> None:
    """As state it could not be read back."""
    codec = make(declared)
    assert codec.decode_many(codec.encode_many([*good, None])) == [*good, None]
    for value in bad:
        with pytest.raises(EncodeError, match=type(value).__name__):
            codec.encode(value)
        with pytest.raises(EncodeError):
            codec.encode_many([*good, value])
