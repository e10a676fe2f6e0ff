"""Counting in the core gives what counting in Python gives, byte for byte, with the same bounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.errors import DecodeError, EncodeError
from stateflow.native.loading import core
from stateflow.native.tally import Tally
from stateflow.store.decoded import DecodedStore
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryReader
from stateflow.store.tallied import TalliedStore, counted_in_place_of

pytestmark = pytest.mark.slow

native = pytest.mark.skipif(core() is None, reason="the native core is not in use")

KEYS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"a", b"ab", b"a\x00", b"\x00", b"\xff" * 20]),
    st.integers(0, 60).map(lambda number: b"common-to-all-keys-%06d" % number),
)
EPOCHS = st.lists(st.lists(st.lists(KEYS, max_size=60), max_size=4), max_size=8)
ROOMS = [0, 64 << 10, 128 << 10, 1 << 20]
"""Too little for anything, a generation of what is smallest, two of some, and all."""


class Counted:
    """One of the two, over content of its own."""

    def __init__(self, kind: type[DecodedStore], stored: dict[bytes, int], room_bytes: int) -> None:
        self.reader = _Asked()
        self.reader.change([(key, sf.Integer.encode(value)) for key, value in sorted(stored.items())])
        self.store = kind(self.reader, sf.Integer, room_bytes)

    def commit(self) -> list[tuple[bytes, bytes | None]]:
        changes = list(self.store.changes())
        assert changes == list(self.store.changes()), "asked twice it says the same"
        self.reader.change(changes)
        self.store.committed()
        return changes


@native
@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, st.integers(-(1 << 60), 1 << 60), max_size=20), EPOCHS, st.sampled_from(ROOMS))
def test_the_same_changes_and_the_same_bounds(
    stored: dict[bytes, int], epochs: list[list[list[bytes]]], room_bytes: int
) -> None:
    plain, tallied = (Counted(kind, stored, room_bytes) for kind in (DecodedStore, TalliedStore))
    for epoch in epochs:
        for keys in epoch:
            for each in (plain, tallied):
                each.store.add_ones(keys)
            for told in ("is_dirty", "dirty_bytes", "held_bytes"):
                assert getattr(plain.store, told) == getattr(tallied.store, told), told
        assert plain.commit() == tallied.commit()
        assert (tallied.store.is_dirty, tallied.store.held_bytes) == (False, 0)
    assert dict(plain.reader.scan()) == dict(tallied.reader.scan())


@native
@pytest.mark.parametrize("room_bytes", ROOMS)
def test_many_keys_through_a_small_room(room_bytes: int) -> None:
    """Generations are left behind and totals looked up again, whatever of them is remembered."""
    draw, totals = random.Random(4), dict[bytes, int]()
    counted = Counted(TalliedStore, {}, room_bytes)
    for size in (10, 4_000, 300, 20_000, 50, 20_000, 300, 4_000):
        keys = [b"%d" % draw.randrange(size) for _ in range(size)]
        for key in keys:
            totals[key] = totals.get(key, 0) + 1
        counted.store.add_ones(keys)
        changes = counted.commit()
        assert changes == [(key, sf.Integer.encode(totals[key])) for key in sorted(set(keys))]
    assert {key: sf.Integer.decode(data) for key, data in counted.reader.scan()} == totals


@native
def test_what_was_committed_is_not_read_again() -> None:
    counted = Counted(TalliedStore, {b"a": 7}, 1 << 20)
    for wanted in (8, 9, 10):
        counted.store.add_ones([b"a"])
        assert counted.commit() == [(b"a", sf.Integer.encode(wanted))]
    assert counted.reader.asked == [b"a"]
    counted.store.limit_cache(0)
    counted.store.add_ones([b"a"])
    assert counted.commit() == [(b"a", sf.Integer.encode(11))]
    assert counted.reader.asked == [b"a", b"a"]


@native
def test_an_epoch_that_is_dropped_leaves_nothing() -> None:
    counted = Counted(TalliedStore, {b"a": 7}, 1 << 20)
    counted.store.add_ones([b"a", b"b", b"a"])
    counted.store.changes()
    counted.store.clear()
    assert (counted.store.is_dirty, counted.store.dirty_bytes, counted.store.held_bytes) == (False, 0, 0)
    counted.store.add_ones([b"a"])
    assert counted.commit() == [(b"a", sf.Integer.encode(8))]


@native
def test_totals_keep_to_their_room() -> None:
    used = core()
    assert used is not None
    for room_bytes in ROOMS:
        tally = Tally(used, room_bytes)
        for number in range(60):
            tally.add([b"%d-%d" % (number, row) for row in range(200)])
            tally.columns(lambda keys: [None] * len(keys))
            tally.committed()
            assert tally.remembered_bytes <= room_bytes
        assert room_bytes == 0 or tally.remembered_bytes > 0
        tally.limit(room_bytes // 100)
        assert tally.remembered_bytes <= room_bytes // 100


@pytest.mark.parametrize("kind", [DecodedStore, *([] if core() is None else [TalliedStore])])
def test_what_cannot_be_counted_is_refused_alike(kind: type[DecodedStore]) -> None:
    largest = Counted(kind, {b"a": 1, b"most": (1 << 63) - 2, b"z": 1}, 1 << 20)
    largest.store.add_ones([b"most", b"z", b"a"])
    assert largest.commit()[1] == (b"most", sf.Integer.encode((1 << 63) - 1))
    largest.store.add_ones([b"most", b"z", b"a"])
    with pytest.raises(EncodeError) as too_large:
        largest.store.changes()
    assert too_large.value.fields["row"] == 1

    damaged = Counted(kind, {b"a": 1, b"z": 1}, 1 << 20)
    damaged.reader.change([(b"m", b"not eight bytes")])
    damaged.store.add_ones([b"z", b"m", b"a", b"b"])
    with pytest.raises(DecodeError) as no_number:
        damaged.store.changes()
    assert no_number.value.fields["row"] == 2


@native
def test_the_core_is_taken_for_what_it_can_encode() -> None:
    stores = [
        counted_in_place_of(DirtyStore(MemoryReader(), 1 << 20), codec) for codec in (sf.Integer, sf.Int32)
    ]
    assert [type(store) for store in stores] == [TalliedStore, DecodedStore]


class _Asked(MemoryReader):
    """Notes what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        assert list(keys) == list(accumulate(keys, max)), "sorted keys are fastest"
        self.asked += keys
        return super().get_many(keys)
