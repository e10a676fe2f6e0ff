"""Decided records and uncommitted suffixs, from lists of records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.format import TOUCH_KEY
from stateflow.changelog.position import NO_POSITION
from stateflow.changelog.sequences import (
    CommittedEnd,
    Rows,
    SequenceFilter,
    Tail,
    find_tail,
    resolve,
    tail_of,
)
from stateflow.errors import StateCorrupt
from stateflow.record import OffsetRange

Row = tuple[int, bytes | None, bytes | None]


def record(sequence: int, owner: int = 0) -> CommitRecord:
    return CommitRecord(owner, sequence, 0, NO_POSITION)


def rows(*steps: bytes | int) -> list[Row]:
    """Keys become changes, numbers the commit records of these sequences; offsets count from 0."""
    return [
        (offset, COMMIT_KEY, record(step).encode())
        if isinstance(step, int)
        else (offset, step, b"v%d" % offset)
        for offset, step in enumerate(steps)
    ]


def tail(*steps: bytes | int) -> Tail:
    return tail_of(rows(*steps), len(steps))


# --- one partition ----------------------------------------------------------------------------------


def test_a_log_that_ends_with_a_commit_record_is_decided_whole() -> None:
    assert tail(b"a", b"b", 0, b"a", 1) == Tail(record(1), 5, 5)


def test_what_stands_behind_the_newest_commit_record_dangles() -> None:
    assert tail(b"a", 0, b"b", b"c", b"b") == Tail(record(0), 2, 5, frozenset({b"b", b"c"}))


def test_a_log_without_commit_records_counts_whole() -> None:
    assert tail(b"a", b"b") == Tail(None, 2, 2)


def test_the_logs_own_records_do_not_dangle() -> None:
    with_touch: list[Row] = [*rows(b"a", 0), (2, TOUCH_KEY, b""), (3, None, None)]
    assert tail_of(with_touch, 4).keys == frozenset()


def test_an_empty_range() -> None:
    assert tail_of([], 7) == Tail(None, 7, 7)


def test_a_deleted_commit_record_is_damage() -> None:
    with pytest.raises(StateCorrupt):
        tail_of([(0, COMMIT_KEY, None)], 1)


STEPS = st.lists(st.sampled_from([b"a", b"b", b"c", 0]), max_size=40)


def numbered(steps: Sequence[bytes | int]) -> list[Row]:
    """Commit records numbered as they come."""
    count = -1
    found: list[bytes | int] = []
    for step in steps:
        count += isinstance(step, int)
        found.append(count if isinstance(step, int) else step)
    return rows(*found)


@given(STEPS, st.integers(1, 3), st.integers(0, 40))
def test_looking_backwards_finds_what_a_whole_read_finds(
    steps: list[bytes | int], slots_factor: int, gone: int
) -> None:
    log = numbered(steps)
    padding = 300 * slots_factor  # so that the first look does not cover the log
    spread = [(offset * padding, key, value) for offset, key, value in log if offset >= gone]
    whole = OffsetRange(min(gone, len(steps)) * padding, len(steps) * padding)
    looks: list[OffsetRange] = []

    def read(wanted: OffsetRange) -> Rows:
        looks.append(wanted)
        return [row for row in spread if wanted.offset_first <= row[0] < wanted.offset_next]

    assert find_tail(whole, read) == tail_of(spread, whole.offset_next)
    assert all(
        whole.offset_first <= look.offset_first and look.offset_next <= whole.offset_next for look in looks
    )
    read_twice = sum(look.slots for look in looks) - whole.slots
    assert read_twice <= max(0, whole.offset_next - find_tail(whole, read).committed_next + 1)


@given(st.integers(0, 20_000_000))
def test_a_log_without_commit_records_is_read_once(slots: int) -> None:
    looks: list[OffsetRange] = []

    def read(wanted: OffsetRange) -> Rows:
        looks.append(wanted)
        return ()

    tail = find_tail(OffsetRange(0, slots), read)
    assert (tail.last, tail.committed_next, tail.offset_next) == (None, slots, slots)
    assert sum(look.slots for look in looks) == slots


def test_a_healthy_log_is_decided_by_one_short_look() -> None:
    looks: list[OffsetRange] = []

    def read(wanted: OffsetRange) -> Rows:
        looks.append(wanted)
        return [(999_998, COMMIT_KEY, record(5).encode())]

    assert find_tail(OffsetRange(0, 1_000_000), read).last == record(5)
    assert [look.slots for look in looks] == [256]


# --- all changelogs of a task -----------------------------------------------------------------------


def test_nothing_dangles() -> None:
    found = resolve({"x": tail(b"a", 4), "y": tail(b"b", b"c", 4)})
    assert found == CommittedEnd(record(4), {"x": 2, "y": 3})
    assert (found.owner, found.sequence, found.is_torn) == (1, 4, False)


def test_a_log_without_orphaned_keys_counts_to_its_end() -> None:
    """Behind the commit record stands the transaction's marker: a store that has read past it is not ahead."""
    with_marker = tail_of(rows(b"a", 4), 3)
    assert resolve({"x": with_marker}).restore_next == {"x": 3}


