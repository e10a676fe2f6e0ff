"""Equal keys have equal bytes, in whatever order their sets and dicts come."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import permutations
from typing import Any, NamedTuple

import msgspec
import pytest

from stateflow import App
from stateflow.codec import Codec, Json, JsonOf, MsgPack, MsgPackOf, String, Windowed, WindowedCodec
from stateflow.codec.avro import AvroCodec
from stateflow.codec.confluent import ConfluentAvro
from stateflow.codec.ordered import key_codec_for
from stateflow.codec.schema_registry import FixedSchemas
from stateflow.codec.table import key_from_description
from stateflow.errors import EncodeError
from stateflow.testing import TestDriver


@dataclass(frozen=True)
class Basket:
    shop: str
    goods: frozenset[str]

    def __post_init__(self) -> None:
        assert isinstance(self.goods, frozenset), "not called for a copy"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Struct(msgspec.Struct, frozen=True, tag="s", rename="camel"):
    some_goods: frozenset[str]
    counts: dict[int, int] = {}


class Pair(NamedTuple):
    left: frozenset[str]
    right: dict[str, int]


OF_OTHER_PROCESSES = """
from stateflow.codec import JsonOf, MsgPackOf
from dataclasses import dataclass

@dataclass(frozen=True)
class Basket:
    shop: str
    goods: frozenset[str]

WORDS = [f"word-{number}" for number in range(40)]
for of in (JsonOf, MsgPackOf):
    print(of(frozenset[str]).for_keys().encode(frozenset(WORDS)))
    print(of(Basket).for_keys().encode(Basket("x", frozenset(WORDS))))
