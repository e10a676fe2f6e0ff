"""The bytes of every type of state: a change here is a new format version."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.codec.ordered import OrderedFloat, OrderedInteger
from stateflow.errors import DecodeError
from stateflow.state.declare import declared_fields
from stateflow.state.layout import routing_key
from stateflow.state.path import first_step, instant, instant_of, split_path, step
from stateflow.state.scope import Scope
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryReader

KEY = "00000002" + b"ab".hex()


class Every:
    hits: sf.Counter = sf.state()
    forgetful: sf.Counter = sf.state(ttl=timedelta(days=1))
    tags: sf.SetOf[int] = sf.state()
    fresh: sf.SetOf[str] = sf.state(ttl=timedelta(days=1))
    peak: sf.Reducing[int] = sf.state(reduce=max, initial=0)
    visits: sf.MapOf[str, sf.MapOf[int, int]] = sf.state()
    price: sf.Versioned[int] = sf.state(max_versions=3)
    scores: sf.MapOf[int, str] = sf.state()


WRITES: dict[str, tuple[Callable[[Any], object], list[tuple[str, str]]]] = {
    "hits": (lambda handle: handle.subtract(2), [(b"ab".hex(), "fffffffffffffffe")]),
    "forgetful": (lambda handle: handle.add(), [(b"ab".hex(), "0000000000000009" + "0000000000000001")]),
    "tags": (
        lambda handle: handle.update([5, -1]),
        [(KEY + "7fffffffffffffff", ""), (KEY + "8000000000000005", "")],
    ),
    "fresh": (lambda handle: handle.add("x"), [(KEY + b"x".hex(), "0000000000000009")]),
    "peak": (lambda handle: handle.add(3), [(b"ab".hex(), "0000000000000003")]),
    "visits": (
        lambda handle: handle["a\0"].put(1, 2),
        [(KEY + "6100ff0001" + "8000000000000001", "0000000000000002")],
    ),
    "price": (
        lambda handle: (handle.set(7), handle.clear(at=10)),
        [(KEY + "7ffffffffffffff5", "00"), (KEY + "7ffffffffffffff6", "01" + "0000000000000007")],
    ),
    "scores": (lambda handle: handle.put(-1, "low"), [(KEY + "7fffffffffffffff", b"low".hex())]),
}


@pytest.mark.parametrize("attribute", WRITES)
def test_entries_of_every_type(attribute: str) -> None:
    (field,) = (field for field in declared_fields(Every, "op") if field.attribute == attribute)
    store, scope = DirtyStore(MemoryReader()), Scope()
    scope.key, scope.timestamp_ms = b"ab", 9
    write, expected = WRITES[attribute]
    handle, _ = field.bind(store, scope)
    write(handle)
    assert [(key.hex(), value.hex()) for key, value in store.scan()] == expected
    layout = field.entry("stage", sf.String).layout
    assert {routing_key(layout, key) for key, _ in store.scan()} == {b"ab"}


def test_the_catalog_describes_every_type() -> None:
    entries = {field.attribute: field.entry("stage", sf.String) for field in declared_fields(Every, "op")}
    integer, ordered = {"codec": "integer", "bits": 64}, {"codec": "ordered-integer", "bits": 64}
    assert {name: (entry.kind, entry.layout, entry.value_codec) for name, entry in entries.items()} == {
        "hits": ("counter", "plain", integer),
        "forgetful": ("counter", "plain", {"codec": "timestamped", "value": integer}),
        "tags": ("set", "prefixed", {"codec": "none", "element": ordered}),
        "fresh": (
            "set",
            "prefixed",
            {"codec": "timestamped", "value": {"codec": "none"}, "element": {"codec": "string"}},
        ),
        "peak": ("reducing", "plain", integer),
        "visits": ("nested", "prefixed", {**integer, "map_keys": [{"codec": "string"}, ordered]}),
        "price": ("versioned", "prefixed", {"codec": "optional", "value": integer}),
        "scores": ("map", "prefixed", {"codec": "string", "map_key": ordered}),
    }
    assert entries["price"].max_length == 3


def test_steps_of_a_path_sort_as_what_they_hold() -> None:
    parts = [b"", b"\0", b"\0\0", b"\0\x01", b"\x01", b"a", b"a\0", b"a\0b", b"a\x01", b"ab", b"\xff"]
    assert parts == sorted(parts)
    written = [step(part) for part in parts]
    assert written == sorted(written)
    for part in parts:
        assert first_step(step(part) + b"\x00\x01rest") == (part, b"\x00\x01rest")
    assert list(split_path(step(b"a") + step(b"\0") + b"c", 3)) == [b"a", b"\0", b"c"]
    with pytest.raises(DecodeError, match="does not end"):
        first_step(b"a\0")


def test_instants_sort_the_newest_first() -> None:
    times = [-(1 << 63), -5, 0, 1, 1_700_000_000_000, (1 << 63) - 1]
    written = [instant(at_ms) for at_ms in times]
    assert written == sorted(written, reverse=True)
    assert [instant_of(data) for data in written] == times
    assert instant(1_700_000_000_000).hex() == "7ffffe74301a97ff"
    with pytest.raises(DecodeError):
        instant_of(b"short")


def test_ordered_numbers() -> None:
    assert OrderedInteger.encode(-1).hex() == "7fffffffffffffff"
    assert OrderedFloat.encode(1.0).hex() == "bff0000000000000"
    assert OrderedFloat.encode(-1.0).hex() == "400fffffffffffff"
    assert OrderedFloat.encode(-0.0) == OrderedFloat.encode(0.0)