def test_no_commit_record_anywhere_leaves_it_to_the_marker() -> None:
    found = resolve({"x": tail(b"a"), "y": tail()})
    assert found == CommittedEnd(None, {"x": 1, "y": 0})
    assert (found.owner, found.sequence, found.is_torn) == (0, -1, False)


def test_no_changelogs() -> None:
    assert resolve({}) == CommittedEnd(None, {})


def test_a_tail_without_commit_record_anywhere_is_uncommitted() -> None:
    found = resolve({"x": tail(b"a", 4, b"a", b"b"), "y": tail(b"c", 4)})
    assert found.restore_next == {"x": 2, "y": 2}
    assert found.orphaned_keys == {"x": frozenset({b"a", b"b"})}
    assert found.is_torn


def test_a_commit_record_in_one_changelog_decides_the_others() -> None:
    found = resolve({"x": tail(b"a", 4, b"a", b"b"), "y": tail(b"c", 4, b"c", 5)})
    assert found.last == record(5)
    assert found.restore_next == {"x": 4, "y": 4}
    assert found.orphaned_keys == {}
    assert found.is_torn, "the next owner sets the missing commit record right"


def test_a_new_changelog_counts_whole_beside_old_ones() -> None:
    found = resolve({"x": tail(b"a", 4), "new": tail(b"z", b"y")})
    assert found.restore_next == {"x": 2, "new": 2}
    assert not found.is_torn


# --- following --------------------------------------------------------------------------------------


def test_a_follower_hands_out_changes_with_their_commit_record() -> None:
    follower = SequenceFilter(committed_next=0)
    log = rows(b"a", b"b", 0, b"c")
    assert follower.feed(log[:2]) == []
    assert (follower.offset_next, len(follower.held)) == (0, 2)
    assert follower.feed(log[2:]) == [(b"a", b"v0"), (b"b", b"v1")]
    assert (follower.offset_next, list(follower.held)) == (3, [(b"c", b"v3")])


def test_a_follower_passes_what_is_known_to_be_decided() -> None:
    follower = SequenceFilter(committed_next=2)
    assert follower.feed(rows(b"a", b"b", b"c")) == [(b"a", b"v0"), (b"b", b"v1")]


@given(STEPS, st.lists(st.integers(0, 40), max_size=5))
def test_a_follower_agrees_with_the_tail_however_it_is_fed(steps: list[bytes | int], cuts: list[int]) -> None:
    log = numbered(steps)
    follower = SequenceFilter(committed_next=0)
    got: list[tuple[bytes, bytes | None]] = []
    edges = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    for first, after in pairwise(edges):
        got += follower.feed(log[first:after])
    found = tail_of(log, len(log))
    committed_next = found.committed_next if found.last is not None else 0
    expected = [
        (key, value) for offset, key, value in log if key and key != COMMIT_KEY and offset < committed_next
    ]
    assert got == expected
    assert follower.offset_next == committed_next
