"""How two states of one key become one, entry by entry."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.codec.scalar import Integer
from stateflow.codec.timed import stamp, stamp_both
from stateflow.codec.timer import EncodedTimer, Timer
from stateflow.errors import MergeUndefined, StateBoundExceeded
from stateflow.state.declare import declared_fields
from stateflow.state.layout import index_bytes, prefixed_key
from stateflow.state.merging import Entries, StateMerge
from stateflow.state.path import instant
from stateflow.state.timers import timers_entry

DAY = timedelta(days=1)


class Every:
    plain: sf.Value[int] = sf.state(default=0)
    dated: sf.Value[int] = sf.state(default=0, ttl=DAY)
    summed: sf.Value[int] = sf.state(default=0, ttl=DAY, merge=int.__add__)
    hits: sf.Counter = sf.state()
    briefly: sf.Counter = sf.state(ttl=DAY)
    peak: sf.Reducing[int] = sf.state(reduce=max, initial=0)
    recent: sf.ListOf[int] = sf.state(max_length=3)
    fresh: sf.SetOf[str] = sf.state(ttl=DAY)
    tags: sf.SetOf[str] = sf.state(max_length=1)
    words: sf.MapOf[str, int] = sf.state()
    dated_words: sf.MapOf[str, int] = sf.state(ttl=DAY)
    passing: sf.ListOf[int] = sf.state(ttl=DAY, max_length=3)
    leased: sf.Value[int] = sf.state(default=0, ttl_per_write=True)
    price: sf.Versioned[int] = sf.state(max_versions=2)


FIELDS = {field.attribute: field for field in declared_fields(Every, "op")}


def merge(attribute: str) -> StateMerge:
    field = FIELDS[attribute]
    return StateMerge(field.entry("stage", sf.String), field.merge())


def merged(attribute: str, ours: Entries, theirs: Entries) -> Entries:
    return merge(attribute).merge(b"k", dict(ours), dict(theirs))


def number(value: int, at_ms: int | None = None) -> bytes:
    return Integer.encode(value) if at_ms is None else stamp(Integer.encode(value), at_ms)


def elements(first: int, *values: int) -> Entries:
    """A list whose first index is ``first``."""
    prefix = prefixed_key(b"k")
    ends = {prefix: struct.pack(">QQ", first, first + len(values))}
    return ends | {prefix + index_bytes(first + at): number(value) for at, value in enumerate(values)}


def test_one_side_alone_stays_as_it_is() -> None:
    for attribute, field in FIELDS.items():
        at_ms = 5 if field.options.ttl else None
        entries = elements(3, 1, 2) if field.kind.kind == "list" else {b"k": number(5, at_ms)}
        assert merged(attribute, entries, {}) == merged(attribute, {}, entries) == entries


def test_counters_add_and_vanish_at_zero() -> None:
    assert merged("hits", {b"k": number(5)}, {b"k": number(-2)}) == {b"k": number(3)}
    assert merged("hits", {b"k": number(5)}, {b"k": number(-5)}) == {}
    assert merged("briefly", {b"k": number(5, 10)}, {b"k": number(1, 7)}) == {b"k": number(6, 10)}
    with pytest.raises(StateBoundExceeded):
        merged("hits", {b"k": number((1 << 63) - 1)}, {b"k": number(1)})


def test_reducing_reduces() -> None:
    assert merged("peak", {b"k": number(5)}, {b"k": number(9)}) == {b"k": number(9)}


def test_values_by_their_function_else_the_newest() -> None:
    ours, theirs = {b"k": number(5, 10)}, {b"k": number(7, 11)}
    assert merged("dated", ours, theirs) == merged("dated", theirs, ours) == theirs
    assert merged("dated", ours, {b"k": number(7, 10)}) == ours, "at the same time ours stands"
    assert merged("summed", ours, theirs) == {b"k": number(12, 11)}


def test_what_nothing_can_merge_is_refused_even_if_equal() -> None:
    assert not merge("plain").is_defined
    with pytest.raises(MergeUndefined) as caught:
        merged("plain", {b"k": number(5)}, {b"k": number(5)})
    assert (caught.value.fields["store"], caught.value.exit_code) == ("op-plain", 46)


def test_sets_unite_beyond_their_max_length_and_keep_the_newest_time() -> None:
    one, two = prefixed_key(b"k", b"a"), prefixed_key(b"k", b"b")
    assert merged("tags", {one: b""}, {two: b""}) == {one: b"", two: b""}
    assert merged("fresh", {one: stamp(b"", 5)}, {one: stamp(b"", 9)}) == {one: stamp(b"", 9)}


def test_lists_follow_one_another() -> None:
    assert merged("recent", elements(7, 1, 2), elements(4, 3)) == elements(7, 1, 2, 3)
    assert merged("recent", elements(7, 1, 2), elements(0, 3, 4)) == elements(8, 2, 3, 4)
    assert merged("recent", elements(0, 1), elements(5, 2, 3, 4)) == elements(1, 2, 3, 4)
    assert merge("recent").meets(elements(0, 1), elements(9, 1))


def test_lists_that_forget_keep_their_holes() -> None:
    prefix = prefixed_key(b"k")

    def forgetting(first: int, after: int, at_ms: int, values: dict[int, int]) -> Entries:
        ends = {prefix: stamp(struct.pack(">QQ", first, after), at_ms)}
        return ends | {prefix + index_bytes(index): number(n, at_ms) for index, n in values.items()}

    ours = forgetting(2, 4, 10, {3: 30})
    theirs = forgetting(5, 8, 20, {4: 99, 5: 50, 7: 70})
    expected = {prefix: stamp(struct.pack(">QQ", 4, 7), 20)}
    expected |= {prefix + index_bytes(index): number(n, 20) for index, n in {4: 50, 6: 70}.items()}
    assert merged("passing", ours, theirs) == expected


def test_values_with_their_own_time_to_live_keep_the_longer() -> None:
    ours, theirs = stamp_both(number(1), 10, 100), stamp_both(number(2), 20, 50)
    assert merged("leased", {b"k": ours}, {b"k": theirs}) == {b"k": theirs}, "the one written last"


def test_of_two_timers_the_one_set_last() -> None:
    entry = timers_entry("op-timers", sf.String)
    ours, theirs = (EncodedTimer.encode(Timer("event", due, set_ms)) for due, set_ms in ((50, 10), (70, 9)))
    other = EncodedTimer.encode(Timer("processing", 1, 2))
    found = StateMerge(entry).merge(b"k", {b"a": ours, b"b": other}, {b"a": theirs, b"c": other})
    assert found == {b"a": ours, b"b": other, b"c": other}


def test_maps_merge_entry_by_entry() -> None:
    a, b, c = (prefixed_key(b"k", name) for name in (b"a", b"b", b"c"))
    ours, theirs = {a: number(1, 1), b: number(2, 5)}, {b: number(3, 4), c: number(4, 1)}
    assert merged("dated_words", ours, theirs) == {a: number(1, 1), b: number(2, 5), c: number(4, 1)}
    assert merged("words", {a: number(1)}, {b: number(2)}) == {a: number(1), b: number(2)}
    with pytest.raises(MergeUndefined):
        merged("words", {a: number(1)}, {a: number(2)})
    assert not merge("words").meets({a: number(1)}, {b: number(2)})


def test_versions_interleave_and_are_bounded_again() -> None:
    keys = {at: prefixed_key(b"k", instant(at)) for at in (1, 2, 3)}
    version = b"\x01" + number(9)
    ours, theirs = {keys[1]: version, keys[3]: version}, {keys[2]: b"\x00"}
    assert merged("price", ours, theirs) == {keys[3]: version, keys[2]: b"\x00"}
    with pytest.raises(MergeUndefined):
        merged("price", ours, {keys[3]: version})
