"""What falls due, in order: against a plain set, in bounded memory, and by looks at the store that are counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.catalog.model import StoreEntry
from stateflow.clock import ManualClock
from stateflow.codec.timer import EncodedTimer, Timer
from stateflow.state.due_order import TimerOrder, TimersByDue, WindowOrder, WindowsByStart
from stateflow.state.layout import prefixed_key, window_key
from stateflow.state.scope import Scope
from stateflow.state.soonest import ENTRIES_MAX
from stateflow.state.timers import DueTimer, Timers, timers_entry
from stateflow.store.base import Change
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryReader

STARTS = st.integers(0, 6).map(lambda number: number * 1_000)
KEYS = st.sampled_from([b"a", b"b", b"ab", b"\xff" * 9])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), STARTS, KEYS),
        st.tuples(st.sampled_from(["take", "look", "last", "commit"]), STARTS, st.just(b"")),
    ),
    max_size=40,
)


class Counted:
    """A committed store that counts how often it is looked at, and the entries that it gives."""

    def __init__(self, changes: Sequence[Change] = ()) -> None:
        self.reader = MemoryReader()
        self.reader.change(changes)
        self.scans = self.entries = 0
        self.get, self.get_many = self.reader.get, self.reader.get_many

    def scan(self, first: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        self.scans += 1
        return self._counted(self.reader.scan(first, after))

    def _counted(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for entry in entries:
            self.entries += 1
            yield entry


def commit(store: DirtyStore, reader: MemoryReader) -> None:
    reader.change(store.changes())
    store.committed()


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 4))
def test_windows_come_out_by_start_and_key(steps: list[tuple[str, int, bytes]], limit: int) -> None:
    reader = MemoryReader()
    store = DirtyStore(reader)
    order, model = WindowOrder(store), set[tuple[int, bytes]]()
    for verb, start_ms, key in steps:
        if verb == "add":
            order.add([(start_ms, window_key(key, start_ms))])
            model.add((start_ms, window_key(key, start_ms)))
        elif verb == "commit":
            commit(store, reader)
            order = WindowOrder(store)  # a successor knows nothing but what is on disk
        elif verb == "last":
            assert order.last_start_ms() == max((start for start, _ in model), default=None)
        elif verb == "look":
            assert order.may_be_due(start_ms) == any(start <= start_ms for start, _ in model)
        else:
            due = sorted(window for window in model if window[0] <= start_ms)[:limit]
            assert order.take_until(start_ms, limit) == due
            model -= set(due)
    assert order.take_until(10_000, 100) == sorted(model)


def made(
    entries: Callable[[bytes, bytes | None], set[bytes]], stored: Sequence[tuple[bytes, bytes]]
) -> Counted:
    """What an index that was made of a store's entries holds."""
    found = sorted({entry for key, data in stored for entry in entries(key, data)})
    return Counted([(entry, b"") for entry in found])


