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
from stateflow.memory import ENTRY_BYTES
from stateflow.native.folds import Folding
from stateflow.native.loading import core
from stateflow.store.decoded import VALUE_BYTES, DecodedStore
from stateflow.store.dirty import DirtyStore
from stateflow.store.folded import FoldedStore, decoded_in_place_of
from stateflow.store.memory import MemoryReader

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
        folding = Folding("count") if kind is FoldedStore else None
        self.store = decoded_in_place_of(DirtyStore(self.reader, room_bytes), sf.Integer, folding)
        assert type(self.store) is kind

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
    plain, folded = (Counted(kind, stored, room_bytes) for kind in (DecodedStore, FoldedStore))
    for epoch in epochs:
        changed = set[bytes]()
        for keys in epoch:
            changed |= set(keys)
            for each in (plain, folded):
                each.store.add_ones(keys)
            assert plain.store.is_dirty == folded.store.is_dirty == bool(changed)
            assert folded.store.dirty_bytes == sum(VALUE_BYTES + len(key) for key in changed)
            assert folded.store.held_bytes - folded.store.dirty_bytes == ENTRY_BYTES * len(changed)
            assert plain.store.held_bytes - plain.store.dirty_bytes == ENTRY_BYTES * len(changed)
        assert plain.commit() == folded.commit()
        assert (folded.store.is_dirty, folded.store.held_bytes) == (False, 0)
    assert dict(plain.reader.scan()) == dict(folded.reader.scan())


@native
@pytest.mark.parametrize("room_bytes", ROOMS)
def test_many_keys_through_a_small_room(room_bytes: int) -> None:
    """Generations are left behind and totals looked up again, whatever of them is remembered."""
    draw, totals = random.Random(4), dict[bytes, int]()
    counted = Counted(FoldedStore, {}, room_bytes)
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
    counted = Counted(FoldedStore, {b"a": 7}, 1 << 20)
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
    counted = Counted(FoldedStore, {b"a": 7}, 1 << 20)
    counted.store.add_ones([b"a", b"b", b"a"])
    counted.store.changes()
    counted.store.clear()
    assert (counted.store.is_dirty, counted.store.dirty_bytes, counted.store.held_bytes) == (False, 0, 0)
    counted.store.add_ones([b"a"])
    assert counted.commit() == [(b"a", sf.Integer.encode(8))]


@pytest.mark.parametrize("kind", [DecodedStore, *([] if core() is None else [FoldedStore])])
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
    counts = sf.count()
    assert (counts.folding, counts.codec()) == (Folding("count"), sf.Integer)


class _Asked(MemoryReader):
    """Notes what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        assert list(keys) == list(accumulate(keys, max)), "sorted keys are fastest"
        self.asked += keys
        return super().get_many(keys)
