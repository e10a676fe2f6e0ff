"""Counter, SetOf, Reducing, nested maps and Versioned: what each promises, over a real dirty map."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import EncodeError, GraphError, StateBoundExceeded
from stateflow.state.counter import COUNT_MAX, COUNT_MIN
from stateflow.state.declare import declared_fields
from stateflow.state.kinds import Advancing
from stateflow.state.scope import Scope
from stateflow.state.versioned import HistoryExpiry
from stateflow.state.view import StoreView
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryReader

DAY = timedelta(days=1)


class Every:
    hits: sf.Counter = sf.state()
    briefly: sf.Counter = sf.state(ttl=timedelta(milliseconds=100))
    tags: sf.SetOf[str] = sf.state(max_length=3)
    fresh: sf.SetOf[str] = sf.state(ttl=timedelta(milliseconds=100), max_length=2)
    longest: sf.Reducing[str] = sf.state(reduce=lambda one, two: max(one, two, key=len), initial="")
    union: sf.Reducing[list[int] | None] = sf.state(reduce=lambda one, two: sorted({*one, *two}))
    visits: sf.MapOf[str, sf.MapOf[int, int]] = sf.state()
    deep: sf.MapOf[int, sf.MapOf[str, sf.MapOf[bytes, str]]] = sf.state()
    dated: sf.MapOf[str, sf.MapOf[str, int]] = sf.state(ttl=timedelta(milliseconds=100))
    price: sf.Versioned[str] = sf.state(history=timedelta(milliseconds=100))
    recent: sf.Versioned[int] = sf.state(max_versions=3)
    lease: sf.Versioned[str] = sf.state(history=timedelta(seconds=1), ttl=timedelta(milliseconds=50))
    scores: sf.MapOf[int, str] = sf.state()
    words: sf.MapOf[str, int] = sf.state()


class Bench:
    """One declared state on a dirty map, at one key."""

    def __init__(self, attribute: str) -> None:
        (self.field,) = (field for field in declared_fields(Every, "op") if field.attribute == attribute)
        self.store, self.scope = DirtyStore(MemoryReader()), Scope()
        self.scope.key, self.scope.timestamp_ms = b"k", 0
        handle, expiry = self.field.bind(self.store, self.scope)
        self.handle: Any = handle
        self.expiry: Advancing | None = expiry

    def at(self, timestamp_ms: int, watermark_ms: int | None = None) -> Any:
        """The handle, at another moment of event time."""
        self.scope.timestamp_ms = timestamp_ms
        self.scope.reached_ms = timestamp_ms if watermark_ms is None else watermark_ms
        return self.handle

    def expire(self, watermark_ms: int) -> int:
        """Move event time on; returns how many entries are left."""
        assert self.expiry is not None
        self.expiry.advance(watermark_ms)
        self.scope.reached_ms = watermark_ms
        return len(list(self.store.scan()))

    @property
    def seen(self) -> Any:
        """The key as tools see it."""
        return StoreView(self.field.entry("stage", sf.String), self.store).get("k")


# --- counters -----------------------------------------------------------------------------------------


def test_a_counter_counts_per_key() -> None:
    bench = Bench("hits")
    assert bench.handle.get() == bench.seen == 0
    assert (bench.handle.add(), bench.handle.add(5), bench.handle.subtract(8)) == (1, 6, -2)
    assert int(bench.handle) == bench.seen == -2
    bench.scope.key = b"other"
    assert bench.handle.get() == 0


def test_a_counter_at_zero_is_not_stored() -> None:
    bench = Bench("hits")
    bench.handle.add(3)
    bench.handle.subtract(3)
    assert list(bench.store.scan()) == []
    bench.handle.add(3)
    bench.handle.reset()
    assert bench.handle.get() == 0


@pytest.mark.parametrize(("start", "by"), [(COUNT_MAX, 1), (COUNT_MIN, -1)])
def test_a_counter_never_wraps(start: int, by: int) -> None:
    bench = Bench("hits")
    bench.handle.add(start)
    with pytest.raises(StateBoundExceeded, match="64 bits"):
        bench.handle.add(by)
    assert bench.handle.get() == start


def test_a_counter_is_forgotten_after_its_time_to_live() -> None:
    bench = Bench("briefly")
    bench.at(0).add(5)
    assert bench.at(99).get() == 5
    assert bench.at(100).get() == 0
    assert bench.handle.add() == 1
    assert bench.expire(200) == 0


# --- sets ---------------------------------------------------------------------------------------------


def test_a_set_logs_one_record_per_element() -> None:
    bench = Bench("tags")
    bench.handle.update(["b", "a"])
    bench.store.committed()
    assert (bench.handle.add("c"), bench.handle.add("c"), bench.handle.discard("x")) == (True, False, False)
    assert [key[-1:] for key, _ in bench.store.changes()] == [b"c"]
    bench.store.clear()
    bench.handle.add("c")
    assert (bench.handle.discard("a"), "a" in bench.handle, "c" in bench.handle) == (True, False, True)
    assert len(bench.store.changes()) == 2


def test_a_set_refuses_more_than_its_max_length() -> None:
    bench = Bench("tags")
    bench.handle.update("abc")
    assert bench.handle.add("a") is False
    with pytest.raises(StateBoundExceeded, match="already has 3 elements"):
        bench.handle.add("d")
    assert sorted(bench.handle) == ["a", "b", "c"]
    bench.handle.discard("b")
    bench.handle.add("d")
    assert bench.seen == ["a", "c", "d"]
    bench.handle.clear()
    assert (len(bench.handle), bench.seen) == (0, None)


def test_elements_of_a_set_are_forgotten_one_by_one() -> None:
    bench = Bench("fresh")
    bench.at(0).update(["a", "b"])
    bench.at(60).add("b")
    assert list(bench.at(120)) == ["b"]
    assert "a" not in bench.handle
    assert bench.handle.add("c"), "the forgotten element no longer counts"
    assert bench.expire(150) == 2


# --- reducing -----------------------------------------------------------------------------------------


def test_reducing_keeps_the_result_alone() -> None:
    bench = Bench("longest")
    assert (bench.handle.get(), bench.handle.is_set) == ("", False)
    assert [bench.handle.add(word) for word in ("aa", "b", "cccc")] == ["aa", "aa", "cccc"]
    assert (bench.handle.get(), bench.handle.is_set, bench.seen) == ("cccc", True, "cccc")
    assert len(bench.store.changes()) == 1
    bench.handle.clear()
    assert bench.handle.get() == ""


def test_what_reducing_hands_out_is_a_copy() -> None:
    bench = Bench("union")
    assert bench.handle.get() is None
    bench.handle.add([2, 1])
    bench.handle.get().append(99)
    bench.handle.add([3]).append(98)
    assert bench.handle.get() == [1, 2, 3]
    with pytest.raises(EncodeError):
        Bench("longest").handle.add(5)


# --- maps ---------------------------------------------------------------------------------------------


def test_ranges_of_a_map_are_in_natural_order() -> None:
    bench = Bench("scores")
    for number in (5, -3, 0, 1 << 40, -(1 << 40)):
        bench.handle.put(number, str(number))
    assert bench.handle.keys() == [-(1 << 40), -3, 0, 5, 1 << 40]
    assert bench.handle.range(-3, 5) == [(-3, "-3"), (0, "0")]
    assert bench.handle.range(first=5) == [(5, "5"), (1 << 40, str(1 << 40))]
    assert bench.handle.range(after=0, limit=1) == [(-(1 << 40), str(-(1 << 40)))]
    assert bench.handle.range(7, 2) == []
    with pytest.raises(GraphError, match="do not begin with text"):
        bench.handle.beginning(1)


def test_keys_of_a_map_by_their_beginning() -> None:
    bench = Bench("words")
    for word in ("a", "ab", "abc", "b", "ab\U0001f600"):
        bench.handle.put(word, len(word))
    assert [word for word, _ in bench.handle.beginning("ab")] == ["ab", "abc", "ab\U0001f600"]
    assert bench.handle.beginning("ab", limit=1) == [("ab", 2)]
    assert bench.handle["abc"] == 3
    with pytest.raises(KeyError):
        bench.handle["x"]


def test_a_nested_map_is_read_and_written_by_path() -> None:
    bench = Bench("visits")
    visits = bench.handle
    for country in ("de", "d\0", "fr"):
        for hour in (-1, 3, 2):
            visits[country].put(hour, hour * 10)
    assert visits["de"].items() == [(-1, -10), (2, 20), (3, 30)]
    assert visits["de"].range(0, 3) == [(2, 20)]
    assert visits["de"][3] == 30
    assert visits.keys() == ["d\0", "de", "fr"]
    assert (len(visits), "de" in visits, "d" in visits) == (3, True, False)
    assert visits.get("it") is None
    assert [name for name, _ in visits.beginning("d")] == ["d\0", "de"]
    assert [(name, len(inner)) for name, inner in visits.range("de", "fr")] == [("de", 3)]
    assert bench.seen["fr"] == {-1: -10, 2: 20, 3: 30}
    visits.remove("de")
    assert (visits.keys(), visits["de"].items()) == (["d\0", "fr"], [])
    visits["fr"].remove(2)
    visits["fr"].merge(3, 1, int.__add__)
    assert visits["fr"].items() == [(-1, -10), (3, 31)]
    visits["fr"].clear()
    assert visits.keys() == ["d\0"]
    visits.clear()
    assert (visits.items(), bench.seen) == ([], None)


def test_maps_nest_to_any_depth() -> None:
    bench = Bench("deep")
    bench.handle[1]["x"].put(b"\0", "v")
    bench.handle[1]["y"].put(b"", "w")
    bench.handle[-1]["y"].put(b"", "u")
    assert bench.seen == {-1: {"y": {b"": "u"}}, 1: {"x": {b"\0": "v"}, "y": {b"": "w"}}}
    assert [key for key, _ in bench.handle.items()] == [-1, 1]
    bench.handle[1].remove("x")
    assert bench.handle[1].keys() == ["y"]


def test_an_inner_map_is_never_replaced() -> None:
    bench = Bench("visits")
    with pytest.raises(GraphError, match="map of maps"):
        bench.handle.put("de", {1: 2})
    with pytest.raises(GraphError, match="map of maps"):
        bench.handle.merge("de", {1: 2}, dict.__or__)


def test_an_inner_handle_follows_the_current_key() -> None:
    bench = Bench("visits")
    inner = bench.handle["de"]
    inner.put(1, 1)
    bench.scope.key = b"other"
    assert inner.items() == []


def test_entries_of_inner_maps_are_forgotten_one_by_one() -> None:
    bench = Bench("dated")
    bench.at(0)["a"].put("x", 1)
    bench.at(50)["a"].put("y", 2)
    bench.handle["b"].put("z", 3)
    bench.at(0)["c"].put("z", 3)
    bench.at(50, watermark_ms=120)
    assert (bench.handle.keys(), bench.handle["a"].items()) == (["a", "b"], [("y", 2)])
    assert "c" not in bench.handle
    assert bench.expire(120) == 2


# --- versions -----------------------------------------------------------------------------------------


def test_a_versioned_value_tells_what_it_was() -> None:
    bench = Bench("price")
    bench.at(10).set("ten")
    bench.at(30).set("thirty")
    bench.at(40, watermark_ms=40).set("twenty", at=20)
    assert bench.handle.get() == "thirty"
    reads = {at: bench.handle.get(at=at) for at in (9, 10, 19, 20, 29, 30, 1000)}
    assert reads == {9: None, 10: "ten", 19: "ten", 20: "twenty", 29: "twenty", 30: "thirty", 1000: "thirty"}
    assert bench.handle.history() == [(10, "ten"), (20, "twenty"), (30, "thirty")]
    assert bench.handle.history(first=20) == [(20, "twenty"), (30, "thirty")]
    assert bench.handle.history(10, 20) == [(10, "ten")]
    assert bench.seen == {30: "thirty", 20: "twenty", 10: "ten"}
    bench.handle.set("TWENTY", at=datetime(1970, 1, 1, 0, 0, 0, 20_000, tzinfo=UTC))
    assert (bench.handle.get(at=25), len(bench.handle)) == ("TWENTY", 3)


def test_what_is_no_moment_is_refused() -> None:
    bench = Bench("price")
    with pytest.raises(ValueError, match="no time zone"):
        bench.handle.get(at=datetime(1970, 1, 1))
    for seconds in ("10", 10.5, True):
        with pytest.raises(TypeError, match="whole milliseconds"):
            bench.at(10).set("ten", at=seconds)


def test_clearing_is_a_version_too() -> None:
    bench = Bench("price")
    bench.at(10).set("ten")
    bench.at(20).clear()
    assert [bench.handle.get(at=at) for at in (15, 20)] == ["ten", None]
    assert bench.handle.get() is None
    assert bench.handle.history() == [(10, "ten"), (20, None)]
    bench.handle.forget()
    assert len(bench.handle) == 0


def test_old_versions_expire_and_reads_within_the_history_stay_exact() -> None:
    bench = Bench("price")
    for at_ms in (10, 20, 30, 140):
        bench.at(at_ms).set(str(at_ms))
    assert bench.expire(125) == 3, "what held at 25 and after is kept"
    assert [bench.handle.get(at=at) for at in (25, 30, 139, 140)] == ["20", "30", "30", "140"]
    assert bench.expire(1000) == 1
    assert bench.handle.get() == "140"


def test_a_late_write_that_nobody_can_read_changes_nothing() -> None:
    bench = Bench("price")
    bench.at(10).set("ten")
    bench.at(200).set("late", at=5)
    assert len(bench.handle) == 1
    bench.at(200).set("old but newest", at=15)
    assert bench.handle.get() == "old but newest"
    bench.at(300).set("later than twice the history", at=100)
    assert bench.handle.get() == "old but newest"


def test_a_cleared_value_does_not_come_back_with_a_late_write() -> None:
    bench = Bench("price")
    bench.at(10).set("ten")
    bench.at(20).clear()
    assert bench.expire(130) == 1, "the moment of clearing stays one history longer"
    for now_ms, left in ((130, 1), (220, 0), (230, 0)):
        bench.at(now_ms).set("late", at=15)
        assert bench.handle.get() is None
        assert bench.expire(now_ms + 1) == left
    bench.at(231).set("twenty", at=20)
    assert bench.handle.get() is None


def test_a_moment_of_clearing_outlives_what_it_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that ends between two steps of a pass forgets where it was."""
    monkeypatch.setattr(sys.modules[HistoryExpiry.__module__], "ENTRIES_PER_STEP", 1)
    bench = Bench("price")
    bench.at(10).set("ten")
    bench.at(20).clear()
    bench.expire(1000)
    assert bench.at(1000).get() is None
    assert len(bench.handle) == 2
    assert [bench.expire(1000), bench.expire(1000)] == [1, 1]
    assert [bench.expire(1010), bench.expire(1010)] == [1, 0]


