"""The bytes of format 1 of the commit record, as written by the first release. They never change."""

from __future__ import annotations

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.log.base import Committed
from stateflow.record import TopicPartition

KEY = bytes.fromhex("ffff7366 00 636f6d6d6974")
RECORD = CommitRecord(
    owner=7,
    sequence=4_294_967_297,
    records=100_000,
    inputs={
        TopicPartition("flights", 3): Committed(336_776, '{"v":1}'),
        TopicPartition("wörter", 0): Committed(0),
    },
)
VALUE = bytes.fromhex(
    "01"  # format
    "00"  # flags
    "0000000000000007"  # owner
    "0000000100000001"  # sequence
    "000186a0"  # changes in this partition
    "0002"  # inputs
    "0007 666c6967687473 00000003 0000000000052388 0007 7b2276223a317d"
    "0007 77c3b672746572 00000000 0000000000000000 0000"
)


def test_the_key() -> None:
    assert COMMIT_KEY == KEY


def test_written() -> None:
    assert RECORD.encode() == VALUE


def test_read() -> None:
    assert CommitRecord.decode(VALUE) == RECORD
