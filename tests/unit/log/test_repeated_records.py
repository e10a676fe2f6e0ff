"""Records that the client library hands over twice count once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateflow.log.kafka.fetching import without_repeated
from stateflow.record import RecordBatch, TopicPartition

PLACE = TopicPartition("in", 0)


def batch(offsets: list[int], *, headers: bool = False) -> RecordBatch:
    return RecordBatch(
        PLACE,
        offsets,
        timestamps_ms=[10 * offset for offset in offsets],
        keys=[b"%d" % offset for offset in offsets],
        values=[b"v%d" % offset for offset in offsets],
        headers=[(("n", b"%d" % offset),) for offset in offsets] if headers else [],
    )


def test_what_came_before_is_left_out_with_all_its_columns() -> None:
    assert without_repeated(batch([7, 8, 9, 11], headers=True), 9) == batch([9, 11], headers=True)


def test_a_part_that_comes_twice_within_a_batch_counts_once() -> None:
    assert without_repeated(batch([3, 4, 5, 3, 4, 5, 6]), 3) == batch([3, 4, 5, 6])


def test_nothing_is_left_of_what_was_all_handed_over() -> None:
    assert without_repeated(batch([3, 4]), 5) == batch([])


@given(st.lists(st.integers(0, 20), min_size=1), st.integers(0, 20))
def test_offsets_only_grow_and_begin_at_the_position(offsets: list[int], position: int) -> None:
    kept = without_repeated(batch(offsets), position).offsets
    assert kept == sorted(set(kept))
    assert all(offset >= position for offset in kept)
