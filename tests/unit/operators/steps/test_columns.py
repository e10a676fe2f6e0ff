"""Looking through columns: the same answers as by looking at each row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateflow.operators.steps.marks import span_ms
from stateflow.record import has_none


@given(st.lists(st.integers(-1, 1 << 62), min_size=1))
def test_the_span_of_times_in_any_order(times_ms: list[int]) -> None:
    for each in (times_ms, sorted(times_ms)):
        assert span_ms(each) == (min(each), max(each))


@given(st.lists(st.sampled_from([b"", b"0", b"\x00", None])))
def test_a_none_is_found_among_empty_bytes(column: list[bytes | None]) -> None:
    assert has_none(column) == any(each is None for each in column)
