"""The codec of a state: what comes back as it was is written as ever, and nothing else is."""

from __future__ import annotations

import datetime
import enum
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest

from stateflow.codec.faithful import FaithfulCodec, faithful
from stateflow.codec.infer import codec_for
from stateflow.codec.structured import Json
from stateflow.errors import DecodeError, EncodeError

DAY = datetime.date(2024, 1, 1)
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)


class Kind(enum.Enum):
    BUY = "buy"


class Number(enum.IntEnum):
    ONE = 1


class Text(enum.StrEnum):
    A = "a"


@dataclass
class Base:
    x: int = 1


@dataclass
class Derived(Base):
    y: int = 2


@dataclass(eq=False)
class Unequal:
    parts: list[Base]
    ratio: float = float("nan")


class Record(msgspec.Struct):
    base: Base | None = None
    more: Any = None


class Point(NamedTuple):
    x: int
    y: Any


KEPT: list[tuple[Any, Any]] = [
    (Any, {"a": [1, 2.5, None, True, b"x", {"b": NOON}]}),
    (Any, {1: "int", b"k": "bytes", None: 1}),
    (Any, float("nan")),
    (dict, {"a": 1}),
    (dict[Kind, int], {Kind.BUY: 1}),
    (dict[str, float], {"a": 1}),
    (list[Any], [1, "a"]),
    (list[datetime.date], [DAY]),
    (tuple[int, Decimal], (1, Decimal("1.5"))),
    (set, {1, "a"}),
    (Base, Base(3)),
    (Record, Record(Base(1), [Base.__name__])),
    (Unequal, Unequal([Base(1)])),
    (Point, Point(1, "a")),
    (list[float], [float("nan"), 1]),
    (Decimal, Decimal("nan")),
    (int | list[int], 3),
]
REFUSED: list[tuple[Any, Any]] = [
    (Any, {Kind.BUY: 1}),
    (Any, {Text.A: 1}),
    (Any, [Number.ONE]),
    (Any, {"a": {"b": (1, 2)}}),
    (Any, Base()),
    (Any, {1, 2}),
    (Any, Decimal(1)),
    (Any, NOON.replace(tzinfo=None)),
    (Any, OrderedDict(a=1)),
    (dict, {"a": DAY}),
    (dict[str, int], {"a": 1.5}),
    (dict[str, int], {1: 1}),
    (list[int], (1, 2)),
    (Base, Base("text")),  # type: ignore[arg-type]
    (Base, Derived()),
    (list[Base], [Derived()]),
    (Base, {"x": 1}),
    (Record, Record(Derived())),
    (Record, Record(None, DAY)),
    (Unequal, Unequal([Derived()])),
    (Point, Point(1, (1, 2))),
    (list[float], [(1 << 60) + 1]),
    (set, {Text.A}),
]


def codec_of(type_: Any, *, alike: bool = False) -> FaithfulCodec:
    codec = faithful(codec_for(type_, "msgpack"), "totals", alike=alike)
    assert isinstance(codec, FaithfulCodec)
    return codec


@pytest.mark.parametrize(("type_", "value"), KEPT)
def test_what_comes_back_is_written_as_ever(type_: Any, value: Any) -> None:
    codec = codec_of(type_)
    data = codec.encode(value)
    assert codec.encode_many([value, None]) == [data, None]
    assert data == codec_for(type_, "msgpack").encode(value)
    assert repr(codec.decode_many([data])) == repr([codec.decode(data)])
    assert codec.describe() == codec_for(type_, "msgpack").describe()


@pytest.mark.parametrize(("type_", "value"), REFUSED)
def test_what_would_come_back_as_something_else_is_refused(type_: Any, value: Any) -> None:
    codec = codec_of(type_)
    with pytest.raises(EncodeError, match=r"state 'totals'") as raised:
        codec.encode(value)
    assert raised.value.fields["state"] == "totals"
    with pytest.raises(EncodeError):
        codec.encode_many([None, value])


@pytest.mark.parametrize(
    ("type_", "value"), [(Sequence[int], (1, 2)), (Any, {"a": (1, 2)}), (frozenset[int], {1})]
)
def test_a_state_written_at_once_takes_a_tuple_for_a_list(type_: Any, value: Any) -> None:
    assert codec_of(type_, alike=True).encode(value) == codec_for(type_, "msgpack").encode(value)


@pytest.mark.parametrize(
    ("type_", "value"), [(list[Base], (Derived(),)), (Any, ({Kind.BUY: 1},)), (Any, {1})]
)
def test_it_takes_nothing_else_for_another(type_: Any, value: Any) -> None:
    with pytest.raises(EncodeError):
        codec_of(type_, alike=True).encode(value)


def test_json_is_checked_as_json_reads_it() -> None:
    codec = faithful(Json, "totals")
    assert codec.decode(codec.encode({"a": [1]})) == {"a": [1]}
    for value in ({1: "a"}, b"bytes", NOON):
        with pytest.raises(EncodeError):
            codec.encode(value)


@pytest.mark.parametrize("type_", [int, str, int | None, int | float])
def test_scalars_have_their_own_check(type_: Any) -> None:
    assert not isinstance(faithful(codec_for(type_, "msgpack"), "totals"), FaithfulCodec)


def test_bytes_of_another_type_name_the_state() -> None:
    with pytest.raises(DecodeError, match=r"state 'totals'.*migrations"):
        codec_of(Base).decode(codec_for(dict, "msgpack").encode({"x": "text"}))
