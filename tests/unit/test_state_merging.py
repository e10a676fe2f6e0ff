"""How two states of one key become one, entry by entry."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.codec.scalar import Integer
from stateflow.codec.timed import stamp
from stateflow.errors import MergeUndefined, StateBoundExceeded
from stateflow.state.declare import declared_fields
from stateflow.state.layout import index_bytes, prefixed_key
from stateflow.state.merging import Entries, StateMerge
from stateflow.state.path import instant

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
        entries = elements(3, 1, 2) if attribute == "recent" else {b"k": number(5, at_ms)}
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
