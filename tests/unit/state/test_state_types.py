"""Value, ListOf and MapOf against plain Python objects, over a real dirty map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stateflow.codec import Codec, Integer, JsonOf, MsgPackOf, String
from stateflow.errors import EncodeError, GraphError
from stateflow.state.declaration import state
from stateflow.state.declare import declared_fields
from stateflow.state.expiry import ENTRIES_PER_STEP, Expiry
from stateflow.state.layout import routing_key
from stateflow.state.listof import ListOf
from stateflow.state.mapof import MapOf
from stateflow.state.scope import Scope
from stateflow.state.value import Value
from stateflow.state.view import StoreView
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryReader

KEYS = st.sampled_from([b"", b"a", b"aa", b"b\xff"])


def new_store() -> DirtyStore:
    return DirtyStore(MemoryReader())


def value_of(
    codec: Codec[Any] = Integer, default: Any = None, ttl_ms: int | None = None
) -> tuple[Value[Any], Scope, DirtyStore]:
    store, scope = new_store(), Scope()
    expiry = None if ttl_ms is None else Expiry(store, ttl_ms)
    return Value(store, codec, scope, default, expiry), scope, store


def test_a_value_is_per_key_and_falls_back_to_its_default() -> None:
    value, scope, store = value_of(default=7)
    scope.key = b"a"
    value.set(1)
    assert (value.get(), value.is_set) == (1, True)
    scope.key = b"b"
    assert (value.get(), value.is_set) == (7, False)
    scope.key = b"a"
    value.clear()
    assert value.get() == 7
    assert store.changes() == [(b"a", None)]


def test_what_is_read_is_a_copy() -> None:
    value, _, _ = value_of(MsgPackOf(dict[str, int]), default={"a": 1})
    value.get()["b"] = 2
    assert value.get() == {"a": 1}
    value.set({"c": 3})
    value.get()["d"] = 4
    assert value.get() == {"c": 3}


def test_setting_none_clears_and_a_wrong_value_is_refused() -> None:
    value, _, _ = value_of()
    value.set(5)
    value.set(None)
    assert value.get() is None
    with pytest.raises(EncodeError):
        value.set("text")
    assert not value.is_set


class ListMachine(RuleBasedStateMachine):
    max_length: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.store, self.scope = new_store(), Scope()
        self.real: ListOf[int] = ListOf(self.store, Integer, self.scope, self.max_length)
        self.model: dict[bytes, list[int]] = {}

    @rule(key=KEYS, values=st.lists(st.integers(0, 99), max_size=7))
    def extend(self, key: bytes, values: list[int]) -> None:
        self.scope.key = key
        self.real.extend(values)
        grown = self.model.get(key, []) + values
        self.model[key] = grown if self.max_length is None else grown[-self.max_length :]

    @rule(key=KEYS)
    def clear(self, key: bytes) -> None:
        self.scope.key = key
        self.real.clear()
        self.model[key] = []

    @rule(key=KEYS, position=st.integers(-3, 3), value=st.integers(0, 99))
    def replace(self, key: bytes, position: int, value: int) -> None:
        self.scope.key = key
        model = self.model.get(key, [])
        if -len(model) <= position < len(model):
            self.real[position] = value
            model[position] = value
            assert self.real[position] == value
        else:
            with pytest.raises(IndexError):
                self.real[position] = value
            with pytest.raises(IndexError):
                self.real[position]

    @invariant()
    def equal(self) -> None:
        for key, expected in self.model.items():
            self.scope.key = key
            assert list(self.real) == expected
            assert len(self.real) == len(expected)

    @invariant()
    def nothing_is_left_behind(self) -> None:
        expected = sum(len(values) + 1 for values in self.model.values() if values)
        assert len(list(self.store.scan())) == expected
        assert {routing_key("prefixed", key) for key, _ in self.store.scan()} <= self.model.keys()


class BoundedListMachine(ListMachine):
    max_length = 4


class MapMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store, self.scope = new_store(), Scope()
        self.real: MapOf[str, int] = MapOf(self.store, (String, Integer), self.scope, None)
        self.model: dict[bytes, dict[str, int]] = {}

    @rule(key=KEYS, name=st.text(max_size=3), value=st.integers(0, 99))
    def put(self, key: bytes, name: str, value: int) -> None:
        self.scope.key = key
        self.real.put(name, value)
        self.model.setdefault(key, {})[name] = value

    @rule(key=KEYS, name=st.text(max_size=3), value=st.integers(0, 99))
    def merge(self, key: bytes, name: str, value: int) -> None:
        self.scope.key = key
        own = self.model.setdefault(key, {})
        own[name] = own[name] + value if name in own else value
        assert self.real.merge(name, value, int.__add__) == own[name]

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key, own in self.model.items() if own]))
        name = data.draw(st.sampled_from(sorted(self.model[key])))
        self.scope.key = key
        self.real.remove(name)
        del self.model[key][name]

    @rule(key=KEYS)
    def clear(self, key: bytes) -> None:
        self.scope.key = key
        self.real.clear()
        self.model[key] = {}

    @invariant()
    def equal(self) -> None:
        for key, expected in self.model.items():
            self.scope.key = key
            assert dict(self.real.items()) == expected
            assert len(self.real) == len(expected)
            assert all(name in self.real and self.real.get(name) == expected[name] for name in expected)
            assert self.real.get("absent", -1) == -1
            assert sorted(self.real.values()) == sorted(expected.values())


TestList = ListMachine.TestCase
TestBoundedList = BoundedListMachine.TestCase
TestMap = MapMachine.TestCase
for case in (TestList, TestBoundedList, TestMap):
    case.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_appending_writes_the_element_and_not_the_list() -> None:
    store, scope = new_store(), Scope()
    many: ListOf[int] = ListOf(store, Integer, scope, None)
    many.extend(range(1000))
    store.committed()
    many.append(1000)
    assert len(store.changes()) == 2


# --- time to live -------------------------------------------------------------------------------------


def test_an_expired_value_is_gone_at_once_and_deleted_later() -> None:
    value, scope, store = value_of(default=0, ttl_ms=100)
    scope.key, scope.timestamp_ms = b"a", 1000
    value.set(5)
    scope.reached_ms = 1099
    assert value.get() == 5
    scope.reached_ms = 1100
    assert value.get() == 0
    assert not value.is_set
    expiry = Expiry(store, 100)
    expiry.advance(1099)
    assert store.get(b"a") is not None
    expiry.advance(1200)
    assert store.get(b"a") is None


def test_a_pass_deletes_everything_expired_in_bounded_steps() -> None:
    store = new_store()
    expiry = Expiry(store, 1000)
    for number in range(3 * ENTRIES_PER_STEP):
        store.put(b"%06d" % number, expiry.stamped(b"x", 0 if number % 2 else 5000))
    for step in range(1, 4):
        expiry.advance(2000)
        deleted = sum(value is None for _, value in store.changes())
        assert deleted == step * ENTRIES_PER_STEP // 2
    assert len(list(store.scan())) == 3 * ENTRIES_PER_STEP // 2


def test_a_map_entry_has_its_own_time() -> None:
    store, scope = new_store(), Scope()
    entries: MapOf[str, int] = MapOf(store, (String, Integer), scope, Expiry(store, 100))
    scope.key, scope.timestamp_ms = b"k", 0
    entries.put("old", 1)
    scope.timestamp_ms, scope.reached_ms = 90, 100
    entries.put("new", 2)
    assert entries.items() == [("new", 2)]
    assert len(entries) == 1
    assert entries.merge("old", 5, int.__add__) == 5


# --- declaring ----------------------------------------------------------------------------------------


@dataclass
class Payment:
    shop: str
    cents: int


class Declared:
    total: Value[int] = state(default=0, ttl=timedelta(days=30))
    latest: Value[Payment | None] = state()
    recent: ListOf[Payment] = state(max_length=3)
    by_shop: MapOf[str, int] = state(codec=JsonOf(int), version=2)


def test_declared_state_becomes_stores_that_describe_themselves() -> None:
    entries = {
        field.attribute: field.entry("by-card", String) for field in declared_fields(Declared, "fraud")
    }
    assert [(entry.name, entry.kind, entry.layout) for entry in entries.values()] == [
        ("fraud-total", "value", "plain"),
        ("fraud-latest", "value", "plain"),
        ("fraud-recent", "list", "prefixed"),
        ("fraud-by_shop", "map", "prefixed"),
    ]
    assert entries["total"].retention_ms == 30 * 24 * 3600 * 1000
    assert entries["total"].value_codec == {
        "codec": "timestamped",
        "value": {"codec": "integer", "bits": 64},
    }
    assert entries["by_shop"].value_codec["map_key"] == {"codec": "string"}
    assert entries["by_shop"].version == 2
    assert {entry.stage for entry in entries.values()} == {"by-card"}


def test_a_view_reads_every_kind_without_the_class() -> None:
    scope = Scope()
    scope.key, scope.timestamp_ms = b"c1", 5
    views = {}
    writes: dict[str, Callable[[Any], None]] = {
        "total": lambda handle: handle.set(9),
        "latest": lambda handle: handle.set(Payment("s", 1)),
        "recent": lambda handle: handle.extend([Payment("s", 1), Payment("t", 2)]),
        "by_shop": lambda handle: handle.put("s", 3),
    }
    for field in declared_fields(Declared, "fraud"):
        store = new_store()
        handle, _ = field.bind(store, scope)
        writes[field.attribute](handle)
        views[field.attribute] = StoreView(field.entry("by-card", String), store)
    assert views["total"].get("c1") == 9
    assert views["latest"].get("c1") == {"shop": "s", "cents": 1}
    assert views["recent"].get("c1") == [{"shop": "s", "cents": 1}, {"shop": "t", "cents": 2}]
    assert views["by_shop"].get("c1") == {"s": 3}
    assert all(view.get("c2") is None for view in views.values())
    assert list(views["total"].scan()) == [("c1", None, 9)]
    assert [(key, part) for key, part, _ in views["recent"].scan()] == [("c1", 0), ("c1", 1)]
    assert list(views["by_shop"].scan()) == [("c1", "s", 3)]


class NoDefault:
    total: Value[int] = state()


class NoAnnotation:
    total = state(default=0)


class NotDeclared:
    total: Value[int]


class MapWithDefault:
    by_shop: MapOf[str, int] = state(default={})


class ValueWithLength:
    total: Value[int] = state(default=0, max_length=3)


class WrongDefault:
    total: Value[int] = state(default="text")


class ShortTtl:
    total: Value[int] = state(default=0, ttl=timedelta(microseconds=5))


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (NoDefault, "no default"),
        (NoAnnotation, "no annotation"),
        (NotDeclared, "never declared"),
        (MapWithDefault, "starts empty"),
        (ValueWithLength, "max_length"),
        (ShortTtl, "fraction of a millisecond"),
    ],
)
def test_state_that_cannot_be_is_refused_with_what_to_do(owner: type, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        declared_fields(owner, "op")


def test_a_default_that_the_codec_refuses_is_found_at_once() -> None:
    with pytest.raises(EncodeError):
        declared_fields(WrongDefault, "op")
