"""A store that keeps values decoded until the commit, against a plain dictionary; and the map that remembers them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.errors import DecodeError
from stateflow.memory import ENTRY_BYTES
from stateflow.native.folds import Folding
from stateflow.native.loading import core
from stateflow.store.decoded import DecodedStore
from stateflow.store.dirty import DirtyStore
from stateflow.store.folded import decoded_in_place_of
from stateflow.store.generations import MISSING, Generations, bytes_of
from stateflow.store.memory import MemoryReader

ROOM_FOR_THREE = 3 * (ENTRY_BYTES + 40)
Key = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
Keys = st.lists(Key, max_size=5)
Steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), Keys, st.none() | st.integers(-5, 5)),
        st.tuples(st.just("add"), Keys, st.none()),
        st.tuples(st.just("values"), Keys, st.none()),
        st.tuples(st.just("get"), Keys, st.none()),
        st.tuples(st.just("put"), Keys, st.none() | st.integers(-5, 5)),
        st.tuples(st.just("scan"), Keys, st.none()),
        st.tuples(st.sampled_from(["near", "write_back"]), Keys, st.none() | st.integers(-5, 5)),
        st.tuples(st.sampled_from(["undo", "keep"]), Keys, st.integers(-5, 5)),
        st.tuples(st.just("commit"), Keys, st.none()),
        st.tuples(st.just("limit"), Keys, st.sampled_from([0, ROOM_FOR_THREE, 1 << 20])),
    ),
    max_size=40,
)


class Checked:
    """The store and a dictionary that does the same."""

    def __init__(self, room_bytes: int, folding: Folding | None) -> None:
        self.reader = MemoryReader()
        self.store = store_of(self.reader, folding, room_bytes)
        self.model: dict[bytes, int] = {}

    def set(self, keys: list[bytes], value: int | None) -> None:
        self.store.set_values(keys, [value] * len(keys))
        self._set(keys, value)

    def add(self, keys: list[bytes], _value: int | None) -> None:
        self.store.add_ones(keys)
        for key in keys:
            self.model[key] = self.model.get(key, 0) + 1

    def values(self, keys: list[bytes], _value: int | None) -> None:
        assert self.store.values(keys) == [self.model.get(key) for key in keys]

    def get(self, keys: list[bytes], _value: int | None) -> None:
        expected = [_encoded(self.model.get(key)) for key in keys]
        assert [self.store.get(key) for key in keys] == expected
        assert self.store.get_many(keys) == expected

    def put(self, keys: list[bytes], value: int | None) -> None:
        self.store.put_many([(key, _encoded(value)) for key in keys])
        self._set(keys, value)

    def scan(self, keys: list[bytes], _value: int | None) -> None:
        first = min(keys, default=b"")
        expected = [(key, _encoded(value)) for key, value in sorted(self.model.items()) if key >= first]
        assert list(self.store.scan(first)) == expected
        assert self.store.range(first, None, 2) == expected[:2]

    def near(self, keys: list[bytes], value: int | None) -> None:
        """As an operator does: some are set, or all, and all are looked at."""
        distinct = list(dict.fromkeys(keys))
        self.store.load(distinct)
        chosen = distinct if value is not None and value > 2 else distinct[::2]
        for key in chosen:
            if value is not None and value % 2:
                self.store.set_value(key, value)
            else:
                self.store.near[key] = value
                self.store.touched.add(key)
        self._set(chosen, value)
        expected = [self.model.get(key) for key in distinct]
        assert [self.store.near[key] for key in distinct] == expected
        assert [self.store.value(key) for key in distinct] == expected
        assert self.store.is_dirty or not distinct

    def write_back(self, keys: list[bytes], value: int | None) -> None:
        self.near(keys, value)
        self.store.write_back()
        assert not self.store.touched

    def undo(self, keys: list[bytes], value: int | None) -> None:
        before, mark = dict(self.model), self.store.mark()
        self._in_scope(keys, value)
        self.store.rollback(mark)
        self.model = before

    def keep(self, keys: list[bytes], value: int | None) -> None:
        mark = self.store.mark()
        self._in_scope(keys, value)
        self.store.release(mark)

    def commit(self, _keys: list[bytes], _value: int | None) -> None:
        changes = self.store.changes()
        assert [key for key, _ in changes] == sorted({key for key, _ in changes})
        self.reader.change(changes)
        self.store.committed()
        assert not self.store.is_dirty
        assert self.store.dirty_bytes == self.store.held_bytes == 0
        assert dict(self.reader.scan()) == {key: _encoded(value) for key, value in self.model.items()}

    def limit(self, _keys: list[bytes], room_bytes: int | None) -> None:
        self.store.limit_cache(room_bytes or 0)

    def _in_scope(self, keys: list[bytes], value: int | None) -> None:
        self.set(keys, value)
        self.add(keys, None)
        self.values(keys, None)

    def _set(self, keys: list[bytes], value: int | None) -> None:
        for key in keys:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value


FOLDINGS = (None, *([] if core() is None else [Folding("count"), Folding("sum"), Folding("assign")]))
"""None is plain Python."""


def store_of(reader: MemoryReader, folding: Folding | None, room_bytes: int) -> DecodedStore:
    return decoded_in_place_of(DirtyStore(reader, room_bytes), sf.Integer, folding)


@pytest.mark.parametrize("folding", FOLDINGS)
@settings(max_examples=200, deadline=None)
@given(room_bytes=st.sampled_from([0, ROOM_FOR_THREE, 1 << 20]), steps=Steps)
def test_like_a_dictionary_whoever_reads_and_writes_it(
    folding: Folding | None, room_bytes: int, steps: list[tuple[str, list[bytes], int | None]]
) -> None:
    checked = Checked(room_bytes, folding)
    for verb, keys, value in steps:
        getattr(checked, verb)(keys, value)
    checked.get([b"a", b"b", b"c", b"d", b"e", b"f"], None)
    checked.commit([], None)


def test_a_key_that_changes_often_is_encoded_once_and_read_once() -> None:
    reader = MemoryReader()
    reader.change([(b"k", sf.Integer.encode(5))])
    counting = _Counting(reader)
    store = DecodedStore(counting, sf.Integer, 1 << 20)
    for _ in range(10):
        store.set_values([b"k"], [store.values([b"k"])[0] + 1])
    assert store.changes() == [(b"k", sf.Integer.encode(15))]
    reader.change(store.changes())
    store.committed()
    assert store.values([b"k"]) == [15]
    assert counting.reads == 1


@pytest.mark.parametrize("folding", FOLDINGS)
def test_what_is_not_encoded_yet_counts_as_held(folding: Folding | None) -> None:
    """Else a task would never be found full before its commit."""
    store = store_of(MemoryReader(), folding, 0)
    store.add_ones([b"%04d" % number for number in range(100)] * 2)
    assert store.is_dirty
    assert store.dirty_bytes >= 100 * 4
    assert store.held_bytes >= 100 * (4 + ENTRY_BYTES)
    before_bytes = store.held_bytes
    store.set_values([b"more"], [1])
    assert before_bytes < store.held_bytes < 2 * before_bytes
    store.clear()
    assert (store.dirty_bytes, store.held_bytes, store.is_dirty) == (0, 0, False)


def test_bytes_that_are_no_value_are_named() -> None:
    reader = MemoryReader()
    reader.change([(b"k", b"not eight bytes")])
    with pytest.raises(DecodeError):
        DecodedStore(reader, sf.Integer, 0).values([b"k"])


def test_a_store_that_was_written_to_is_not_taken_over() -> None:
    plain = DirtyStore(MemoryReader())
    plain.put(b"k", b"v")
    with pytest.raises(AssertionError, match="before anybody said"):
        DecodedStore.in_place_of(plain, sf.Integer)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "get", "forget", "limit"]), Keys), max_size=40))
def test_what_is_remembered_is_what_was_put_last_and_keeps_to_its_room(
    steps: list[tuple[str, list[bytes]]],
) -> None:
    cache, model = Generations[bytes | None](ROOM_FOR_THREE, bytes_of), dict[bytes, bytes]()
    for number, (verb, keys) in enumerate(steps):
        if verb == "put":
            cache.put_many(keys, [b"%d" % number] * len(keys))
            model |= dict.fromkeys(keys, b"%d" % number)
        elif verb == "forget":
            cache.forget_many(keys)
            assert all(cache.get(key) is MISSING for key in keys)
        elif verb == "limit":
            cache.limit(ROOM_FOR_THREE)
        else:
            found = cache.get_many(keys)
            assert all(
                value is MISSING or value == model[key] for key, value in zip(keys, found, strict=True)
            )
        assert 0 <= cache.size_bytes <= ROOM_FOR_THREE
    cache.clear()
    assert cache.size_bytes == 0


def test_of_what_there_is_no_room_for_an_older_value_does_not_come_back() -> None:
    cache = Generations[bytes | None](3 * ENTRY_BYTES, bytes_of)
    cache.put_many([b"a"], [b"old"])
    cache.put_many([b"a", b"b"], [b"new", b"new"])
    assert cache.get(b"a") is MISSING
    assert cache.get(b"b") == b"new"


def test_what_is_asked_for_again_and_again_stays() -> None:
    cache = Generations[bytes | None](20 * ENTRY_BYTES, bytes_of)
    cache.put_many([b"hot"], [b"1"])
    for number in range(200):
        cache.put_many([b"%04d" % number], [b"x"])
        assert cache.get_many([b"hot"]) == [b"1"]
    assert cache.get(b"0000") is MISSING


class _Counting:
    """A reader that counts the keys that it is asked for."""

    def __init__(self, reader: MemoryReader) -> None:
        self.reads = 0
        self.get, self.scan, self._get_many = reader.get, reader.scan, reader.get_many

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads += len(keys)
        return self._get_many(keys)


def _encoded(value: int | None) -> bytes | None:
    return None if value is None else sf.Integer.encode(value)
