"""Topics, settings, and offsets set from outside."""

from __future__ import annotations

import random

import pytest

from stateflow.errors import BrokerRefused, StillRunning, TopicMissing
from stateflow.log.base import Committed, TopicSpec
from stateflow.record import TopicPartition, record_bytes
from tests.conformance.log_world import Member, World


def test_created_topics_are_described(world: World) -> None:
    one, two, none = world.name(), world.name(), world.name()
    made = world.cluster.create([TopicSpec(one, 1), TopicSpec(two, 3, config={"cleanup.policy": "compact"})])
    assert {name: info.partitions for name, info in made.items()} == {one: 1, two: 3}
    assert world.cluster.describe([one, two, none]) == made
    assert made[one].topic_id != made[two].topic_id
    listed = world.cluster.list_topics()
    assert {one, two} <= set(listed)
    assert none not in listed
    assert listed == sorted(listed)
    assert not [name for name in listed if name.startswith("__")]


def test_a_topic_that_exists_is_left_as_it_is(world: World) -> None:
    name = world.topic(partitions=2)
    before = world.cluster.describe([name])
    assert world.cluster.create([TopicSpec(name, 5)]) == before


def test_settings_are_read_back_and_changed(world: World) -> None:
    name = world.topic(config={"cleanup.policy": "compact", "segment.ms": "60000"})
    config = world.cluster.topic_config(name)
    assert config["cleanup.policy"] == "compact"
    assert config["segment.ms"] == "60000"
    default = config["min.cleanable.dirty.ratio"]
    world.cluster.alter_topic_config(name, {"min.cleanable.dirty.ratio": "0.1", "segment.ms": None})
    world.until(lambda: world.cluster.topic_config(name)["min.cleanable.dirty.ratio"] == "0.1")
    config = world.cluster.topic_config(name)
    assert config["segment.ms"] == "604800000"
    assert config["cleanup.policy"] == "compact", "what was not named stays"
    world.cluster.alter_topic_config(name, {"min.cleanable.dirty.ratio": None})
    world.until(lambda: world.cluster.topic_config(name)["min.cleanable.dirty.ratio"] == default)


def test_settings_that_do_not_exist_are_refused(world: World) -> None:
    name = world.topic()
    with pytest.raises(BrokerRefused):
        world.cluster.alter_topic_config(name, {"no.such.setting": "1"})
    with pytest.raises(BrokerRefused):
        world.cluster.create([TopicSpec(world.name(), 1, config={"cleanup.policy": "burn"})])


def test_deleting_what_is_missing_is_no_error(world: World) -> None:
    name = world.topic()
    world.cluster.delete([name, world.name()])
    world.cluster.delete([name])
    assert world.cluster.describe([name]) == {}
    with pytest.raises(TopicMissing):
        world.cluster.topic_config(name)


def test_the_cluster_has_one_id(world: World) -> None:
    assert world.cluster.cluster_id
    assert world.cluster.cluster_id == world.cluster.cluster_id


def test_offsets_are_set_from_outside(world: World) -> None:
    topic, group = world.topic(partitions=3), world.name("group")
    places = [TopicPartition(topic, partition) for partition in range(3)]
    assert world.cluster.committed(group, places) == {}
    world.cluster.commit(group, {places[0]: Committed(7, "seven"), places[1]: Committed(0)})
    assert world.cluster.committed(group, places) == {
        places[0]: Committed(7, "seven"),
        places[1]: Committed(0),
    }
    assert world.cluster.committed(group, places[2:]) == {}
    assert world.cluster.committed(group, []) == {}
    world.cluster.commit(group, {places[0]: Committed(3)})
    assert world.cluster.committed(group, places[:1]) == {places[0]: Committed(3)}


def test_offsets_of_a_running_group_are_not_set_from_outside(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    place = TopicPartition(topic, 0)
    member = Member(world, group, [topic])
    world.until(lambda: member.listener.owned == {place}, member.poll)
    with pytest.raises(StillRunning):
        world.cluster.commit(group, {place: Committed(1)})
    member.consumer.close()
    world.until(lambda: world.cluster.group_members(group) == [])
    world.cluster.commit(group, {place: Committed(1)})
    assert world.cluster.committed(group, [place]) == {place: Committed(1)}


def test_a_compacted_topic_takes_no_record_without_a_key(world: World) -> None:
    topic = world.topic(config={"cleanup.policy": "compact"})
    writer = world.cluster.writer()

    def write() -> None:
        writer.send(topic, None, b"v", partition=0)
        writer.commit()

    with pytest.raises(BrokerRefused):
        write()
    writer.close()
    assert world.values(topic) == []


def test_a_record_too_large_is_refused(world: World) -> None:
    topic = world.topic(config={"max.message.bytes": "1000"})
    writer = world.cluster.writer()

    def write() -> None:
        writer.send(topic, b"k", random.Random(1).randbytes(5_000), partition=0)
        writer.commit()

    with pytest.raises(BrokerRefused):
        write()
    writer.close()


@pytest.mark.parametrize("bytes_max", [1_000, 100_000])
def test_a_record_as_large_as_a_topic_takes_is_taken(world: World, bytes_max: int) -> None:
    topic = world.topic(config={"max.message.bytes": str(bytes_max)})
    assert world.cluster.record_bytes_max(topic) == bytes_max
    headers = (("name", b"content"), ("", b""), ("other", random.Random(2).randbytes(300)))
    value = random.Random(1).randbytes(bytes_max - record_bytes(b"k", b"", headers))
    writer = world.cluster.writer(world.name("id"))
    writer.begin()
    writer.send(topic, b"k", value, partition=0, headers=headers)
    writer.commit()
    writer.close()
    assert world.values(topic) == [value]
