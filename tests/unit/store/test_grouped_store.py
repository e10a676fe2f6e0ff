"""A store that keeps groups of keys in memory, against one that reads every range from disk."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stateflow.memory import ENTRY_BYTES
from stateflow.state.layout import LENGTH_BYTES, prefix_bytes, prefix_end, prefixed_key
from stateflow.store import grouped, groups
from stateflow.store.dirty import DirtyStore
from stateflow.store.grouped import GroupedStore
from stateflow.store.memory import MemoryReader
from stateflow.store.open_groups import OpenGroups

OWNERS = [b"", b"a", b"ab", b"\xff\xff"]
Rest = st.binary(max_size=2)
StoreKey = st.builds(prefixed_key, st.sampled_from(OWNERS), Rest)
Value = st.none() | st.binary(max_size=3)
Bound = StoreKey | st.binary(max_size=6)
Room = st.sampled_from([0, 6 * ENTRY_BYTES, 1 << 20])
Step = st.one_of(
    st.tuples(st.just("set"), StoreKey, Value),
    st.tuples(st.just("many"), st.lists(st.tuples(StoreKey, Value), max_size=6), st.none()),
    st.tuples(st.just("columns"), st.lists(st.tuples(StoreKey, Value), max_size=6), st.none()),
    st.tuples(st.just("new"), st.lists(st.tuples(StoreKey, Value), max_size=6), st.booleans()),
    st.tuples(st.just("gone"), st.lists(st.tuples(StoreKey, Value), max_size=6), st.none()),
    st.tuples(st.just("opened"), st.lists(st.tuples(StoreKey, st.booleans()), max_size=6), st.none()),
    st.tuples(st.just("keys"), st.lists(st.tuples(StoreKey, Value), max_size=6), st.none()),
    st.tuples(st.just("get"), StoreKey, st.none()),
    st.tuples(st.just("group"), st.sampled_from(OWNERS), st.none()),
    st.tuples(st.just("within"), st.sampled_from(OWNERS), st.tuples(Rest, Rest)),
    st.tuples(st.just("scan"), Bound, st.none() | Bound),
    st.tuples(st.just("mark"), st.booleans(), st.lists(st.tuples(StoreKey, Value), max_size=4)),
    st.tuples(st.just("commit"), st.none(), st.none()),
    st.tuples(st.just("drop"), st.none(), st.none()),
    st.tuples(st.just("limit"), Room, st.none()),
)


class Pair:
    """The store, and a plain one over the same disk, which the model of this test is."""

    def __init__(self, room_bytes: int) -> None:
        self.disk = MemoryReader()
        self.store = GroupedStore(self.disk, prefix_bytes, prefix_end, LENGTH_BYTES, room_bytes)
        self.plain = DirtyStore(self.disk, read_cache_bytes=0)

    @property
    def both(self) -> tuple[DirtyStore, DirtyStore]:
        return self.store, self.plain

    def do(self, what: str, one: object, other: object) -> None:
        getattr(self, what)(one, other)
        assert self.store.changes() == self.plain.changes()

    def set(self, key: bytes, value: bytes | None) -> None:
        for each in self.both:
            each.delete(key) if value is None else each.put(key, value)

    def many(self, changes: list[tuple[bytes, bytes | None]], _: None) -> None:
        for each in self.both:
            each.put_many(changes)

    def columns(self, changes: list[tuple[bytes, bytes | None]], _: None) -> None:
        distinct = dict(changes)
        for each in self.both:
            each.put_columns(list(distinct), list(distinct.values()))

    def keys(self, changes: list[tuple[bytes, bytes | None]], _: None) -> None:
        for each in self.both:
            each.put_keys(sorted(dict(changes)))

    def new(self, changes: list[tuple[bytes, bytes | None]], has_values: bool) -> None:
        keys = sorted(key for key in dict(changes) if self.plain.get(key) is None)
        for each in self.both:
            each.put_new(keys, [b"v"] * len(keys)) if has_values else each.put_new_keys(keys)

    def gone(self, changes: list[tuple[bytes, bytes | None]], _: None) -> None:
        for each in self.both:
            each.delete_many(list(dict(changes)))

    def opened(self, entries: list[tuple[bytes, bool]], _: None) -> None:
        """What a batch adds to groups that it has open, and takes out of them."""
        groups = OpenGroups(self.store)
        groups.open({key[: prefix_bytes(key)] for key, _ in entries})
        seen = set[bytes]()
        for key, is_removed in entries:
            prefix = key[: prefix_bytes(key)]
            before = self.plain.get(key)
            assert groups.get(prefix, key) == before
            if before is None and key not in seen:
                groups.add(prefix, key, b"w")
                self.plain.put_new([key], [b"w"])
            elif before is not None and is_removed:
                groups.remove(prefix, key)
                self.plain.delete_many([key])
            seen.add(key)
        groups.flush()

    def get(self, key: bytes, _: None) -> None:
        assert self.store.get(key) == self.plain.get(key)
        assert self.store.get_many([key]) == [self.plain.get(key)]

    def group(self, owner: bytes, _: None) -> None:
        self.scan(prefixed_key(owner), prefix_end(prefixed_key(owner)))

    def within(self, owner: bytes, rests: tuple[bytes, bytes]) -> None:
        first, after = sorted(rests)
        self.scan(prefixed_key(owner, first), prefixed_key(owner, after))

    def scan(self, first: bytes, after: bytes | None) -> None:
        assert list(self.store.scan(first, after)) == list(self.plain.scan(first, after))
        assert self.store.range(first, after, 2) == self.plain.range(first, after, 2)

    def mark(self, is_kept: bool, changes: list[tuple[bytes, bytes | None]]) -> None:
        marks = [each.mark() for each in self.both]
        for key, value in changes:
            self.set(key, value)
            self.group(key[LENGTH_BYTES : prefix_bytes(key)], None)
        for each, mark in zip(self.both, marks, strict=True):
            each.release(mark) if is_kept else each.rollback(mark)

    def commit(self, _: None, __: None) -> None:
        self.disk.change(self.plain.changes())
        for each in self.both:
            each.committed()

    def drop(self, _: None, __: None) -> None:
        for each in self.both:
            each.clear()

    def limit(self, bytes_max: int, _: None) -> None:
        self.store.limit_cache(bytes_max)
        assert self.store._groups.size_bytes <= bytes_max


@settings(max_examples=400)
@example(1200, [("mark", False, [(b"\0\0\0\0", None)]), ("limit", 0, None)], 2)
@given(Room, st.lists(Step, max_size=40), st.sampled_from([2, groups.GROUP_ENTRIES_MAX]))
def test_it_says_what_a_store_without_groups_says(
    room_bytes: int, steps: list[tuple[str, object, object]], entries_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for module in (groups, grouped):
            patched.setattr(module, "GROUP_ENTRIES_MAX", entries_max)
        pair = Pair(room_bytes)
        for step in steps:
            pair.do(*step)


class CountingReader(MemoryReader):
    """Counts scans."""

    scans = 0

    def scan(self, first: bytes = b"", after: bytes | None = None):  # type: ignore[no-untyped-def]
        self.scans += 1
        return super().scan(first, after)


def test_a_group_is_read_from_disk_once_and_follows_what_is_written() -> None:
    disk = CountingReader()
    disk.change([(prefixed_key(b"a", b"%d" % number), b"v") for number in range(5)])
    store = GroupedStore(disk, prefix_bytes, prefix_end, LENGTH_BYTES)
    prefix = prefixed_key(b"a")
    for number in range(5, 20):
        store.put(prefixed_key(b"a", b"%02d" % number), b"w")
        assert len(list(store.scan(prefix, prefix_end(prefix)))) == number + 1
        disk.change(store.changes())
        store.committed()
    assert disk.scans == 1


def test_a_key_that_is_new_costs_no_look_at_the_disk() -> None:
    disk = CountingReader()
    disk.change([(prefixed_key(b"a", b"1"), b"v")])
    store = GroupedStore(disk, prefix_bytes, prefix_end, LENGTH_BYTES)
    for number in range(100):
        prefix = prefixed_key(b"%d" % number)
        assert store.groups([prefix]) == {}
        assert list(store.scan(prefix, prefix_end(prefix))) == []
        store.put(prefix + b"x", b"w")
        assert store.get(prefix + b"x") == b"w"
    assert disk.scans == 1, "all of it, when the first was asked for"


def test_what_had_to_go_is_known_to_be_on_disk() -> None:
    disk = CountingReader()
    store = GroupedStore(disk, prefix_bytes, prefix_end, LENGTH_BYTES, 40 * ENTRY_BYTES)
    prefixes = [prefixed_key(b"%02d" % number) for number in range(20)]
    for prefix in prefixes:
        assert list(store.scan(prefix, prefix_end(prefix))) == []
        store.put(prefix + b"x", b"value")
    disk.change(store.changes())
    store.committed()
    assert store._groups.size_bytes <= 40 * ENTRY_BYTES
    scans = disk.scans
    for prefix in prefixes:
        assert list(store.scan(prefix, prefix_end(prefix))) == [(prefix + b"x", b"value")]
    assert disk.scans > scans, "not all have room"
    scans = disk.scans
    assert store.groups([prefixed_key(b"none")]) == {}
    assert disk.scans == scans


def test_what_is_new_and_goes_within_an_epoch_leaves_nothing() -> None:
    disk = MemoryReader()
    disk.change([(b"old", b"v")])
    store = DirtyStore(disk)
    store.put_new([b"a", b"b"], [b"1", b"2"])
    store.delete_many([b"a", b"old"])
    assert list(store.changes()) == [(b"b", b"2"), (b"old", None)]
    store.put_new([b"old"], [b"w"])
    store.delete_many([b"old", b"b"])
    assert list(store.changes()) == [(b"old", None)], "it is on disk"
    disk.change(store.changes())
    store.committed()
    store.put_new_keys([b"k", b"l"])
    disk.change(store.changes())
    store.committed()
    store.delete_many([b"k"])
    assert list(store.changes()) == [(b"k", None)], "it was committed"


def test_a_large_group_is_not_kept_and_read_by_its_ranges() -> None:
    disk = CountingReader()
    entries = [(prefixed_key(b"a", b"%04d" % number), b"v") for number in range(groups.GROUP_ENTRIES_MAX + 1)]
    disk.change(entries)
    store = GroupedStore(disk, prefix_bytes, prefix_end, LENGTH_BYTES)
    for _ in range(3):
        assert list(store.scan(entries[7][0], entries[9][0])) == entries[7:9]
    assert disk.scans == 1 + 3, "the attempt, and each range"


def test_the_groups_stay_within_half_of_the_cache() -> None:
    store = GroupedStore(MemoryReader(), prefix_bytes, prefix_end, LENGTH_BYTES, 40 * ENTRY_BYTES)
    for number in range(100):
        prefix = prefixed_key(b"%d" % number)
        store.put(prefix + b"x", b"value")
        assert len(list(store.scan(prefix, prefix_end(prefix)))) == 1
    assert 0 < store._groups.size_bytes <= 20 * ENTRY_BYTES
