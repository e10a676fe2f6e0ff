"""The newest value per key: what the core gives out is what its twin does, byte for byte."""

from __future__ import annotations

import gc
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.native.loading import core
from stateflow.native.newest import NativeNewest, NewestValues, PlainNewest, newest_values
from stateflow.store.base import assert_sorted

IGNORED = b"\xff\xffsf\x00"
Changes = list[tuple[bytes | None, bytes | None]]


def empty_ones(ignored: bytes = IGNORED) -> list[NewestValues]:
    """One of each that this process can have."""
    used = core()
    return [PlainNewest(ignored), *([] if used is None else [NativeNewest(used, ignored)])]


def expected(changes: Changes) -> list[tuple[bytes, bytes | None]]:
    newest = {key: value for key, value in changes if key is not None and not key.startswith(IGNORED)}
    return sorted(newest.items(), key=lambda entry: entry[0])


def fill(newest: NewestValues, changes: Changes) -> int:
    return newest.add([key for key, _ in changes], [value for _, value in changes])


KEYS = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from([b"", b"a", b"ab", b"a\x00", IGNORED, IGNORED[:-1], IGNORED + b"commit", b"\xff" * 20]),
    st.integers(0, 300).map(lambda number: b"common-to-all-keys-%06d" % number),
)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=70)), max_size=400)


@given(CHANGES, CHANGES)
def test_newest_values_in_order_of_their_keys(first: Changes, second: Changes) -> None:
    for newest in empty_ones():
        for part in (first, second):
            size_bytes = sum(len(key or b"") + len(value or b"") for key, value in part)
            assert fill(newest, part) == size_bytes
        rows = newest.ordered()
        assert list(rows) == expected(first + second)
        assert len(rows) == len(list(rows))
        assert_sorted(list(rows))


@pytest.mark.parametrize("letters", [b"\x00", b"\x00a", b"ab\xff", bytes(range(256))])
@pytest.mark.parametrize("keys", [127, 128, 129, 3_000])
def test_keys_that_differ_late_or_not_in_their_first_bytes_are_ordered(letters: bytes, keys: int) -> None:
    draw = random.Random(keys)
    changes: Changes = [
        (bytes(draw.choices(letters, k=draw.choice([0, 3, 8, 9, 17, 30]))), b"%d" % number)
        for number in range(keys)
    ]
    changes += [(b"same eight" + key, value) for key, value in changes if key is not None]
    for newest in empty_ones():
        fill(newest, changes)
        assert list(newest.ordered()) == expected(changes)


@given(CHANGES, CHANGES)
def test_cleared_it_is_as_new(first: Changes, second: Changes) -> None:
    for newest in empty_ones():
        held_bytes = newest.held_bytes
        fill(newest, first)
        newest.ordered()
        newest.clear()
        assert (len(newest), newest.held_bytes) == (0, held_bytes)
        fill(newest, second)
        assert list(newest.ordered()) == expected(second)


def test_many_keys_and_large_values() -> None:
    changes: Changes = [
        (b"%d" % (number * 7919 % 50_000), bytes([number % 256]) * 30) for number in range(120_000)
    ]
    changes += [(b"large-%d" % number, b"v" * 300_000) for number in range(10)]
    changes += [(b"large-%d" % number, b"w" * (299_000 + 400 * number)) for number in range(10)]
    for newest in empty_ones():
        fill(newest, changes)
        rows = newest.ordered()
        assert list(rows) == expected(changes)
        assert [rows[0], *rows[1:3], rows[-1]] == [*expected(changes)[:3], expected(changes)[-1]]
        with pytest.raises(IndexError):
            rows[len(rows)]


def test_what_is_held_is_told() -> None:
    for newest in empty_ones():
        fill(newest, [(b"%08d" % number, bytes(100)) for number in range(10_000)])
        assert 1_080_000 < newest.held_bytes < 6_000_000
        newest.trim()
        for _ in range(20):
            fill(newest, [(b"%08d" % number, bytes(100)) for number in range(10_000)])
        newest.trim()
        assert newest.held_bytes < 6_000_000, "a value in the place of one as long takes nothing"


def test_what_is_not_bytes_is_refused() -> None:
    for newest in empty_ones():
        with pytest.raises(TypeError):
            newest.add([1], [b""])  # type: ignore[list-item]


def test_rows_keep_their_memory() -> None:
    for newest in empty_ones():
        fill(newest, [(b"b", b"2"), (b"a", None)])
        rows = newest.ordered()
        del newest
        gc.collect()
        assert list(rows) == [(b"a", None), (b"b", b"2")]


def test_what_is_in_use_is_used() -> None:
    assert type(newest_values(IGNORED)) is (PlainNewest if core() is None else NativeNewest)