def test_at_most_so_many_versions() -> None:
    bench = Bench("recent")
    for at_ms in (50, 10, 40, 20, 30):
        bench.at(at_ms).set(at_ms)
    assert bench.handle.history() == [(30, 30), (40, 40), (50, 50)]
    assert bench.expiry is None


def test_a_version_holds_for_its_time_to_live() -> None:
    bench = Bench("lease")
    bench.at(0).set("first")
    bench.at(100).set("second")
    reads = {at: bench.handle.get(at=at) for at in (0, 49, 50, 99, 100, 149, 150)}
    assert reads == {0: "first", 49: "first", 50: None, 99: None, 100: "second", 149: "second", 150: None}
    assert bench.at(149).get() == "second"
    assert bench.at(150).get() is None
    assert bench.expire(1060) == 1
    assert bench.expire(1160) == 0


def test_a_pass_over_histories_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[HistoryExpiry.__module__], "ENTRIES_PER_STEP", 3)
    bench = Bench("price")
    for key in (b"a", b"b", b"c"):
        bench.scope.key = key
        for at_ms in range(5):
            bench.at(at_ms).set(str(at_ms))
    left = [bench.expire(1000) for _ in range(6)]
    assert left[-1] == 3
    assert left == sorted(left, reverse=True)
    assert {key[-8:] for key, _ in bench.store.scan()} == {(0x7FFFFFFFFFFFFFFF - 4).to_bytes(8, "big")}
