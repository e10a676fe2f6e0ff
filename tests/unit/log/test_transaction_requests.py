"""Kafka's requests about transactions, byte by byte: what no library of ours would notice if it were wrong."""

from __future__ import annotations

import struct

from stateflow.log.kafka import transaction_requests as requests
from stateflow.log.kafka.wire_types import Cursor, compact_string, unsigned_varint
from stateflow.record import TopicPartition

OWNER = requests.Producer(7, 3)


def test_a_transaction_of_one_partition() -> None:
    wanted = [TopicPartition("out", 2), TopicPartition("a", 0), TopicPartition("out", 1)]
    added = requests.add_partitions("id", OWNER, wanted)
    assert (added.api_key, added.version, added.flexible) == (24, 1, False)
    assert added.body == (
        b"\x00\x02id" + struct.pack(">qh", 7, 3) + b"\x00\x00\x00\x02"
        b"\x00\x01a" + struct.pack(">ii", 1, 0) + b"\x00\x03out" + struct.pack(">iii", 2, 1, 2)
    )
    ended = requests.end_transaction("id", OWNER, commit=True)
    assert (ended.api_key, ended.body) == (26, b"\x00\x02id" + struct.pack(">qh", 7, 3) + b"\x01")


def test_the_first_error_of_any_partition_is_told() -> None:
    answer = struct.pack(">ii", 0, 1) + b"\x00\x01a" + struct.pack(">i", 2)
    fine, fenced = struct.pack(">ih", 0, 0), struct.pack(">ih", 1, 47)
    assert requests.added_partitions(answer + fine + fenced) == 47
    assert requests.added_partitions(answer + fine + fine) == 0


def test_only_producers_with_something_open_are_told() -> None:
    def producer(number: int, open_from: int, tags: bytes = b"\x00") -> bytes:
        return struct.pack(">qiiqiq", number, 0, 5, 1_000, 0, open_from) + tags

    newer = producer(9, 91, tags=b"\x02\x00\x01a\x05\x02bc")  # fields that this version does not know
    producers = newer + producer(7, 90) + producer(8, -1)
    partition = struct.pack(">ih", 4, 0) + b"\x00" + b"\x04" + producers + b"\x00"
    refused = struct.pack(">ih", 5, 29) + b"\x00" + b"\x01" + b"\x00"
    answer = b"\x00" + struct.pack(">i", 0) + b"\x02" + b"\x02a" + b"\x03" + partition + refused + b"\x00\x00"
    assert list(requests.described_producers(answer)) == [
        (TopicPartition("a", 4), 0, {9: 91, 7: 90}),
        (TopicPartition("a", 5), 29, {}),
    ]


def test_the_state_of_a_transaction_is_read() -> None:
    topic = b"\x02a" + b"\x03" + struct.pack(">ii", 0, 2) + b"\x00"
    state = (
        struct.pack(">h", 0)
        + b"\x03id"
        + b"\x08Ongoing"
        + struct.pack(">iqqh", 60_000, 1, 7, 3)
        + b"\x02"
        + topic
    )
    answer = b"\x00" + struct.pack(">i", 0) + b"\x02" + state + b"\x00\x00"
    assert requests.described_transaction(answer) == requests.Described(
        0, "Ongoing", OWNER, frozenset({TopicPartition("a", 0), TopicPartition("a", 2)})
    )


def test_long_names_have_long_lengths() -> None:
    name = "x" * 249
    assert unsigned_varint(300) == b"\xac\x02"
    assert Cursor(compact_string(name)).compact_string() == name
