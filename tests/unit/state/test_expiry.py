"""Time to live per state and per write: never read when expired, deleted oldest first, a bounded number per turn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateflow.codec import String
from stateflow.codec.timed import NEVER_MS, ExpiringCodec
from stateflow.errors import GraphError
from stateflow.state.declaration import state
from stateflow.state.declare import declared_fields
from stateflow.state.decoding import StoreDecoder
from stateflow.state.expiry import ENTRIES_PER_STEP, Expiry
from stateflow.state.listof import ListOf
from stateflow.state.mapof import MapOf
from stateflow.state.scope import Scope
from stateflow.state.setof import SetOf
from stateflow.state.value import Value
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryReader

SECOND = timedelta(seconds=1)


def new_store() -> DirtyStore:
    return DirtyStore(MemoryReader())


def live_keys(store: DirtyStore) -> set[bytes]:
    return {key for key, _ in store.scan()}


class Counted:
    """A store that counts the entries a scan hands out."""

    def __init__(self, store: DirtyStore) -> None:
        self.store, self.scanned = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def scan(self, first: bytes = b"", after: bytes | None = None) -> Any:
        for entry in self.store.scan(first, after):
            self.scanned += 1
            yield entry


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9), st.integers(1, 60)),
        st.tuples(st.just("delete"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("move"), st.just(0), st.integers(0, 25)),
        st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    ),
    max_size=50,
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([2, 5, 1000]), st.booleans())
def test_expired_is_never_read_and_always_deleted(
    steps: list[tuple[str, int, int]], entries_max: int, near: bool
) -> None:
    store = new_store()
    expiry = Expiry(store, 30_000, per_write=True, entries_max=entries_max)
    expires: dict[bytes, int] = {}
    now_ms = 0
    for verb, number, seconds in steps:
        key = b"%d" % number
        if verb == "put":
            store.put(key, expiry.stamped(b"x", now_ms, seconds * 1000))
            expires[key] = now_ms + seconds * 1000
            if near:
                expiry.look_near(key)
        elif verb == "delete":
            store.delete(key)
            expires.pop(key, None)
        elif verb == "reopen":
            expiry = Expiry(store, 30_000, per_write=True, entries_max=entries_max)
        else:
            now_ms += seconds * 1000
            expiry.advance(now_ms)
        alive = {key for key, at_ms in expires.items() if at_ms > now_ms}
        assert {key for key in expires if expiry.live(store.get(key), now_ms) is not None} == alive
        assert alive <= live_keys(store)
    for _ in range(100):
        now_ms += 10_000
        expiry.advance(now_ms)
    assert live_keys(store) == set()


def test_a_mass_expiry_goes_oldest_first_in_bounded_turns() -> None:
    store = new_store()
    expiry = Expiry(store, 1_000_000)
    expiry.advance(0)
    total = 3 * ENTRIES_PER_STEP
    for number in range(total):
        store.put(b"%06d" % ((number * 7919) % total), expiry.stamped(b"x", number))
    expiry.advance(1_000_000)  # the first entry is due: a pass begins, and learns of the others
    for _ in range(4):
        expiry.advance(1_000_000)
    assert len(live_keys(store)) == total - 1
    for turn in range(1, 4):
        expiry.advance(2_000_000)
        left = sorted(int.from_bytes(stored[:8], "big") for _, stored in store.scan())
        assert left == list(range(turn * ENTRIES_PER_STEP + 1, total)), "what is left is the youngest"


def test_a_store_that_fits_the_index_is_looked_through_once_per_time_to_live() -> None:
    store = Counted(new_store())
    expiry = Expiry(store, 100_000)
    for second in range(1_000):
        for key in range(5):
            store.put(b"%d" % key, expiry.stamped(b"x", second * 1000))
        expiry.advance(second * 1000)
    assert store.scanned <= 5 * 12
    assert live_keys(store.store) == {b"0", b"1", b"2", b"3", b"4"}


def test_short_lived_tasks_get_everywhere() -> None:
    store = new_store()
    writing = Expiry(store, 1_000)
    keys = [b"%05d" % number for number in range(20_000)]
    for key in keys:
        store.put(key, writing.stamped(b"x", 0))
    for lifetime in range(60):
        expiry = Expiry(store, 1_000)
        expiry.look_near(keys[(lifetime * 7_919) % len(keys)])
        expiry.advance(5_000)
    assert len(live_keys(store)) < 2_000


class Declared:
    once: Value[str | None] = state(ttl_per_write=True)
    often: Value[str] = state(default="-", ttl=10 * SECOND, ttl_per_write=True)
    words: MapOf[str, str] = state(ttl_per_write=True)
    tags: SetOf[str] = state(ttl_per_write=True)
    log: ListOf[str] = state(ttl_per_write=True, max_length=4)
    aging: ListOf[str] = state(ttl=10 * SECOND)
    plain: Value[str] = state(default="-", ttl=10 * SECOND)
    flat: ListOf[str] = state()


class World:
    """Every declared state, bound, under one key and a clock of event time."""

    def __init__(self) -> None:
        self.scope = Scope()
        self.scope.key = b"k"
        self.stores: dict[str, DirtyStore] = {}
        self.handles: dict[str, Any] = {}
        self.advancing: list[Any] = []
        self.fields = {field.attribute: field for field in declared_fields(Declared, "op")}
        for name, field in self.fields.items():
            self.stores[name] = new_store()
            self.handles[name], advancing = field.bind(self.stores[name], self.scope)
            if advancing is not None:
                self.advancing.append(advancing)
        self.at(0)

    def at(self, second: int) -> None:
        self.scope.timestamp_ms = self.scope.mark_ms = second * 1000
        for advancing in self.advancing:
            advancing.advance(second * 1000)

    def sizes(self) -> dict[str, int]:
        return {name: size for name, store in self.stores.items() if (size := len(live_keys(store)))}


def test_each_write_has_its_own_time() -> None:
    world = World()
    once, often, words, tags, log = (world.handles[n] for n in ("once", "often", "words", "tags", "log"))
    once.set("for ever")
    often.set("as declared")
    words.put("short", "1", ttl=5 * SECOND)
    words.put("long", "2")
    tags.add("short", ttl=5 * SECOND)
    log.append("short", ttl=5 * SECOND)
    log.extend(["long", "longer"], ttl=20 * SECOND)
    world.at(5)
    assert (words.items(), list(tags), list(log), len(log), log[0]) == (
        [("long", "2")],
        [],
        ["long", "longer"],
        2,
        "long",
    )
    often.set("shorter", ttl=2 * SECOND)
    world.at(7)
    assert (once.get(), often.get()) == ("for ever", "-")
    log[-1] = "for ever"
    world.at(30)
    assert list(log) == ["for ever"]
    with pytest.raises(IndexError):
        log[1]
    assert world.sizes() == {"once": 1, "words": 1, "log": 2}
    log.clear()
    assert "log" not in world.sizes()


def test_a_list_ages_element_by_element_and_leaves_nothing() -> None:
    world = World()
    aging = world.handles["aging"]
    for second in range(0, 40, 4):
        world.at(second)
        aging.append(str(second))
        assert list(aging) == [
            str(s) for s in range(max(0, (second - 7) // 4 * 4), second + 1, 4) if s + 10 > second
        ]
    assert world.sizes()["aging"] <= 5
    world.scope.timestamp_ms = 20_000  # a late record: the ends must not expire before the last element
    aging.append("late")
    assert "36" in list(aging)
    world.at(60)
    assert len(aging) == 0
    world.at(70)
    assert world.sizes() == {}
    aging.append("anew")
    assert list(aging) == ["anew"]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("plain", lambda handle: handle.set("x", ttl=SECOND)),
        ("aging", lambda handle: handle.append("x", ttl=SECOND)),
        ("flat", lambda handle: handle.append("x", ttl=SECOND)),
    ],
)
def test_a_time_of_its_own_must_be_declared(name: str, write: Any) -> None:
    world = World()
    with pytest.raises(GraphError, match="ttl_per_write"):
        write(world.handles[name])
    with pytest.raises(ValueError, match="below 1 ms"):
        world.handles["once"].set("x", ttl=timedelta(0))


def test_the_catalog_says_how_values_expire_and_tools_read_it() -> None:
    world = World()
    world.handles["words"].put("a", "x", ttl=5 * SECOND)
    world.handles["words"].put("b", "y")
    entry = world.fields["words"].entry("stage", String)
    assert entry.value_codec == {
        "codec": "expiring",
        "value": {"codec": "string"},
        "map_key": {"codec": "string"},
    }
    rows = list(StoreDecoder(entry).rows(world.stores["words"]))
    assert [(row.map_key, row.value, row.written_ms, row.expires_ms) for row in rows] == [
        ("a", "x", 0, 5_000),
        ("b", "y", 0, None),
    ]


def test_bytes_of_an_expiring_value() -> None:
    codec = ExpiringCodec(String)
    data = bytes.fromhex("0000018bcfe56800" + "0000018bcfe58f10" + "6162")
    value = codec.decode(data)
    assert (value.timestamp_ms, value.expires_ms, value.value) == (1_700_000_000_000, 1_700_000_010_000, "ab")
    assert codec.encode(value) == data
    assert codec.encode(value._replace(expires_ms=NEVER_MS))[8:16].hex() == "7fffffffffffffff"
