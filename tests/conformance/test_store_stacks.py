"""One suite over every store stack: memory, RocksDB, and the dirty map over each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stateflow.clock import ManualClock
from stateflow.store.base import StateStore, StorePosition, TaskStores
from stateflow.store.directory import task_directory
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.rocks import RocksResources, RocksTaskStores

AT_7 = StorePosition("topic-1", 7)


@pytest.fixture(params=["memory", "rocks"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TaskStores]:
    opened: TaskStores
    if request.param == "memory":
        opened = MemoryTaskStores(["a", "b"], ManualClock(5_000))
    else:
        place = task_directory(tmp_path, "app", "cluster", 0, "main-0")
        opened = RocksTaskStores.open(place, ["a", "b"], RocksResources(), ManualClock(5_000))
    yield opened
    opened.close()


@pytest.fixture(params=["no cache", "small cache", "cache"])
def store(request: pytest.FixtureRequest, stores: TaskStores) -> DirtyStore:
    stores.apply({"a": [(b"b", b"2"), (b"c", b"3"), (b"d", b"4")]}, {"a": AT_7})
    size = {"no cache": 0, "small cache": 450, "cache": 1 << 20}[str(request.param)]
    return DirtyStore(stores.reader("a"), read_cache_bytes=size)


# --- TaskStores ---------------------------------------------------------------------------------------


def test_a_store_never_written_is_empty_and_has_no_position(stores: TaskStores) -> None:
    assert stores.position("a") is None
    assert stores.reader("a").get(b"k") is None
    assert list(stores.reader("a").scan()) == []


def test_an_epoch_sets_deletes_and_moves_positions_together(stores: TaskStores) -> None:
    stores.apply({"a": [(b"x", b"1"), (b"y", b"2")], "b": [(b"x", b"9")]}, {"a": AT_7, "b": AT_7})
    stores.apply({"a": [(b"x", None), (b"z", b"")]}, {"a": StorePosition("topic-1", 9)})
    assert list(stores.reader("a").scan()) == [(b"y", b"2"), (b"z", b"")]
    assert list(stores.reader("b").scan()) == [(b"x", b"9")]
    assert stores.position("a") == StorePosition("topic-1", 9)
    assert stores.position("b") == AT_7


def test_positions_carry_when_they_were_applied(stores: TaskStores) -> None:
    stores.apply({}, {"a": AT_7})
    position = stores.position("a")
    assert position is not None
    assert position.applied_ms == 5_000


def test_load_is_apply_of_one_store(stores: TaskStores) -> None:
    stores.apply({"a": [(b"k1", b"old"), (b"k2", b"old"), (b"k3", b"kept")]}, {"a": AT_7})
    stores.load("a", [(b"k1", None), (b"k2", b"new"), (b"k4", b"new")], StorePosition("topic-1", 12))
    assert list(stores.reader("a").scan()) == [(b"k2", b"new"), (b"k3", b"kept"), (b"k4", b"new")]
    stores.apply({"a": [(b"k2", b"newest")]}, {})
    assert stores.reader("a").get(b"k2") == b"newest"
    assert stores.position("a") == StorePosition("topic-1", 12)


def test_load_of_nothing_moves_the_position(stores: TaskStores) -> None:
    stores.load("a", [], AT_7)
    assert stores.position("a") == AT_7


def test_clear_drops_one_store_only(stores: TaskStores) -> None:
    stores.apply({"a": [(b"k", b"1")], "b": [(b"k", b"2")]}, {"a": AT_7, "b": AT_7})
    reader = stores.reader("a")
    stores.clear("a")
    assert reader.get(b"k") is None
    assert stores.position("a") is None
    assert stores.reader("b").get(b"k") == b"2"
    assert stores.position("b") == AT_7
    stores.apply({"a": [(b"n", b"3")]}, {"a": AT_7})
    assert list(reader.scan()) == [(b"n", b"3")]


@pytest.mark.parametrize("changes", [[(b"b", b"1"), (b"a", b"2")], [(b"a", b"1"), (b"a", b"2")]])
def test_an_unsorted_epoch_is_a_bug(stores: TaskStores, changes: list[tuple[bytes, bytes | None]]) -> None:
    with pytest.raises(AssertionError, match="sorted"):
        stores.apply({"a": changes}, {})
    assert list(stores.reader("a").scan()) == []


def test_get_many_answers_in_the_order_asked(stores: TaskStores) -> None:
    stores.apply({"a": [(b"b", b"2"), (b"c", b"")]}, {})
    assert stores.reader("a").get_many([b"c", b"x", b"b", b"c"]) == [b"", None, b"2", b""]
    assert stores.reader("a").get_many([]) == []


def test_scan_takes_half_open_ranges_in_byte_order(stores: TaskStores) -> None:
    keys = [b"", b"\x00", b"a", b"a\x00", b"b", b"\xff", b"\xff\xff"]
    stores.apply({"a": [(key, b"v") for key in keys]}, {})
    reader = stores.reader("a")
    assert [key for key, _ in reader.scan()] == keys
    assert [key for key, _ in reader.scan(b"a", b"b")] == [b"a", b"a\x00"]
    assert [key for key, _ in reader.scan(b"b")] == [b"b", b"\xff", b"\xff\xff"]
    assert list(reader.scan(b"b", b"a")) == []


def test_many_short_scans_each_keep_their_own_bounds(stores: TaskStores) -> None:
    keys = [b"key-%04d-%d" % (i, j) for i in range(500) for j in range(5)]
    stores.apply({"a": [(key, b"v") for key in keys]}, {})
    stores.flush()
    reader = stores.reader("a")
    scans = [reader.scan(b"key-%04d" % i, b"key-%04d\xff" % i) for i in range(500)]
    assert [len(list(scan)) for scan in scans] == [5] * 500
    for i in range(500):
        first, after = b"key-%04d" % i, b"key-%04d\xff" % i
        assert len(list(reader.scan(first, after))) == 5


def test_a_scan_sees_the_moment_it_was_asked_for(stores: TaskStores) -> None:
    stores.apply({"a": [(b"%06d" % i, b"old") for i in range(2_000)]}, {})
    scan = stores.reader("a").scan()
    stores.apply({"a": [(b"%06d" % i, None) for i in range(2_000)]}, {})
    assert sum(value == b"old" for _, value in scan) == 2_000


# --- the dirty map over it ----------------------------------------------------------------------------


def test_own_writes_are_seen_at_once_and_disk_is_not_touched(store: DirtyStore, stores: TaskStores) -> None:
    store.put(b"a", b"1")
    store.put(b"c", b"33")
    store.delete(b"d")
    assert store.get_many([b"a", b"b", b"c", b"d", b"e"]) == [b"1", b"2", b"33", None, None]
    assert [store.get(key) for key in (b"a", b"b", b"c", b"d", b"e")] == [b"1", b"2", b"33", None, None]
    assert list(stores.reader("a").scan()) == [(b"b", b"2"), (b"c", b"3"), (b"d", b"4")]


def test_scans_merge_both_in_order(store: DirtyStore) -> None:
    store.put_many([(b"a", b"1"), (b"c", None), (b"cc", b"new"), (b"d", b"44"), (b"e", b"5"), (b"f", None)])
    assert list(store.scan()) == [(b"a", b"1"), (b"b", b"2"), (b"cc", b"new"), (b"d", b"44"), (b"e", b"5")]
    assert list(store.scan(b"b", b"d")) == [(b"b", b"2"), (b"cc", b"new")]


def test_a_scan_is_not_changed_by_later_writes(store: DirtyStore) -> None:
    store.put(b"a", b"1")
    scan = store.scan()
    store.put(b"a", b"changed")
    store.delete(b"b")
    store.put(b"z", b"9")
    assert list(scan) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4")]


def test_the_epoch_is_sorted_and_coalesced(store: DirtyStore) -> None:
    for key, value in [(b"z", b"1"), (b"a", b"2"), (b"z", b"3")]:
        store.put(key, value)
    store.delete(b"m")
    assert store.changes() == [(b"a", b"2"), (b"m", None), (b"z", b"3")]


def test_a_commit_moves_the_epoch_to_disk_and_readers_see_the_same(
    store: DirtyStore, stores: TaskStores
) -> None:
    store.get_many([b"b", b"c", b"missing"])
    store.put_many([(b"b", b"22"), (b"c", None), (b"missing", b"m")])
    before = list(store.scan())
    stores.apply({"a": store.changes()}, {"a": StorePosition("topic-1", 11)})
    store.committed()
    assert store.changes() == []
    assert store.dirty_bytes == 0
    assert list(store.scan()) == before
    assert store.get_many([b"b", b"c", b"missing"]) == [b"22", None, b"m"]


def test_clear_forgets_the_epoch(store: DirtyStore) -> None:
    store.put(b"b", b"changed")
    store.clear()
    assert store.get(b"b") == b"2"
    assert (store.changes(), store.dirty_bytes) == ([], 0)


def test_a_scope_is_undone_or_kept(store: DirtyStore) -> None:
    store.put(b"a", b"1")
    size = store.dirty_bytes
    mark = store.mark()
    store.put(b"a", b"changed")
    store.put(b"a", b"again")
    store.delete(b"b")
    store.put_many([(b"n", b"new"), (b"n", b"newer")])
    assert store.get(b"n") == b"newer"
    store.rollback(mark)
    assert store.changes() == [(b"a", b"1")]
    assert store.dirty_bytes == size
    assert store.get(b"b") == b"2"
    mark = store.mark()
    store.put(b"b", b"kept")
    store.release(mark)
    assert store.get(b"b") == b"kept"


def _undone(store: DirtyStore) -> None:
    mark = store.mark()
    store.delete(b"a")
    store.put(b"y", b"1")
    store.rollback(mark)


LOOKS: dict[str, Callable[[DirtyStore], object]] = {
    "nothing": lambda _store: None,
    "get": lambda store: (store.get(b"a"), store.get(b"b"), store.get(b"n")),
    "get_many": lambda store: store.get_many([b"x", b"n", b"b"]),
    "scan": lambda store: list(store.scan(b"b")),
    "range": lambda store: store.range(b"", b"d", 3),
    "put": lambda store: store.put(b"a", b"1"),
    "delete": lambda store: store.delete(b"x"),
    "put_many": lambda store: store.put_many([(b"c", None), (b"y", b"2")]),
    "put_columns": lambda store: store.put_columns([b"a", b"y"], [None, b"2"]),
    "put_keys": lambda store: store.put_keys([b"a", b"y"]),
    "undo": _undone,
    "commit": lambda store: store.committed(),
    "clear": lambda store: store.clear(),
}


@pytest.mark.parametrize("look", LOOKS)
def test_keys_that_were_set_in_one_run_are_like_others(store: DirtyStore, look: str) -> None:
    entered = DirtyStore(store._reader, store._cache.bytes_max)
    entered.put_many([(key, b"") for key in (b"a", b"c", b"x")])
    store.put_keys([b"a", b"c", b"x"])
    for _ in range(2):
        for told in ("is_dirty", "dirty_bytes", "held_bytes"):
            assert getattr(store, told) == getattr(entered, told), told
        assert list(store.changes()) == list(entered.changes())
        assert LOOKS[look](store) == LOOKS[look](entered)
    assert list(store.scan()) == list(entered.scan())


def test_dirty_bytes_count_keys_and_values_once(store: DirtyStore) -> None:
    store.put(b"key", b"12345")
    assert store.dirty_bytes == 8
    store.put(b"key", b"1")
    assert store.dirty_bytes == 4
    store.put_many([(b"key", b"123"), (b"k2", b"12"), (b"k2", b"1")])
    assert store.dirty_bytes == 9
    store.delete(b"key")
    assert store.dirty_bytes == 6


def test_the_stack_is_a_state_store(store: DirtyStore) -> None:
    checked: StateStore = store  # the type checker holds this line
    checked.put(b"k", b"v")
    assert checked.get(b"k") == b"v"
