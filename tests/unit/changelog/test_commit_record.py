"""The commit record's bytes: there and back, and nothing else accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.format import is_reserved
from stateflow.changelog.position import NO_POSITION, InputPosition
from stateflow.errors import StateCorrupt
from stateflow.record import TopicPartition
from tests.unit.changelog.positions import POSITIONS

COUNTS = st.integers(0, 2**63 - 1)
RECORDS = st.builds(CommitRecord, COUNTS, COUNTS, st.integers(0, 2**32 - 1), POSITIONS)


@given(RECORDS)
def test_what_is_written_is_read_back(record: CommitRecord) -> None:
    assert CommitRecord.decode(record.encode()) == record


@given(RECORDS, st.data())
def test_a_cut_or_lengthened_value_is_refused(record: CommitRecord, data: st.DataObject) -> None:
    value = record.encode()
    shorter = value[: data.draw(st.integers(0, len(value) - 1))]
    for damaged in (shorter, value + b"\x00"):
        with pytest.raises(StateCorrupt):
            CommitRecord.decode(damaged)


@pytest.mark.parametrize("damage", [b"\x03\x00", b"\x02\x01"])
def test_another_format_or_an_unknown_flag_is_refused(damage: bytes) -> None:
    value = CommitRecord(1, 2, 3, NO_POSITION).encode()
    with pytest.raises(StateCorrupt, match="this version knows format 2"):
        CommitRecord.decode(damage + value[2:])


def test_a_deleted_commit_record_is_refused() -> None:
    with pytest.raises(StateCorrupt):
        CommitRecord.decode(None)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    try:
        record = CommitRecord.decode(value)
    except StateCorrupt:
        return
    assert CommitRecord.decode(record.encode()) == record


def test_the_key_is_not_state() -> None:
    assert is_reserved(COMMIT_KEY)


def test_inputs_are_written_in_the_order_of_their_names() -> None:
    one, two = TopicPartition("a", 2), TopicPartition("b", 1)
    forwards = CommitRecord(1, 2, 3, InputPosition({one: 5, two: 6}))
    backwards = CommitRecord(1, 2, 3, InputPosition({two: 6, one: 5}))
    assert forwards.encode() == backwards.encode()
