"""Event time over several upstreams: never ahead of the slowest, never backwards, kept beside the offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.errors import StateCorrupt
from stateflow.runtime.watermarks import UNKNOWN_MS, Watermarks, decode_record, encode_record

observations = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**13), st.booleans()), max_size=40)


def test_value_is_unknown_until_every_upstream_has_spoken() -> None:
    marks = Watermarks(2)
    assert not marks.observe(0, 500)
    assert marks.value_ms == UNKNOWN_MS
    assert marks.observe(1, 300)
    assert marks.value_ms == 300


def test_a_fast_upstream_does_not_move_the_value() -> None:
    marks = Watermarks(2)
    marks.observe(0, 100)
    marks.observe(1, 100)
    assert not marks.observe(0, 9_000)
    assert marks.value_ms == 100


def test_an_idle_upstream_is_left_out_until_it_speaks_again() -> None:
    marks = Watermarks(2)
    marks.observe(0, 100)
    marks.observe(1, 50)
    assert marks.observe(1, 50, idle=True)
    assert marks.value_ms == 100
    marks.observe(1, 60)
    assert marks.value_ms == 100, "event time never runs backwards"
    marks.observe(0, 500)
    assert marks.value_ms == 100, "the slow one is waited for again"


def test_with_all_idle_the_furthest_counts() -> None:
    marks = Watermarks(2)
    marks.observe(0, 100, idle=True)
    marks.observe(1, 700, idle=True)
    assert marks.value_ms == 700


@given(observations)
def test_the_value_never_falls(steps: list[tuple[int, int, bool]]) -> None:
    marks = Watermarks(4)
    before = marks.value_ms
    for upstream, mark_ms, idle in steps:
        marks.observe(upstream, mark_ms, idle=idle)
        assert marks.value_ms >= before
        before = marks.value_ms


@given(observations)
def test_metadata_round_trip(steps: list[tuple[int, int, bool]]) -> None:
    marks = Watermarks(4)
    for upstream, mark_ms, idle in steps:
        marks.observe(upstream, mark_ms, idle=idle)
    again = Watermarks.decode(marks.encode(), 4)
    assert again.encode() == marks.encode()
    assert again.value_ms == marks.value_ms


def test_metadata_of_200_upstreams_fits_beside_an_offset() -> None:
    marks = Watermarks(200)
    for upstream in range(200):
        marks.observe(upstream, 1_700_000_000_000 + upstream * 86_400_000)
    assert len(marks.encode()) < 4096


def test_another_number_of_upstreams_begins_at_the_minimum() -> None:
    marks = Watermarks(2)
    marks.observe(0, 100)
    marks.observe(1, 900)
    again = Watermarks.decode(marks.encode(), 3)
    assert again.value_ms == 100
    for upstream in range(3):
        again.observe(upstream, 400)
    assert again.value_ms == 400


def test_merging_takes_the_lowest_of_each() -> None:
    left, right = Watermarks(2), Watermarks(2)
    for marks, first, second in ((left, 10, 500), (right, 40, 300)):
        marks.observe(0, first)
        marks.observe(1, second)
    merged = Watermarks.merged_minimum([left, right], 2)
    assert merged.value_ms == 10
    merged.observe(0, 350)
    assert merged.value_ms == 300


def test_foreign_metadata_is_refused_with_what_to_do() -> None:
    with pytest.raises(StateCorrupt, match="stateflow reset"):
        Watermarks.decode("written by someone else", 2)


def test_record_round_trip_and_refusal() -> None:
    assert decode_record(encode_record(7, 1_700_000_000_123, idle=True)) == (7, 1_700_000_000_123, True)
    with pytest.raises(StateCorrupt):
        decode_record(b"short")
