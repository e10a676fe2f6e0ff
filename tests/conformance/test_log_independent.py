"""Group members that decide themselves what they read: the group tells who is there, and who left."""

from __future__ import annotations

from stateflow.record import TopicPartition
from tests.conformance.log_world import Member, World


def test_an_independent_member_reads_on_what_the_group_gives_to_another(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    places = [TopicPartition(topic, partition) for partition in range(2)]
    first = Member(world, group, [topic], independent=True)
    world.until(lambda: len(first.listener.owned) == 2, first.poll)
    first.consumer.start(dict.fromkeys(places, 0))
    second = Member(world, group, [topic], independent=True)

    def both() -> None:
        first.poll()
        second.poll()

    world.until(lambda: len(first.listener.owned) == len(second.listener.owned) == 1, both)
    for partition in range(2):
        world.produce(topic, *[(b"k", b"%d" % n) for n in range(10)], partition=partition)
    world.until(lambda: len(first.records) == 20, both)
    assert second.records == []
    assert [first.consumer.position(place) for place in places] == [10, 10]

    first.consumer.stop(places[:1])
    second.consumer.start({places[0]: 10})
    for partition in range(2):
        world.produce(topic, (b"k", b"more"), partition=partition)
    world.until(lambda: len(first.records) == 21 and len(second.records) == 1, both)
    assert first.records[-1].partition == 1
    first.consumer.close()
    second.consumer.close()


def test_members_know_their_ids_as_the_cluster_lists_them(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    plain, named = Member(world, group, [topic]), Member(world, group, [topic], "named")

    def both() -> None:
        plain.poll()
        named.poll()

    world.until(lambda: len(plain.listener.owned) == len(named.listener.owned) == 1, both)
    ids = sorted([plain.consumer.member_id, named.consumer.member_id])
    assert world.cluster.group_members(group) == ids
    named.consumer.close()
    again = Member(world, group, [topic], "named")

    def both_again() -> None:
        plain.poll()
        again.poll()

    world.until(lambda: bool(again.consumer.member_id), both_again)
    assert again.consumer.member_id not in ids, "the next life of a named member has an id of its own"
    plain.consumer.close()
    again.consumer.close()
