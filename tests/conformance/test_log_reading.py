"""Reading by assignment: positions, ends, gaps, and what is never passed over in silence."""

from __future__ import annotations

import pytest

from stateflow.errors import BrokerRefused, OffsetOutOfRange, TopicMissing
from stateflow.log.base import Reader, TopicSpec
from stateflow.log.kept_readers import kept_readers
from stateflow.log.newest import NewestSink, read_newest
from stateflow.log.reading import read_range
from stateflow.native.newest import newest_values
from stateflow.record import OffsetRange, Record, RecordBatch, TopicPartition
from tests.conformance.log_world import STEP_SECONDS, World, records


def committed(world: World, topic: str, count: int, writer_id: str) -> None:
    writer = world.cluster.writer(writer_id)
    writer.begin()
    for n in range(count):
        writer.send(topic, b"k%d" % n, b"v", partition=0)
    writer.commit()
    writer.close()


def test_an_empty_partition(world: World) -> None:
    place = TopicPartition(world.topic(), 0)
    assert world.cluster.ranges([place]) == {place: OffsetRange(0, 0)}
    reader = world.cluster.reader()
    reader.assign({place: 0})
    assert reader.read(10, STEP_SECONDS) == []
    assert reader.position(place) == 0
    reader.close()


def test_the_marker_of_a_transaction_takes_a_slot(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    committed(world, topic, 5, world.name("tx"))
    reader = world.cluster.reader()
    found = world.read_to_end(reader, place, 0)
    assert [record.offset for record in found] == [0, 1, 2, 3, 4]
    assert reader.position(place) == 6
    assert world.cluster.ranges([place]) == {place: OffsetRange(0, 6)}
    reader.close()


def test_aborted_records_are_passed_over_and_counted_in_the_position(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    committed(world, topic, 5, world.name("tx"))
    world.open_transaction(topic, world.name("tx")).close()
    reader = world.cluster.reader()
    found = world.read_to_end(reader, place, 0)
    assert {record.value for record in found} == {b"v", b"probe"}
    assert reader.position(place) == world.cluster.ranges([place])[place].offset_next
    hidden = reader.position(place) - len(found)
    assert hidden >= 1 + 5 + 1, "a commit marker, the aborted records, an abort marker"
    reader.close()


def test_an_emptied_partition_is_at_its_end(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    world.produce(topic, *[(b"k", b"v")] * 10)
    world.cluster.trim({place: 10})
    assert world.cluster.ranges([place]) == {place: OffsetRange(10, 10)}
    reader = world.cluster.reader()
    reader.assign({place: 10})
    assert reader.read(10, STEP_SECONDS) == []
    assert reader.position(place) == 10
    reader.close()


@pytest.mark.parametrize("follows", [False, True])
def test_a_start_at_the_end_waits_for_what_comes(world: World, follows: bool) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    world.produce(topic, (b"k", b"old"))
    reader = world.cluster.reader(follows=follows)
    reader.assign({place: 1})
    assert reader.read(10, STEP_SECONDS) == []
    assert reader.position(place) == 1
    world.produce(topic, (b"k", b"new"))
    found: list[Record] = []
    world.until(lambda: len(found) == 1, lambda: found.extend(records(reader.read(10, STEP_SECONDS))))
    assert found[0].value == b"new"
    reader.close()


def read_until_refused(world: World, reader: Reader) -> None:
    world.until(lambda: False, lambda: reader.read(10, STEP_SECONDS))


@pytest.mark.parametrize(("trimmed", "start"), [(10, 3), (0, 99_999)])
def test_an_offset_outside_the_log_is_an_error(world: World, trimmed: int, start: int) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    world.produce(topic, *[(b"k", b"v")] * 20)
    if trimmed:
        world.cluster.trim({place: trimmed})
    reader = world.cluster.reader()
    reader.assign({place: start})
    with pytest.raises(OffsetOutOfRange) as raised:
        read_until_refused(world, reader)
    assert raised.value.fields == {
        "topic": topic,
        "partition": 0,
        "offset": start,
        "low": trimmed,
        "high": 20,
    }
    reader.close()


def test_a_log_that_starts_past_the_reader_is_an_error(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    world.produce(topic, *[(b"k", b"v")] * 5)
    reader = world.cluster.reader()
    world.read_to_end(reader, place, 0)
    reader.assign({})
    world.produce(topic, *[(b"k", b"v")] * 5)
    world.cluster.trim({place: 8})
    reader.assign({place: 5})
    with pytest.raises(OffsetOutOfRange):
        read_until_refused(world, reader)
    reader.close()


def test_trimming_to_minus_one_drops_everything(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    world.produce(topic, *[(b"k", b"v")] * 4)
    world.cluster.trim({place: -1})
    assert world.cluster.ranges([place]) == {place: OffsetRange(4, 4)}


def test_trimming_past_the_end_is_refused(world: World) -> None:
    place = TopicPartition(world.topic(), 0)
    with pytest.raises(OffsetOutOfRange):
        world.cluster.trim({place: 5})


def test_trimming_a_compacted_topic_is_refused(world: World) -> None:
    topic = world.topic(config={"cleanup.policy": "compact"})
    place = TopicPartition(topic, 0)
    world.produce(topic, (b"k", b"v"), (b"k", b"v"))
    with pytest.raises(BrokerRefused):
        world.cluster.trim({place: 1})
    world.cluster.alter_topic_config(topic, {"cleanup.policy": "compact,delete"})
    world.cluster.trim({place: 1})
    assert world.cluster.ranges([place]) == {place: OffsetRange(1, 2)}


def test_a_recreated_topic_has_another_id(world: World) -> None:
    topic = world.topic()
    world.produce(topic, (b"k", b"first life"))
    before = world.cluster.describe([topic])[topic]
    world.cluster.delete([topic])
    assert world.cluster.describe([topic]) == {}
    world.cluster.create([TopicSpec(topic, 1)])
    after = world.cluster.describe([topic])[topic]
    assert before.topic_id != after.topic_id
    assert world.values(topic) == []


def test_a_topic_that_is_missing_is_an_error(world: World) -> None:
    place = TopicPartition(world.name("missing"), 0)
    reader = world.cluster.reader()
    reader.assign({place: 0})
    with pytest.raises(TopicMissing):
        read_until_refused(world, reader)
    reader.close()
    with pytest.raises(TopicMissing):
        world.cluster.ranges([place])


def test_bytes_arrive_as_they_were_sent(world: World) -> None:
    topic = world.topic()
    writer = world.cluster.writer()
    headers = (("a", b"1"), ("a", b"\x00\xff"), ("empty", b""))
    writer.send(topic, b"", b"", partition=0, timestamp_ms=1_600_000_000_123, headers=headers)
    writer.send(topic, None, None, partition=0, timestamp_ms=1_600_000_000_001)
    writer.commit()
    writer.close()
    stamp_ms = 1_600_000_000_123
    assert world.read_all(topic) == [
        Record(topic, 0, 0, stamp_ms, b"", b"", headers),
        Record(topic, 0, 1, 1_600_000_000_001, None, None, ()),
    ]


def test_a_batch_without_headers_has_no_header_column(world: World) -> None:
    topic = world.topic()
    world.produce(topic, (b"k", b"v"))
    reader = world.cluster.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    found: list[RecordBatch] = []
    world.until(lambda: bool(found), lambda: found.extend(reader.read(10, STEP_SECONDS)))
    assert found[0].headers == []
    assert found[0].source == TopicPartition(topic, 0)
    reader.close()


def test_no_more_than_asked_for_and_none_twice(world: World) -> None:
    topic = world.topic(partitions=3)
    for partition in range(3):
        world.produce(topic, *[(b"%d" % n, b"v") for n in range(50)], partition=partition)
    reader = world.cluster.reader()
    reader.assign({TopicPartition(topic, partition): 10 * partition for partition in range(3)})
    found: list[tuple[int, int]] = []

    def read() -> None:
        batches = reader.read(7, STEP_SECONDS)
        assert sum(map(len, batches)) <= 7
        assert len({batch.source for batch in batches}) == len(batches), "one batch per partition"
        found.extend((record.partition, record.offset) for record in records(batches))

    world.until(lambda: len(found) == 120, read)
    assert sorted(found) == [(p, offset) for p in range(3) for offset in range(10 * p, 50)]
    reader.close()


def test_a_new_assignment_forgets_the_old_one(world: World) -> None:
    topic = world.topic(partitions=2)
    world.produce(topic, (b"k", b"zero"), partition=0)
    world.produce(topic, (b"k", b"one"), partition=1)
    reader = world.cluster.reader()
    world.read_to_end(reader, TopicPartition(topic, 0), 0)
    found = world.read_to_end(reader, TopicPartition(topic, 1), 0)
    assert [record.value for record in found] == [b"one"]
    again = world.read_to_end(reader, TopicPartition(topic, 0), 0)
    assert [record.value for record in again] == [b"zero"]
    reader.close()


def test_a_partition_is_assigned_again_and_again(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    world.produce(topic, *[(b"k", b"%d" % number) for number in range(5)])
    reader = world.cluster.reader()
    for first in (4, 0, 0, 2, 4):
        found = world.read_to_end(reader, place, first)
        assert [record.value for record in found] == [b"%d" % number for number in range(first, 5)]
    reader.close()


def test_nothing_of_a_read_that_was_given_up_comes_with_the_next(world: World) -> None:
    """The client has fetched what is behind it, and is about to be answered with more."""
    topic, total = world.topic(), 5_000
    place = TopicPartition(topic, 0)
    writer = world.cluster.writer()
    writer.begin()
    writer.send_many(topic, [b"k"] * total, [b"%d" % number for number in range(total)], partitions=0)
    writer.commit()
    writer.close()

    def begin_to_read(reader: Reader, first: int) -> None:
        reader.assign({place: first})
        world.until(lambda: reader.read(10, STEP_SECONDS) != [])
        reader.close()

    with kept_readers(world.cluster) as keeping:
        for first in (0, 4_000, 10, 2_000, 2_001, 0, 4_999, 1):
            begin_to_read(keeping.reader(), first)
            span = OffsetRange(first // 2, first // 2 + 100)
            found = records(list(read_range(keeping, place, span)))
            assert [record.offset for record in found] == list(range(*span))
            assert [record.value for record in found] == [b"%d" % number for number in range(*span)]


def test_the_newest_of_each_key_is_read_into_a_sink(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    world.produce(
        topic, (b"b", b"1"), (b"a", b"2"), (None, b"no key"), (b"b", b""), (b"c", b"4"), (b"c", None)
    )
    world.produce(topic, (b"a", b"behind the target"))
    sink = NewestSink(newest_values(b""), 6)
    reader = world.cluster.reader()
    reader.assign({place: 0})
    brought: set[TopicPartition] = set()
    world.until(
        lambda: reader.position(place) >= 6,
        lambda: brought.update(read_newest(reader, {place: sink}, 10, STEP_SECONDS)),
    )
    reader.close()
    assert brought == {place}
    assert list(sink.values.ordered()) == [(b"a", b"2"), (b"b", b""), (b"c", None)]
    assert (sink.records_total, sink.bytes_total) == (6, 14)


def test_a_record_is_told_from_a_marker_whatever_became_of_it(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    for commit in (True, False):
        writer = world.cluster.writer(world.name("tx"))
        writer.begin()
        writer.send(topic, b"k", b"v", partition=0)
        writer.flush()
        writer.commit() if commit else writer.abort()
        writer.close()
    found = [world.cluster.holds_record(place, offset) for offset in range(5)]
    assert found == [True, False, True, False, False]
