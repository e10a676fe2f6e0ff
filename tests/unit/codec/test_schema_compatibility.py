"""Which changes of a value's type old values survive, told from the descriptions and tried on values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from stateflow.codec import codec_for
from stateflow.codec.avro import AvroCodec
from stateflow.codec.avro_resolution import ResolvingAvro
from stateflow.codec.compatible import obstacles
from stateflow.codec.details import detail_obstacles, details_of


def shape(*fields: Any) -> type:
    return make_dataclass("Shape", fields)


class Circle(msgspec.Struct, tag=True):
    radius: int


class Square(msgspec.Struct, tag=True):
    side: int


class Point(msgspec.Struct, array_like=True):
    x: int


class Point3(msgspec.Struct, array_like=True):
    x: int
    z: int = 0


class Tall(msgspec.Struct, array_like=True):
    x: int
    z: int


@dataclass
class Tree:
    size: int
    left: Tree | None = None


@dataclass
class Item:
    a: int


@dataclass
class Item2:
    a: float
    c: str = ""


@dataclass
class Outer:
    items: list[Item]


@dataclass
class Outer2:
    items: list[Item2]
    more: dict[str, Item2] | None = None


class Kind(enum.Enum):
    BUY = "buy"


TEXT, TIME = shape(("a", str)), shape(("a", datetime))
BASE: Any = shape(("a", int), ("b", str))
WITH = ("c", int, 0)

READABLE = [
    (BASE, shape(("a", int), ("b", str), WITH), BASE(1, "x")),
    (BASE, make_dataclass("Renamed", [("a", int), ("b", str)]), BASE(1, "x")),
    (BASE, shape(("a", float), ("b", str | None)), BASE(1, "x")),
    (BASE, Any, BASE(1, "x")),
    (shape(("a", Literal["x"])), shape(("a", Literal["x", "y"])), shape(("a", str))("x")),
    (shape(("a", Literal["x"])), shape(("a", str)), shape(("a", str))("x")),
    (Circle, Circle | Square, Circle(1)),
    (list[int], list[float], [1]),
    (dict[str, int], dict[str, int | None], {"a": 1}),
    (Point, Point3, Point(1)),
    (Tree, Tree, Tree(1, Tree(2))),
    (Outer, Outer2, Outer([Item(1)])),
    (shape(("a", Kind)), shape(("a", str)), shape(("a", Kind))(Kind.BUY)),
    (dict[str, int], dict[str | int, int], {"a": 1}),
    (shape(("a", datetime)), shape(("a", datetime | None)), shape(("a", datetime))(datetime.now(UTC))),
]

REFUSED = [
    (BASE, shape(("a", int)), "'b' of the value is gone"),
    (BASE, shape(("a", int), ("b", str), ("c", int)), "'c' of the value is new and has no default"),
    (shape(("a", int, 0)), shape(("a", int)), "'a' of the value must now be there"),
    (BASE, shape(("a", str), ("b", str)), "'a' was integer and is string"),
    (BASE, shape(("a", int), ("amount", str, "")), "'b' of the value is gone"),
    (shape(("a", int | None)), shape(("a", int)), "may have been null"),
    (shape(("a", Literal["x", "y"])), shape(("a", Literal["x"])), "'y'"),
    (shape(("a", str)), shape(("a", Literal["x"])), "is one of"),
    (Circle | Square, Circle, "Square"),
    (list[int], list[str], "an item of the value was integer"),
    (dict[str, int], dict[str, str], "maps to was integer"),
    (Point, Tall, "another number of items"),
    (Any, BASE, "any shape"),
    (int, str, "integer of 64 bits became string"),
    (int, BASE, "became msgpack of Shape"),
    (tuple[int, str], tuple[int, int], "item 1"),
    (shape(("a", bytes)), shape(("a", str)), "contentEncoding"),
    (shape(("a", date)), shape(("a", datetime)), "format"),
    (shape(("a", date)), shape(("a", str)), "format"),
    (shape(("a", Decimal)), shape(("a", datetime)), "format"),
    (shape(("a", UUID)), shape(("a", time)), "format"),
    (shape(("a", timedelta)), shape(("a", datetime)), "format"),
    (shape(("a", Literal["x"])), shape(("a", bytes)), "one of"),
    (shape(("a", Literal["x"])), shape(("a", date)), "one of"),
    (shape(("a", Kind)), shape(("a", Decimal)), "one of"),
    (shape(("a", Kind)), shape(("a", UUID)), "one of"),
    (shape(("a", Kind)), shape(("a", timedelta)), "one of"),
    (shape(("a", int)), shape(("a", Annotated[float, msgspec.Meta(ge=5)])), "minimum"),
]
DETAILS_REFUSED = [
    (shape(("a", str)), shape(("a", datetime)), "$.a was text and is datetime"),
    (shape(("a", str)), shape(("a", time | None)), "$.a was text and is time"),
    (shape(("a", datetime)), shape(("a", str)), "$.a was datetime and is text"),
    (shape(("a", Kind)), shape(("a", datetime)), "$.a was choice and is datetime"),
    (dict[str, int], dict[int, int], "$.<key> was text and is int"),
    (dict[int, int], dict[str, int], "$.<key> was int and is text"),
    (dict[date, int], dict[str, int], "$.<key> was date and is text"),
    (list[dict[str, int]], list[dict[int, int]], "$[].<key>"),
    (dict[str, TEXT], dict[str, TIME], "$.*.a"),  # type: ignore[valid-type]
    (tuple[int, str], tuple[int, datetime], "$[1]"),
]


@pytest.mark.parametrize("wire", ["json", "msgpack"])
@pytest.mark.parametrize(("old", "new", "value"), READABLE)
def test_what_is_said_to_be_readable_is(old: Any, new: Any, value: Any, wire: Any) -> None:
    writing, reading = codec_for(old, wire), codec_for(new, wire)
    assert obstacles(reading.describe(), writing.describe()) == []
    reading.decode(writing.encode(value))


@pytest.mark.parametrize(("old", "new", "why"), REFUSED)
def test_what_may_not_be_readable_is_said_with_its_place(old: Any, new: Any, why: str) -> None:
    found = obstacles(codec_for(new, "msgpack").describe(), codec_for(old, "msgpack").describe())
    assert any(why in each for each in found), found


@pytest.mark.parametrize(("old", "new", "why"), DETAILS_REFUSED)
def test_what_schemas_do_not_tell_is_told_by_details(old: Any, new: Any, why: str) -> None:
    now, then = details_of(codec_for(new, "msgpack")), details_of(codec_for(old, "msgpack"))
    assert any(why in each for each in detail_obstacles(now, then))
    assert not list(detail_obstacles(now, None))
    assert not list(detail_obstacles(now, now))


@pytest.mark.parametrize(("old", "new", "_value"), READABLE)
def test_details_have_nothing_against_what_is_readable(old: Any, new: Any, _value: Any) -> None:
    now, then = details_of(codec_for(new, "msgpack")), details_of(codec_for(old, "msgpack"))
    assert not list(detail_obstacles(now, then))


def test_another_wire_is_another_format() -> None:
    assert obstacles(codec_for(BASE, "json").describe(), codec_for(BASE, "msgpack").describe())


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Payment", "fields": list(fields), **more}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


CENTS = field("cents", "int")
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}

AVRO_READABLE = [
    (
        record(CENTS),
        record(CENTS, field("shop", "string", default="?")),
        {"cents": 5},
        {"cents": 5, "shop": "?"},
    ),
    (record(CENTS, field("shop", "string")), record(CENTS), {"cents": 5, "shop": "s"}, {"cents": 5}),
    (record(CENTS), record(field("cents", "long")), {"cents": 5}, {"cents": 5}),
    (record(CENTS), record(field("amount", "int", aliases=["cents"])), {"cents": 5}, {"amount": 5}),
    (record(CENTS), record(field("cents", ["null", "int"])), {"cents": 5}, {"cents": 5}),
    (
        record(field("e", ENUM)),
        record(field("e", {**ENUM, "symbols": ["B", "A", "C"]})),
        {"e": "A"},
        {"e": "A"},
    ),
    (
        record(field("xs", {"type": "array", "items": "int"})),
        record(field("xs", {"type": "array", "items": "double"})),
        {"xs": [1]},
        {"xs": [1.0]},
    ),
    (
        record(field("m", {"type": "map", "values": "int"})),
        record(field("m", {"type": "map", "values": "long"})),
        {"m": {"a": 1}},
        {"m": {"a": 1}},
    ),
]

AVRO_REFUSED = [
    (record(CENTS), record(CENTS, field("shop", "string")), "'shop' of the value is new and has no default"),
    (record(CENTS), record(field("cents", "string")), "'cents' was int and is string"),
    (record(field("cents", "long")), record(CENTS), "'cents' was long and is int"),
    (record(field("cents", ["null", "int"])), record(CENTS), "'cents' was null"),
    (record(CENTS), {**record(CENTS), "name": "Other"}, "was the record 'Payment'"),
    (record(field("e", ENUM)), record(field("e", {**ENUM, "symbols": ["A"]})), "may have been 'B'"),
    (record(field("u", ["int", "string"])), record(field("u", ["int", "null"])), "string"),
    (
        record(field("f", {"type": "fixed", "name": "F", "size": 2})),
        record(field("f", {"type": "fixed", "name": "F", "size": 3})),
        "size",
    ),
]


@pytest.mark.parametrize(("old", "new", "value", "read"), AVRO_READABLE)
def test_avro_resolves_what_its_rules_allow(old: Any, new: Any, value: Any, read: Any) -> None:
    writing, reading = AvroCodec(old), AvroCodec(new)
    assert obstacles(reading.describe(), writing.describe()) == []
    assert ResolvingAvro(reading, old).decode(writing.encode(value)) == read


@pytest.mark.parametrize(("old", "new", "why"), AVRO_REFUSED)
def test_avro_refuses_what_its_rules_refuse(old: Any, new: Any, why: str) -> None:
    found = obstacles(AvroCodec(new).describe(), AvroCodec(old).describe())
    assert any(why in each for each in found), found
