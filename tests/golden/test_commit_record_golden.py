"""The bytes of the commit record in format 2, and in format 1 as written by the first release. They never change."""

from __future__ import annotations

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.event_time import EventTime, PortTime
from stateflow.changelog.position import BarrierPoint, InputPosition, Moment
from stateflow.record import TopicPartition

KEY = bytes.fromhex("ffff7366 00 636f6d6d6974")
HEAD = (
    "00"  # flags
    "0000000000000007"  # owner
    "0000000100000001"  # sequence
    "000186a0"  # changes in this partition
)
OFFSETS = {TopicPartition("flights", 3): 336_776, TopicPartition("wörter", 0): 0}
REACHED = EventTime(1_000, (PortTime("flights", (1_000, -1, 1_300), frozenset({1})),))
RECORD = CommitRecord(
    owner=7,
    sequence=4_294_967_297,
    records=100_000,
    position=InputPosition(
        OFFSETS,
        REACHED,
        Moment(336_000, EventTime(900, (PortTime("flights", (900,) * 3),))),
        BarrierPoint(5, True),
    ),
)
FLIGHTS = "0007 666c6967687473"
VALUE = bytes.fromhex(
    "02" + HEAD + "01"  # format of the position
    "07"  # replay, barrier, last commit
    "0002"  # inputs
    + FLIGHTS
    + "00000003 0000000000052388"
    + "0007 77c3b672746572 00000000 0000000000000000"
    + "00000000000003e8 0001"  # event time reached, ports
    + FLIGHTS
    + "00000003 14 00000000000003e8 00000001 00000000 0000012d 02"  # upstreams, 4 bytes and idle, base, marks, idle
    + "0000000000052080"  # replay from
    + "0000000000000384 0001"
    + FLIGHTS
    + "00000003 00 0000000000000384"
    + "0000000000000005"  # barrier id
)

VALUE_1 = bytes.fromhex(
    "01" + HEAD + "0002"  # inputs
    "0007 666c6967687473 00000003 0000000000052388 0007 7b2276223a317d"
    "0007 77c3b672746572 00000000 0000000000000000 0000"
)


def test_the_key() -> None:
    assert COMMIT_KEY == KEY


def test_written() -> None:
    assert RECORD.encode() == VALUE


def test_read() -> None:
    assert CommitRecord.decode(VALUE) == RECORD


def test_a_position_at_the_end_of_the_input() -> None:
    position = InputPosition(ending_ms=(1_000, -1))
    written = bytes.fromhex(
        "01 08 0000"  # format, ending, inputs
        "ffffffffffffffff 0000"  # event time
        "0002 00000000000003e8 ffffffffffffffff"
    )
    assert position.encode() == written
    assert InputPosition.decode(written) == position


def test_format_1_is_read() -> None:
    assert CommitRecord.decode(VALUE_1) == CommitRecord(7, 4_294_967_297, 100_000, InputPosition(OFFSETS))