def window_store(count: int) -> list[tuple[bytes, bytes]]:
    return [
        (window_key(b"customer-%08d" % (number // 20), number % 20 * 60_000), b"1") for number in range(count)
    ]


def windows_on_disk(count: int) -> Counted:
    entry = StoreEntry(name="n", stage="", kind="window", layout="window", key_codec={}, value_codec={})
    return made(WindowsByStart(entry).entries, window_store(count))


def timers_on_disk(stored: Sequence[tuple[bytes, bytes]]) -> tuple[Counted, Counted]:
    entry = timers_entry("t", sf.String)
    return Counted(stored), made(TimersByDue(entry).entries, stored)


def timer(due_ms: int) -> bytes:
    return EncodedTimer.encode(Timer("event", due_ms, 0))


def test_windows_cost_no_memory_and_closing_looks_at_those_that_close() -> None:
    disk = windows_on_disk(100_000)
    list(disk.scan())  # the in-memory store sorts its keys
    disk.scans = disk.entries = 0
    tracemalloc.start()
    order = WindowOrder(DirtyStore(disk, read_cache_bytes=0))
    assert not order.may_be_due(-1)
    assert len(order.take_until(0, 500)) == 500
    assert order.last_start_ms() == 19 * 60_000
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 500_000  # 102 MB per million windows were 10 MB here
    assert disk.entries < 1_000


def test_taking_many_windows_reads_each_a_bounded_number_of_times() -> None:
    disk = windows_on_disk(20_000)
    store = DirtyStore(disk, read_cache_bytes=0)
    order, taken = WindowOrder(store), 0
    while order.may_be_due(19 * 60_000):
        taken += len(order.take_until(19 * 60_000, 500))
        if taken % 2_000 == 0:
            commit(store, disk.reader)
    assert taken == 20_000
    assert disk.entries < 5 * taken


@pytest.mark.parametrize("count", [20_000])
def test_timers_take_bounded_memory_however_many_are_pending(count: int) -> None:
    stored = [(prefixed_key(b"key-%08d" % number, b"idle"), timer(number)) for number in range(count)]
    disk, order = timers_on_disk(stored)
    list(order.scan())
    order.scans = order.entries = 0
    tracemalloc.start()
    timers = Timers(DirtyStore(disk), DirtyStore(order, 0), Scope(), ManualClock())
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 400 * ENTRIES_MAX
    assert disk.scans == 0
    assert order.entries <= ENTRIES_MAX // 2 + 2
    assert timers.may_be_due(0, 0)


def test_firing_many_timers_reads_each_a_bounded_number_of_times() -> None:
    count = 5_000
    stored = [(prefixed_key(b"key-%08d" % number, b"idle"), timer(number)) for number in range(count)]
    disk, order = timers_on_disk(stored)
    timers = Timers(DirtyStore(disk), DirtyStore(order, 0), Scope(), ManualClock(), entries_max=100)
    fired = 0
    while (due := timers.next_due(count)) is not None:
        timers.done(due)
        fired += 1
    assert fired == count
    assert disk.scans == 0
    assert order.entries < 2 * count


def hot_key(count: int, entries_max: int) -> tuple[Timers, Counted, Counted]:
    stored = [(prefixed_key(b"hot", b"t%07d" % number), timer(1_000 + number)) for number in range(count)]
    stored += [(prefixed_key(b"other-%07d" % number, b"t"), timer(10)) for number in range(2 * entries_max)]
    disk, order = timers_on_disk(sorted(stored))
    return Timers(DirtyStore(disk), DirtyStore(order, 0), Scope(), ManualClock(), entries_max), disk, order


def test_a_record_of_a_hot_key_costs_a_look_and_not_all_its_timers() -> None:
    timers, disk, order = hot_key(10_000, entries_max=100)
    order.scans = order.entries = 0
    for _ in range(1_000):  # more is due than memory holds, but nothing of this key
        assert timers.next_due_of(b"hot", 500) is None
    assert disk.scans == 0
    assert order.scans <= 1_000
    assert order.entries <= 1_000


def test_all_timers_of_a_hot_key_fire_at_the_cost_of_each() -> None:
    count = 5_000
    timers, disk, order = hot_key(count, entries_max=100)
    order.scans = order.entries = 0
    fired: list[DueTimer] = []
    while (due := timers.next_due_of(b"hot", 1_000 + count)) is not None:
        timers.done(due)
        fired.append(due)
    assert [due.timer.due_ms for due in fired] == list(range(1_000, 1_000 + count))
    assert disk.scans == 0
    assert order.entries <= 3 * count


def test_a_hot_keys_timers_of_one_epoch_cost_each_the_same() -> None:
    """Set, and due, before anything is committed: what was fired of the epoch is not passed over again."""
    changed = DirtyStore(MemoryReader())
    order = TimerOrder(changed)
    for number in range(3_000):
        order.add("event", number, prefixed_key(b"hot", b"t%07d" % number))
    looked_at = 0
    keys = changed._ordered()
    real = keys.from_key

    def counted(first: bytes) -> Iterator[bytes]:
        nonlocal looked_at
        for key in real(first):
            looked_at += 1
            yield key

    keys.from_key = counted  # type: ignore[method-assign]
    for number in range(3_000):
        due = order.soonest_of(b"hot", 10_000)
        assert due is not None
        assert due[0] == number
        order.remove("event", *due)
    assert looked_at < 5 * 3_000


def test_a_timer_set_for_earlier_than_what_has_fired_is_found() -> None:
    timers, _, _ = hot_key(10, entries_max=2)
    due = timers.next_due_of(b"hot", 2_000)
    assert due is not None
    timers.done(due)
    timers._scope.key = b"hot"
    timers.set("sooner", 5, "event")
    due = timers.next_due_of(b"hot", 2_000)
    assert (due and due.name, due and due.timer.due_ms) == ("sooner", 5)


def test_moving_a_timer_to_and_fro_leaves_nothing_behind() -> None:
    changed = DirtyStore(MemoryReader())
    scope = Scope()
    timers = Timers(DirtyStore(MemoryReader()), changed, scope, ManualClock())
    scope.key = b"k"
    for number in range(100):
        timers.set("t", 10_000 - number, "event")
        timers.set("t", 20_000 + number, "event")
    assert len(list(changed.scan())) == 2  # one by time, one by key
    timers.cancel("t")
    assert list(changed.scan()) == []


def test_timers_that_were_all_put_off_are_put_right_in_turns() -> None:
    timers = Timers(DirtyStore(MemoryReader()), DirtyStore(MemoryReader()), Scope(), ManualClock())
    count = 3_000
    for due_ms in (1_000, 2_000):
        for number in range(count):
            timers._scope.key = b"%d" % number
            timers.set("t", due_ms, "event")
    turns, order = 0, timers._order
    real, checked = order.remove, 0

    def counted(*entry: Any) -> None:
        nonlocal checked
        checked += 1
        real(*entry)

    order.remove = counted  # type: ignore[method-assign,assignment]
    while timers.may_be_due(1_500, -1):
        before = checked
        assert timers.next_due(1_500) is None
        assert checked - before <= 1_000
        turns += 1
    assert (turns, checked) == (3, count)
    fired = 0
    while (due := timers.next_due(2_000)) is not None:
        timers.done(due)
        fired += 1
    assert fired == count
