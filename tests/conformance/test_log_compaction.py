"""What the cleaner leaves: the newest value of every key, gaps, an unmoved end."""

from __future__ import annotations

from stateflow.record import Record, TopicPartition
from tests.conformance.log_world import AGGRESSIVE, World


def newest(records: list[Record]) -> dict[bytes, bytes | None]:
    return {record.key: record.value for record in records}


def test_the_newest_value_of_every_key_stays(world: World) -> None:
    topic = world.topic(config=AGGRESSIVE)
    rows: list[tuple[bytes | None, bytes | None]] = [(b"k%d" % (n % 50), b"v%d" % n) for n in range(2000)]
    world.produce(topic, *rows)
    found = world.clean(topic, lambda records: len(records) == 50)
    assert newest(found) == {b"k%d" % (n % 50): b"v%d" % n for n in range(1950, 2000)}
    assert [record.offset for record in found] == list(range(1950, 2000))


def test_a_reader_gets_past_the_gaps(world: World) -> None:
    topic = world.topic(config=AGGRESSIVE)
    place = TopicPartition(topic, 0)
    world.produce(topic, *[(b"k", b"%d" % n) for n in range(500)])
    world.clean(topic, lambda records: len(records) == 1)
    end = world.cluster.ranges([place])[place].offset_next
    reader = world.cluster.reader()
    for start in (0, 1, 250, 499):
        found = world.read_to_end(reader, place, start)
        assert [record.value for record in found if record.key == b"k"] == [b"499"]
        assert reader.position(place) == end
    assert world.cluster.ranges([place])[place].offset_first == 0, "compaction does not move the log's start"
    reader.close()


def test_tombstones_go_in_a_later_pass(world: World) -> None:
    topic = world.topic(config={**AGGRESSIVE, "delete.retention.ms": "1500"})
    world.produce(topic, (b"a", b"1"), (b"b", b"1"), (b"a", None))
    kept = world.clean(topic, lambda records: len(records) == 2)
    assert newest(kept) == {b"a": None, b"b": b"1"}
    gone = world.clean(topic, lambda records: len(records) == 1)
    assert newest(gone) == {b"b": b"1"}


def test_aborted_records_shadow_nothing(world: World) -> None:
    topic = world.topic(config=AGGRESSIVE)
    world.produce(topic, (b"o0", b"true"), (b"o1", b"true"), (b"x", b"old"), (b"x", b"new"))
    world.open_transaction(topic, world.name("tx"), b"aborted").close()

    def cleaned(records: list[Record]) -> bool:
        return len([record for record in records if record.key == b"x"]) == 1

    found = world.clean(topic, cleaned)
    assert newest([r for r in found if r.key != b"probe"]) == {b"o0": b"true", b"o1": b"true", b"x": b"new"}


def test_nothing_at_or_past_an_open_transaction_is_cleaned(world: World) -> None:
    topic, writer_id = world.topic(config=AGGRESSIVE), world.name("tx")
    world.produce(topic, *[(b"early", b"%d" % n) for n in range(20)])
    writer = world.open_transaction(topic, writer_id, b"late")
    seen = world.clean(topic, lambda records: len([r for r in records if r.key == b"early"]) == 1)
    assert newest([r for r in seen if r.key == b"early"]) == {b"early": b"19"}
    writer.commit()
    writer.close()
    values = newest(world.read_all(topic))
    assert values[b"early"] == b"19"
    assert values[b"o5"] == b"late"
