"""The index of due timers against a plain dict: nothing is ever missing, whatever is put off, cut off or refilled."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stateflow.clock import ManualClock
from stateflow.codec.timer import EncodedTimer, Timer
from stateflow.state.scope import Scope
from stateflow.state.soonest import Soonest
from stateflow.state.timers import DueTimer, Timers
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryReader

KEYS = st.integers(0, 12).map(lambda number: f"k{number:02d}".encode())
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 100)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("move"), st.just(b""), st.integers(0, 30)),
        st.tuples(st.just("record"), KEYS, st.integers(0, 60)),
        st.tuples(st.just("undo"), KEYS, st.integers(0, 100)),
    ),
    max_size=60,
)


def new_timers(entries_max: int) -> tuple[Timers, Scope, DirtyStore, DirtyStore]:
    scope, store = Scope(), DirtyStore(MemoryReader())
    order = DirtyStore(MemoryReader())
    return Timers(store, order, scope, ManualClock(), entries_max), scope, store, order


@given(
    st.lists(st.tuples(KEYS, st.integers(0, 40)), max_size=80),
    st.integers(1, 4),
    st.integers(4, 12),
    st.lists(st.integers(0, 80), min_size=1, max_size=10),
)
@settings(deadline=None)
def test_what_few_fall_due_by_is_never_more_than_twice_so_many(
    added: list[tuple[bytes, int]], count: int, entries_max: int, asked: list[int]
) -> None:
    soonest = Soonest(entries_max)
    truth: dict[bytes, int] = {}
    now_ms = 0
    for number, (key, due_ms) in enumerate(added):
        soonest.add(key, now_ms + due_ms)
        truth[key] = min(now_ms + due_ms, truth.get(key, now_ms + due_ms))
        if number not in asked:
            continue
        until_ms = soonest.few_until_ms(count)
        few = [due for due in truth.values() if until_ms is None or due <= until_ms]
        assert len(few) <= 2 * count
        now_ms += 7
        while soonest.pop(now_ms) is not None:
            pass
        truth = {key: due for key, due in truth.items() if due > now_ms}


def fired(timers: Timers, watermark_ms: int) -> list[DueTimer]:
    found = []
    while (due := timers.next_due(watermark_ms)) is not None:
        timers.done(due)
        found.append(due)
    return found


def fired_before(timers: Timers, key: bytes, watermark_ms: int) -> list[DueTimer]:
    """What fires before a record of a key that moves event time there."""
    found = []
    while (due := timers.next_due_of(key, watermark_ms)) is not None:
        timers.done(due)
        found.append(due)
    return found


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([2, 4, 1000]))
def test_every_timer_fires_once_in_order_when_it_is_due(
    steps: list[tuple[str, bytes, int]], entries_max: int
) -> None:
    timers, scope, store, order = new_timers(entries_max)
    pending: dict[bytes, int] = {}
    now_ms = 0
    for verb, key, number in steps:
        scope.key = key
        if verb == "set":
            timers.set("t", number, "event")
            pending[key] = number
        elif verb == "cancel":
            timers.cancel("t")
            pending.pop(key, None)
        elif verb == "undo":
            marks = [(each, each.mark()) for each in (store, order)]
            timers.set("t", number, "event")
            for each, mark in marks:
                each.rollback(mark)
        elif verb == "record":
            due_ms = pending.get(key)
            is_due = due_ms is not None and due_ms <= now_ms + number
            before = fired_before(timers, key, now_ms + number)
            assert [(due.timer.due_ms, due.key) for due in before] == ([(due_ms, key)] if is_due else [])
            if is_due:
                del pending[key]
            assert timers.none_before_ms(now_ms) <= min([now_ms, *pending.values()])
        else:
            now_ms += number
            expected = sorted((due, key) for key, due in pending.items() if due <= now_ms)
            assert [(due.timer.due_ms, due.key) for due in fired(timers, now_ms)] == expected
            for _, gone in expected:
                del pending[gone]
            assert not timers.may_be_due(now_ms, now_ms=0)
            assert timers.none_before_ms(now_ms) == now_ms
    assert [(due.timer.due_ms, due.key) for due in fired(timers, 1000)] == sorted(
        (due, key) for key, due in pending.items()
    )


def test_a_timer_changes_from_one_time_to_the_other() -> None:
    timers, scope, _, _ = new_timers(10)
    scope.key = b"k"
    timers.set("t", 5, "event")
    timers.set("t", 5, "processing")
    assert fired(timers, 100) == []
    assert not timers.may_be_due(100, now_ms=4)
    assert timers.may_be_due(-1, now_ms=5)


def test_setting_the_same_again_writes_nothing() -> None:
    timers, scope, store, _ = new_timers(10)
    scope.key = b"k"
    timers.set("t", 5, "event")
    store.committed()
    timers.set("t", 5, "event")
    timers.cancel("another")
    assert not store.is_dirty


def test_the_index_stays_small_however_often_a_timer_is_moved() -> None:
    soonest = Soonest(entries_max=50)
    for step in range(20_000):
        soonest.add(b"%d" % (step % 40), 1_000_000 - step)
    assert len(soonest) == 40
    assert len(soonest._heap) < 1_200


def test_more_timers_than_the_index_holds_fire_in_order() -> None:
    timers, scope, store, order = new_timers(100)
    for number in range(1_000):
        scope.key = f"k{number:04d}".encode()
        timers.set("t", (number * 7919) % 1000, "event")
    again = Timers(store, order, scope, ManualClock(), 100)
    assert [due.timer.due_ms for due in fired(again, 2_000)] == list(range(1_000))


def test_what_is_stored_says_when_it_was_set() -> None:
    timers, scope, store, _ = new_timers(10)
    scope.key, scope.timestamp_ms, scope.mark_ms = b"k", 70, 77
    timers.set("t", 500, "processing")
    (stored,) = [data for _, data in store.scan()]
    assert EncodedTimer.decode(stored) == Timer("processing", 500, 77)


def test_a_keys_timers_are_looked_for_only_when_one_may_be_due() -> None:
    timers, scope, _, _ = new_timers(1000)
    for number in range(100):
        scope.key = b"k%d" % number
        timers.set("t", 10 if number else 5, "event")
    scope.key = b"k0"
    timers.set("t", 20, "event")  # put off: its first entry comes up once, and is put right
    assert [timers.may_be_due_of(b"k0", now_ms) for now_ms in (4, 5)] == [False, True]
    assert fired_before(timers, b"k0", 5) == []
    assert not timers.may_be_due_of(b"k0", 19)
    assert [due.key for due in fired_before(timers, b"k1", 10)] == [b"k1"]
    assert not timers.may_be_due_of(b"k1", 11)
    assert timers.may_be_due_of(b"k2", 10)
    assert [due.key for due in fired_before(timers, b"k0", 20)] == [b"k0"]
    assert len(fired(timers, 20)) == 98


def test_several_timers_of_a_key_come_in_the_order_of_time_whatever_they_set() -> None:
    for entries_max in (1000, 2):  # in the index, and with more due than it holds
        timers, scope, _, _ = new_timers(entries_max)
        scope.key = b"k"
        for name, due_ms in (("a", 7), ("b", 3), ("c", 5), ("d", 90)):
            timers.set(name, due_ms, "event")
        order = []
        while (due := timers.next_due_of(b"k", 10)) is not None:
            timers.done(due)
            order.append((due.name, due.timer.due_ms))
            if due.name == "b":
                timers.set("b", due.timer.due_ms + 1, "event") if due.timer.due_ms < 5 else timers.cancel("a")
        assert order == [("b", 3), ("b", 4), ("b", 5), ("c", 5)]
        assert [due.name for due in fired(timers, 90)] == ["d"]


def test_a_record_that_is_earlier_than_the_one_before_it_fires_no_timer_beyond_itself() -> None:
    """Behind a step that sorts, the records of each key are in order, those of several keys are not."""
    timers, scope, *_ = new_timers(1_000)
    for key, due_ms in ((b"a", 10), (b"b", 20), (b"b", 30)):
        scope.key = key
        timers.set(f"at-{due_ms}", due_ms, "event")
    assert [due.name for due in fired_before(timers, b"a", 25)] == ["at-10"]
    assert fired_before(timers, b"b", 15) == []
    assert [due.name for due in fired_before(timers, b"b", 20)] == ["at-20"]
    assert [due.name for due in fired(timers, 30)] == ["at-30"]