"""


def test_each_process_writes_a_set_alike() -> None:
    told = set()
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", OF_OTHER_PROCESSES],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        told.add(ran.stdout)
    assert len(told) == 1


@pytest.mark.parametrize("make", [JsonOf, MsgPackOf])
@pytest.mark.parametrize(
    ("type_", "of"),
    [
        (dict[str, int], lambda items: dict.fromkeys(items, 1)),
        (dict[int, str], lambda items: dict.fromkeys(map(int, items), "x")),
        (tuple[dict[str, int], int], lambda items: (dict.fromkeys(items, 1), 2)),
        (Pair, lambda items: Pair(frozenset(items), dict.fromkeys(items, 1))),
        (Struct, lambda items: Struct(frozenset(items), dict.fromkeys(map(int, items), 1))),
        (list[dict[str, Any]], lambda items: [{each: {"a": 1} for each in items}]),
    ],
)
def test_a_dict_is_written_alike_however_it_was_filled(make: Any, type_: Any, of: Any) -> None:
    codec = make(type_).for_keys()
    values = [of(items) for items in permutations(["1", "2", "30"])]
    assert len({codec.encode(value) for value in values}) == 1
    assert len(set(codec.encode_many(values))) == 1
    assert codec.decode(codec.encode(values[0])) == values[0]
    assert codec.describe() == make(type_).describe()


@pytest.mark.parametrize(
    ("type_", "value", "told"),
    [
        (frozenset[int | str | None], frozenset([None, "b", 3]), b'["b",3,null]'),
        (frozenset[frozenset[str]], frozenset([frozenset("ba"), frozenset("dc")]), b'[["a","b"],["c","d"]]'),
        (frozenset[Colour], frozenset(Colour), b'["blue","red"]'),
        (frozenset[str], frozenset(["tea", "a!", "a", "bread"]), b'["a","a!","bread","tea"]'),
        (dict[str, int], {"a!": 1, "a": 2}, b'{"a":2,"a!":1}'),
        (frozenset[Basket], frozenset([Basket("x", frozenset("ba"))]), b'[{"shop":"x","goods":["a","b"]}]'),
        (dict[Colour, int], {Colour.RED: 1, Colour.BLUE: 2}, b'{"blue":2,"red":1}'),
        (Struct, Struct(frozenset("ba")), b'{"type":"s","someGoods":["a","b"],"counts":{}}'),
    ],
)
def test_what_python_cannot_compare_is_sorted_by_its_bytes(type_: Any, value: Any, told: bytes) -> None:
    codec = JsonOf(type_).for_keys()
    assert codec.encode(value) == told
    assert codec.decode(told) == value


@pytest.mark.parametrize("codec", [Json, MsgPack])
def test_untyped_keys_are_sorted_as_well(codec: Codec[Any]) -> None:
    stable = codec.for_keys()
    assert stable.encode({"b": 1, "a": [{"d": 1, "c": 2}]}) == stable.encode(
        {"a": [{"c": 2, "d": 1}], "b": 1}
    )
    assert stable.encode("text") == codec.encode("text")
    assert stable == codec
    assert stable.for_keys() is stable


@pytest.mark.parametrize("type_", [str, int, tuple[str, int], list[int], bytes | None])
def test_types_without_sets_and_dicts_keep_their_encoder(type_: Any) -> None:
    codec = MsgPackOf(type_)
    assert codec.for_keys() is codec


def test_fields_stay_in_the_order_in_which_they_are_declared() -> None:
    assert JsonOf(Basket).for_keys().encode(Basket("x", frozenset("b"))) == b'{"shop":"x","goods":["b"]}'


def test_map_keys_and_elements_of_sets_and_windowed_keys() -> None:
    two = ({"b": 1, "a": 2}, {"a": 2, "b": 1})
    codec = key_codec_for(dict[str, int])
    assert codec.encode(two[0]) == codec.encode(two[1])
    windowed = WindowedCodec(JsonOf(dict[str, int]), 10).for_keys()
    one, other = (windowed.encode(Windowed(each, 0, 10)) for each in two)
    assert one == other


AVRO: Mapping[str, Any] = {
    "type": "record",
    "name": "Key",
    "fields": [
        {"name": "z", "type": {"type": "map", "values": "int"}},
        {"name": "a", "type": {"type": "array", "items": "string"}},
    ],
}


def test_maps_of_avro_are_sorted_and_sets_refused() -> None:
    plain = AvroCodec(AVRO)
    for codec in (plain.for_keys(), ConfluentAvro(AVRO, FixedSchemas({1: AVRO}), subject="x").for_keys()):
        one = codec.encode({"z": {"b": 1, "a": 2}, "a": ["y", "x"]})
        assert one == codec.encode({"a": ["y", "x"], "z": {"a": 2, "b": 1}})
        assert codec.decode(one) == {"z": {"a": 2, "b": 1}, "a": ["y", "x"]}
        with pytest.raises(EncodeError, match="a set has no order"):
            codec.encode({"z": {}, "a": {"x"}})
    assert plain.for_keys() == plain


def test_a_topic_writes_its_keys_stable() -> None:
    topic = App("baskets").topic("out", key=dict[str, int], value=String)
    assert topic.key.encode({"b": 1, "a": 2}) == b'{"a":2,"b":1}'


def test_records_of_one_set_are_counted_together() -> None:
    app = App("baskets")
    lines = app.topic("lines", value=list[str])
    out = app.topic("out", key=frozenset[str], value=int)
    by_goods = app.stream(lines).key_by(lambda goods: frozenset(goods), name="by", key=frozenset[str])
    by_goods.count(name="n").to(out)
    orders = [list(each) for each in permutations(["8", "16", "24", "32"])]  # any order of the same
    driver = TestDriver(app)
    for goods in orders:
        driver.send(lines, goods)
    assert driver.state("n", key=frozenset(orders[0])) == len(orders)


def test_tools_write_keys_as_the_application_does() -> None:
    untyped = key_from_description(MsgPackOf(dict[str, int]).describe())
    assert untyped.encode({"b": 1, "a": 2}) == MsgPackOf(dict[str, int]).for_keys().encode({"a": 2, "b": 1})
    declared = key_from_description(JsonOf(Basket).describe())
    assert declared.encode({"shop": "x", "goods": ["a"]}) == JsonOf(Basket).encode(
        Basket("x", frozenset("a"))
    )


def test_dedup_knows_a_dict_that_was_filled_in_another_order() -> None:
    app = App("dedup")
    lines = app.topic("lines", key=String, value=Json)
    out = app.topic("out", key=String, value=Json)
    app.stream(lines, co_partitioned=True).dedup(name="once", within=timedelta(hours=1)).to(out)
    driver = TestDriver(app)
    driver.send(lines, {"a": 1, "b": 2}, key="k")
    driver.send(lines, {"b": 2, "a": 1}, key="k")
    assert len(driver.output(out)) == 1
