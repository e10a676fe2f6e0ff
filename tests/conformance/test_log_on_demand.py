"""Partitions whose records stay with the client until they are asked for."""

from __future__ import annotations

import random
from collections.abc import Sequence

from stateflow.record import RecordBatch, TopicPartition
from tests.conformance.log_world import STEP_SECONDS, Member, World, records
from tests.conformance.test_log_groups import settle


def test_partitions_on_demand_are_read_when_they_are_asked_for(world: World) -> None:
    topic = world.topic(partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    member = Member(world, world.name("group"), [topic])
    settle(world, topic, 2, member)
    for partition in range(2):
        world.produce(topic, *[(b"k", b"%d" % n) for n in range(10)], partition=partition)
    consumer = member.consumer
    consumer.start({zero: 3}, on_demand=True)
    consumer.start({one: 0})
    world.until(lambda: sum(record.partition == 1 for record in member.records) == 10, member.poll)
    world.during(0.3, member.poll)
    if consumer.gives_on_demand:
        assert {record.partition for record in member.records} == {1}
        assert consumer.position(zero) == 3

        def pull() -> None:
            member.records += records(consumer.pull(zero, 2))

        world.until(lambda: len(member.records) >= 14, pull)
        assert consumer.position(zero) == 7
    consumer.let_come([zero])
    world.until(lambda: len(member.records) == 17, member.poll)
    assert [record.offset for record in member.records if record.partition == 0] == list(range(3, 10))
    consumer.close()


def test_partitions_on_demand_and_not_by_turns_miss_none(world: World) -> None:
    """What is in the client's queue of all and what is in that of a partition come in their order."""
    draw, topic = random.Random(7), world.topic(partitions=3)
    places = [TopicPartition(topic, partition) for partition in range(3)]
    for place in places:
        world.produce(topic, *[(b"k", b"%d" % n) for n in range(3_000)], partition=place.partition)
    member = Member(world, world.name("group"), [topic])
    settle(world, topic, 3, member)
    wanted = dict.fromkeys(places, 0)
    member.consumer.start(wanted, on_demand=True)

    def take(batches: Sequence[RecordBatch]) -> None:
        for batch in batches:
            first = wanted[batch.source]
            assert batch.offsets == list(range(first, first + len(batch)))
            wanted[batch.source] += len(batch)

    def read() -> None:
        for place in places:
            take(member.consumer.pull(place, draw.choice([1, 50, 300])))
        take(member.consumer.poll(draw.choice([1, 50, 300]), STEP_SECONDS))

    for _ in range(30):
        read()
        place = draw.choice(places)
        if draw.random() < 0.5:
            member.consumer.let_come([place])
        else:
            wanted[place] = max(0, wanted[place] - draw.choice([0, 0, 400]))
            member.consumer.start({place: wanted[place]}, on_demand=draw.random() < 0.7)
    world.until(lambda: all(offset == 3_000 for offset in wanted.values()), read)
    member.consumer.close()
