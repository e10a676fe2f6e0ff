"""Transactions: all or nothing, one writer per id, and offsets that stand or fall with the records."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest

from stateflow.errors import OffsetsPending, ProducerFenced, TopicMissing, TransactionAborted
from stateflow.log.base import Appended, Committed
from stateflow.partitioner import partition_of
from stateflow.record import Headers, TopicPartition
from tests.conformance.log_world import STEP_SECONDS, Member, World


def test_commit_tells_where_the_last_record_of_each_partition_landed(world: World) -> None:
    topic, other = world.topic(partitions=2), world.topic()
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    for n in range(3):
        writer.send(topic, b"k", b"%d" % n, partition=0, timestamp_ms=1_650_000_000_000 + n)
    writer.send(topic, b"k", b"v", partition=1, timestamp_ms=1_650_000_000_009)
    writer.send(other, b"k", b"v", partition=0, timestamp_ms=1_650_000_000_010)
    assert writer.commit() == {
        TopicPartition(topic, 0): Appended(2, 1_650_000_000_002),
        TopicPartition(topic, 1): Appended(0, 1_650_000_000_009),
        TopicPartition(other, 0): Appended(0, 1_650_000_000_010),
    }
    writer.begin()
    writer.send(topic, b"k", b"v", partition=1, timestamp_ms=1_650_000_000_011)
    assert writer.commit() == {TopicPartition(topic, 1): Appended(2, 1_650_000_000_011)}
    writer.close()


def test_many_records_keep_their_order(world: World) -> None:
    topic = world.topic(partitions=2)
    rows = [b"%d" % n for n in range(1000)]
    for writer in (world.cluster.writer(world.name("tx")), world.cluster.writer()):
        writer.begin()
        writer.send(topic, b"first", b"first", partition=0)
        writer.send_many(topic, rows, rows, partitions=[n % 2 for n in range(1000)])
        writer.send_many(topic, rows[:10], rows[:10], partitions=1, timestamps_ms=1_650_000_000_000)
        writer.send(topic, b"last", b"last", partition=0)
        landed = writer.commit()
        writer.close()
        assert landed[TopicPartition(topic, 0)].offset == world.read_all(topic)[-1].offset
        assert landed[TopicPartition(topic, 1)].timestamp_ms == 1_650_000_000_000
    assert world.values(topic, 0) == [b"first", *rows[0::2], b"last"] * 2
    assert world.values(topic, 1) == [*rows[1::2], *rows[:10]] * 2


def test_many_records_keep_their_order_and_headers_when_only_some_have_any(world: World) -> None:
    topic = world.topic(partitions=2)
    marked: dict[int, Headers] = {1: (("a", b"\x00"), ("a", b"2")), 2: (("empty", b""),), 5: (("a", b"5"),)}
    rows = [b"%d" % n for n in range(8)]
    headers = [marked.get(n, ()) for n in range(8)]
    stamps = [1_650_000_000_000 + n for n in range(8)]
    for writer in (world.cluster.writer(world.name("tx")), world.cluster.writer()):
        writer.begin()
        writer.send_many(topic, rows, rows, partitions=0, timestamps_ms=stamps, headers=headers)
        writer.send_many(topic, rows, [None] * 8, partitions=[n % 2 for n in range(8)], headers=headers)
        writer.send_many(topic, rows, rows, partitions=1, timestamps_ms=stamps[0], headers=[])
        writer.commit()
        writer.close()
    expected = [(row, row, marks) for row, marks in zip(rows, headers, strict=True)]
    halves = [[(rows[n], None, headers[n]) for n in range(first, 8, 2)] for first in (0, 1)]
    bare = [(row, row, ()) for row in rows]
    read = [world.read_all(topic, partition) for partition in (0, 1)]
    assert [(r.key, r.value, r.headers) for r in read[0]] == [*expected, *halves[0]] * 2
    assert [(r.key, r.value, r.headers) for r in read[1]] == [*halves[1], *bare] * 2
    assert [r.timestamp_ms for r in read[0]][:8] == stamps
    assert {r.timestamp_ms for r in read[1] if r.value is not None} == {stamps[0]}


def test_a_batch_longer_than_what_a_writer_hands_over_at_once_keeps_its_order(world: World) -> None:
    topic = world.topic(partitions=2)
    rows = [b"%d" % n for n in range(25_000)]
    headers: list[Headers] = [(("n", row),) if n % 3 == 0 else () for n, row in enumerate(rows)]
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    writer.send(topic, b"first", b"first", partition=0)
    writer.send_many(topic, rows, rows, partitions=[n % 2 for n in range(25_000)], headers=headers)
    landed = writer.commit()
    writer.close()
    assert [landed[TopicPartition(topic, partition)].offset for partition in (0, 1)] == [12_500, 12_499]
    first, *even = world.read_all(topic, 0)
    assert first.value == b"first"
    assert [r.value for r in even] == rows[0::2]
    assert [r.headers for r in even] == headers[0::2]
    odd = world.read_all(topic, 1)
    assert [r.value for r in odd] == rows[1::2]
    assert [r.headers for r in odd] == headers[1::2]


def test_records_without_a_time_take_the_time_of_sending(world: World) -> None:
    topic = world.topic()
    writer = world.cluster.writer()
    marks: list[Headers] = [(("a", b"1"),), ()]
    writer.send(topic, b"k", b"v", partition=0)
    writer.send_many(topic, [b"k"] * 2, [b"v"] * 2, partitions=0, timestamps_ms=[4, 5], headers=marks)
    writer.send_many(topic, [b"k"], [b"v"], partitions=0, headers=marks[:1])
    writer.commit()
    writer.close()
    first_ms, *times_ms = [record.timestamp_ms for record in world.read_all(topic)]
    assert times_ms[:2] == [4, 5]
    assert 5 < first_ms <= times_ms[2]


@pytest.mark.parametrize("column", ["keys", "values", "partitions", "timestamps_ms", "headers"])
def test_columns_of_different_lengths_are_refused_before_anything_is_sent(world: World, column: str) -> None:
    topic = world.topic()
    columns: dict[str, Any] = {
        "keys": [b"a", b"b"],
        "values": [b"1", b"2"],
        "partitions": [0, 0],
        "timestamps_ms": [5, 6],
        "headers": [(("a", b"1"),), ()],
    }
    columns[column] = columns[column][:1]
    writer = world.cluster.writer()
    with pytest.raises(ValueError, match="columns of different lengths"):
        writer.send_many(topic, **columns)
    writer.commit()
    writer.close()
    assert world.values(topic) == []


def test_the_default_partition_is_that_of_murmur2(world: World) -> None:
    topic = world.topic(partitions=5)
    keys = [b"key-%d" % n for n in range(40)]
    for writer in (world.cluster.writer(world.name("tx")), world.cluster.writer()):
        writer.begin()
        writer.send_many(topic, keys, keys, partitions=-1)
        landed = writer.commit()
        writer.close()
        assert {place.partition for place in landed} == {partition_of(key, 5) for key in keys}
    for partition in range(5):
        assert all(partition_of(r.key, 5) == partition for r in world.read_all(topic, partition))


def test_records_without_a_key_go_anywhere_beside_those_that_have_one(world: World) -> None:
    topic = world.topic(partitions=3)
    with closing(world.cluster.writer(world.name("tx"))) as writer:
        writer.begin()
        writer.send_many(topic, [None, b"key-1", None, b"key-2"], [b"value"] * 4, partitions=-1)
        writer.commit()
    records = [record for partition in range(3) for record in world.read_all(topic, partition)]
    assert sorted(record.key or b"" for record in records) == [b"", b"", b"key-1", b"key-2"]
    assert all(record.key is None or record.partition == partition_of(record.key, 3) for record in records)


def test_records_of_an_aborted_transaction_are_never_seen(world: World) -> None:
    topic = world.topic()
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    writer.send(topic, b"k", b"aborted", partition=0)
    writer.abort()
    writer.begin()
    writer.send(topic, b"k", b"kept", partition=0)
    landed = writer.commit()
    writer.close()
    assert world.values(topic) == [b"kept"]
    assert landed == {TopicPartition(topic, 0): landed[TopicPartition(topic, 0)]}


def test_an_open_transaction_holds_readers_back(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    writer = world.open_transaction(topic, world.name("tx"), b"first")
    stable = world.stable_end(place)
    before = world.values(topic, settled=False)
    assert set(before) == {b"probe"}
    world.produce(topic, (b"k", b"later, outside"))
    assert world.stable_end(place) == stable < world.log_end(place)
    assert world.values(topic, settled=False) == before
    writer.commit()
    after = world.values(topic)
    assert after.count(b"first") == 6
    assert after.count(b"later, outside") == 1
    writer.close()


def test_a_new_writer_fences_the_old_one(world: World) -> None:
    topic, writer_id = world.topic(), world.name("tx")
    old = world.open_transaction(topic, writer_id, b"of the old one")
    new = world.cluster.writer(writer_id)
    new.begin()
    new.send(topic, b"k", b"of the new one", partition=0)
    new.commit()
    with pytest.raises(ProducerFenced):
        old.commit()
    old.close()
    new.begin()
    new.send(topic, b"k", b"again", partition=0)
    new.commit()
    new.close()
    assert [value for value in world.values(topic) if value != b"probe"] == [b"of the new one", b"again"]


def test_a_zombie_that_wakes_between_transactions_is_fenced(world: World) -> None:
    topic, writer_id = world.topic(), world.name("tx")
    zombie = world.cluster.writer(writer_id)
    world.cluster.writer(writer_id).close()

    def write() -> None:
        zombie.begin()
        zombie.send(topic, b"k", b"undead", partition=0)
        zombie.commit()

    with pytest.raises(ProducerFenced):
        write()
    with pytest.raises(ProducerFenced):
        write()
    zombie.close()
    assert world.values(topic) == []


def test_aborting_after_being_fenced_says_so(world: World) -> None:
    topic, writer_id = world.topic(), world.name("tx")
    old = world.open_transaction(topic, writer_id)
    world.cluster.writer(writer_id).close()
    with pytest.raises(ProducerFenced):
        old.abort()
    old.close()


def test_a_forgotten_transaction_is_aborted_after_its_timeout(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    writer = world.open_transaction(topic, world.name("tx"))
    held = world.stable_end(place)
    world.until(lambda: world.stable_end(place) > held)
    with pytest.raises(ProducerFenced):
        writer.commit()
    writer.close()
    assert b"open" not in world.values(topic)


def test_closing_aborts_what_is_open(world: World) -> None:
    topic = world.topic()
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    writer.send(topic, b"k", b"open", partition=0)
    writer.close()
    writer.close()
    assert world.values(topic) == []


def test_an_empty_transaction_is_committed(world: World) -> None:
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    assert writer.commit() == {}
    writer.abort()
    writer.close()


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("missing", ["topic", "partition"])
def test_a_place_that_does_not_exist(world: World, missing: str, transactional: bool) -> None:
    topic = world.topic()
    writer = world.cluster.writer(world.name("tx") if transactional else None)
    writer.begin()
    with pytest.raises(TopicMissing):
        writer.send(world.name("no") if missing == "topic" else topic, b"k", b"v", partition=3)
    writer.send(topic, b"k", b"v", partition=0)
    writer.commit()
    writer.close()
    assert world.values(topic) == [b"v"]


def test_offsets_stand_and_fall_with_the_transaction(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    writer.send_offsets({zero: Committed(5, '{"wm": {"a-0": 17}, "ü": "✓"}')}, group, None)
    writer.send(topic, b"k", b"v", partition=1)
    writer.commit()
    assert world.cluster.committed(group, [zero, one]) == {
        zero: Committed(5, '{"wm": {"a-0": 17}, "ü": "✓"}')
    }
    writer.begin()
    writer.send_offsets({zero: Committed(9, "aborted"), one: Committed(1)}, group, None)
    writer.abort()
    assert world.cluster.committed(group, [zero, one]) == {
        zero: Committed(5, '{"wm": {"a-0": 17}, "ü": "✓"}')
    }
    writer.begin()
    writer.send_offsets({zero: Committed(9, ""), one: Committed(1, "one")}, group, None)
    writer.commit()
    assert world.cluster.committed(group, [zero, one]) == {zero: Committed(9), one: Committed(1, "one")}
    writer.close()


def test_metadata_of_the_size_that_watermarks_need(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    place, metadata = TopicPartition(topic, 0), "m" * 4000  # offset.metadata.max.bytes is 4096 by default
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    writer.send_offsets({place: Committed(1, metadata)}, group, None)
    writer.commit()
    writer.close()
    assert world.cluster.committed(group, [place]) == {place: Committed(1, metadata)}


def test_offsets_in_an_open_transaction_are_not_known_yet(world: World) -> None:
    topic, group, writer_id = world.topic(), world.name("group"), world.name("tx")
    place = TopicPartition(topic, 0)
    world.cluster.commit(group, {place: Committed(1, "before")})
    writer = world.cluster.writer(writer_id)
    writer.begin()
    writer.send_offsets({place: Committed(2, "after")}, group, None)
    assert world.cluster.committed(group, [place], stable=False) == {place: Committed(1, "before")}
    began_seconds = time.monotonic()
    with pytest.raises(
        OffsetsPending
    ):  # a broker lets the caller wait, here less than its 30 s for any request
        world.cluster.committed(group, [place], pending_seconds=1.0)
    assert time.monotonic() - began_seconds < 15.0
    world.cluster.writer(writer_id).close()
    assert world.cluster.committed(group, [place]) == {place: Committed(1, "before")}
    writer.close()


def test_offsets_of_a_current_member_are_taken(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    place = TopicPartition(topic, 0)
    member = Member(world, group, [topic])
    world.until(lambda: member.listener.owned == {place}, member.poll)
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    writer.send_offsets({place: Committed(4, "by a member")}, group, member.consumer.metadata())
    writer.commit()
    assert world.cluster.committed(group, [place]) == {place: Committed(4, "by a member")}
    member.consumer.close()
    writer.close()


def test_offsets_of_a_former_member_abort_the_transaction(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    place = TopicPartition(topic, 0)
    member = Member(world, group, [topic])
    world.until(lambda: member.listener.owned == {place}, member.poll)
    proof = member.consumer.metadata()
    member.consumer.close()
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    writer.send(topic, b"k", b"of a former member", partition=0)
    with pytest.raises(TransactionAborted):
        writer.send_offsets({place: Committed(4)}, group, proof)
    writer.begin()
    writer.send(topic, b"k", b"later", partition=0)
    writer.commit()
    writer.close()
    assert world.cluster.committed(group, [place]) == {}
    assert world.values(topic) == [b"later"]


def test_without_a_transaction_commit_makes_everything_durable(world: World) -> None:
    topic = world.topic(partitions=2)
    writer = world.cluster.writer()
    writer.begin()
    writer.send(topic, b"k", b"v", partition=1)
    landed = writer.commit()
    assert set(landed) == {TopicPartition(topic, 1)}
    assert landed[TopicPartition(topic, 1)].offset == 0
    writer.abort()
    writer.send(topic, b"k", b"w", partition=1)
    writer.close()
    assert world.values(topic, 1) == [b"v", b"w"]


def test_reading_goes_on_while_a_transaction_is_written(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    writer = world.cluster.writer(world.name("tx"))
    reader = world.cluster.reader()
    reader.assign({place: 0})
    seen: list[bytes] = []
    for n in range(5):
        writer.begin()
        writer.send(topic, b"k", b"%d" % n, partition=0)
        writer.commit()

        def read() -> None:
            seen.extend(value for batch in reader.read(10, STEP_SECONDS) for value in batch.values)

        world.until(lambda: len(seen) == n + 1, read)  # noqa: B023 - used up within the round
    assert seen == [b"0", b"1", b"2", b"3", b"4"]
    reader.close()
    writer.close()
