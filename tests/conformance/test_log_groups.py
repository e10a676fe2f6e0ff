"""Consumer groups: who has what, who is told when, and who may commit."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from stateflow.errors import MembershipLost, OffsetOutOfRange, TopicMissing
from stateflow.log.base import Committed
from stateflow.record import TopicPartition
from tests.conformance.log_world import MAX_POLL_MS, SESSION_MS, STEP_SECONDS, Member, World


def places(topic: str, *partitions: int) -> set[TopicPartition]:
    return {TopicPartition(topic, partition) for partition in partitions}


def poll(*members: Member) -> None:
    """Poll each once."""
    for member in members:
        member.poll()


def settle(world: World, topic: str, count: int, *members: Member, each_at_least: int = 1) -> None:
    """Poll everyone until the partitions are all owned, by members that each have a share."""

    def settled() -> bool:
        owned = [member.listener.owned for member in members]
        return sum(map(len, owned)) == count and all(len(own) >= each_at_least for own in owned)

    world.until(settled, lambda: poll(*members))
    together = [place for member in members for place in member.listener.owned]
    assert sorted(together) == sorted(places(topic, *range(count)))


def test_one_member_gets_everything_and_reads_nothing_before_start(world: World) -> None:
    topic = world.topic(partitions=4)
    for partition in range(4):
        world.produce(topic, (b"k", b"%d" % partition), partition=partition)
    member = Member(world, world.name("group"), [topic])
    settle(world, topic, 4, member)
    world.during(0.5, member.poll)
    assert member.records == []
    member.consumer.start({TopicPartition(topic, 1): 0, TopicPartition(topic, 2): 1})
    world.until(lambda: len(member.records) == 1, member.poll)
    world.during(0.3, member.poll)
    assert [record.value for record in member.records] == [b"1"]
    assert member.consumer.position(TopicPartition(topic, 1)) == 1
    assert member.consumer.position(TopicPartition(topic, 2)) == 1
    member.consumer.close()
    assert member.listener.owned == set()
    assert member.listener.told("revoked") == sorted(places(topic, 0, 1, 2, 3))


def test_a_second_member_takes_over_in_order(world: World) -> None:
    topic, group = world.topic(partitions=4), world.name("group")
    first = Member(world, group, [topic])
    settle(world, topic, 4, first)
    first.start_all()
    world.during(0.2, first.poll)
    owned_by_first = first.listener.owned
    second = Member(world, group, [topic])

    def not_twice() -> None:
        first.poll()
        second.poll()
        assert not owned_by_first & second.listener.owned, "a partition is given only after it was given up"

    world.until(lambda: len(second.listener.owned) == 2 and len(first.listener.owned) == 2, not_twice)
    assert len(first.listener.told("revoked")) == 2, "what stays is not revoked for the others' sake"
    assert len(first.listener.told("assigned")) == 4
    assert len(world.cluster.group_members(group)) == 2
    second.consumer.close()
    settle(world, topic, 4, first)
    assert len(first.listener.told("assigned")) == 6
    first.consumer.close()
    world.until(lambda: world.cluster.group_members(group) == [])


def test_what_stays_is_read_on_without_a_gap_or_repetition(world: World) -> None:
    topic, group = world.topic(partitions=4), world.name("group")
    first = Member(world, group, [topic])
    settle(world, topic, 4, first)
    first.start_all()
    for partition in range(4):
        world.produce(topic, *[(b"k", b"a%d" % n) for n in range(20)], partition=partition)
    world.until(lambda: len(first.records) == 80, first.poll)
    second = Member(world, group, [topic])
    settle(world, topic, 4, first, second, each_at_least=2)
    second.start_all(offset=20)
    for partition in range(4):
        world.produce(topic, *[(b"k", b"b%d" % n) for n in range(20)], partition=partition)

    def poll_both() -> None:
        poll(first, second)

    world.until(lambda: len(first.records) + len(second.records) == 160, poll_both)
    world.during(0.3, poll_both)
    seen = [(record.partition, record.offset) for record in first.records + second.records]
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(40)]
    first.consumer.close()
    second.consumer.close()


def test_three_members_joining_and_leaving(world: World) -> None:
    topic, group = world.topic(partitions=6), world.name("group")
    members = [Member(world, group, [topic]) for _ in range(3)]
    settle(world, topic, 6, *members, each_at_least=2)
    members[0].consumer.close()
    settle(world, topic, 6, *members[1:], each_at_least=3)
    members[1].consumer.close()
    settle(world, topic, 6, members[2])
    joined = Member(world, group, [topic])
    settle(world, topic, 6, members[2], joined, each_at_least=3)
    joined.consumer.close()
    members[2].consumer.close()


def test_a_commit_while_giving_up_is_taken(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    first = Member(world, group, [topic])
    settle(world, topic, 2, first)
    first.start_all()

    def hand_over(gone: Sequence[TopicPartition]) -> None:
        for place in gone:
            first.commit(place, 11, "handed over")

    first.listener.at_revoke = hand_over
    second = Member(world, group, [topic])
    settle(world, topic, 2, first, second)
    (moved,) = second.listener.owned
    assert world.cluster.committed(group, [moved]) == {moved: Committed(11, "handed over")}
    first.listener.at_revoke = lambda _: None
    first.commit(next(iter(first.listener.owned)), 3)
    second.commit(moved, 12)
    assert world.cluster.committed(group, [moved]) == {moved: Committed(12)}
    first.consumer.close()
    second.consumer.close()


def test_a_transaction_while_giving_up_is_taken(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    first = Member(world, group, [topic])
    settle(world, topic, 2, first)
    writer = world.cluster.writer(world.name("tx"))

    def commit_all(gone: Sequence[TopicPartition]) -> None:
        writer.begin()
        offsets = {place: Committed(5, "in a transaction") for place in gone}
        writer.send_offsets(offsets, group, first.consumer.metadata())
        writer.commit()

    first.listener.at_revoke = commit_all
    second = Member(world, group, [topic])
    settle(world, topic, 2, first, second)
    (moved,) = second.listener.owned
    assert world.cluster.committed(group, [moved]) == {moved: Committed(5, "in a transaction")}
    first.consumer.close()
    second.consumer.close()
    writer.close()


def test_what_the_listener_raises_comes_out_of_poll(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    first = Member(world, group, [topic])
    settle(world, topic, 2, first)

    def fail(_: Sequence[TopicPartition]) -> None:
        raise ZeroDivisionError("from the listener")

    first.listener.at_revoke = fail
    second = Member(world, group, [topic])

    def poll_both() -> None:
        poll(second, first)

    with pytest.raises(ZeroDivisionError, match="from the listener"):
        world.until(lambda: False, poll_both)
    first.listener.at_revoke = lambda _: None
    first.listener.owned -= second.listener.owned
    second.consumer.close()
    first.consumer.close()


def test_a_member_that_stops_polling_loses_its_partitions_and_may_come_back(world: World) -> None:
    topic, group = world.topic(partitions=4), world.name("group")
    lively, stalled = Member(world, group, [topic]), Member(world, group, [topic])
    settle(world, topic, 4, lively, stalled, each_at_least=2)
    stalled.start_all()
    had = set(stalled.listener.owned)
    world.until(lambda: len(lively.listener.owned) == 4, lively.poll)
    assert stalled.listener.owned == had, "nobody told it, for it did not ask"
    place = min(had)
    with pytest.raises(MembershipLost):
        stalled.commit(place, 1)
    world.until(lambda: bool(stalled.listener.told("lost")), stalled.poll)
    assert stalled.listener.told("lost") == sorted(had)
    settle(world, topic, 4, lively, stalled, each_at_least=2)
    stalled.consumer.close()
    lively.consumer.close()


def test_a_static_member_that_returns_in_time_disturbs_nobody(world: World) -> None:
    topic, group = world.topic(partitions=4), world.name("group")
    stays = Member(world, group, [topic], member="stays")
    leaves = Member(world, group, [topic], member="leaves")
    settle(world, topic, 4, stays, leaves, each_at_least=2)
    had, events = set(leaves.listener.owned), list(stays.listener.events)
    leaves.consumer.close()
    assert len(world.cluster.group_members(group)) == 2, "a static member does not say goodbye"
    returns = Member(world, group, [topic], member="leaves")
    world.until(lambda: returns.listener.owned == had, lambda: poll(stays, returns))
    assert stays.listener.events == events, "no rebalance"
    returns.start_all()
    world.produce(topic, (b"k", b"v"), partition=min(had).partition)
    world.until(lambda: len(returns.records) == 1, returns.poll)
    returns.consumer.close()
    stays.consumer.close()


def test_a_static_member_that_stays_away_is_replaced(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    stays = Member(world, group, [topic], member="stays")
    leaves = Member(world, group, [topic], member="leaves")
    settle(world, topic, 2, stays, leaves)
    leaves.consumer.close()
    world.during(SESSION_MS / 3000, stays.poll)
    assert len(stays.listener.owned) == 1
    world.until(lambda: len(stays.listener.owned) == 2, stays.poll)
    assert len(world.cluster.group_members(group)) == 1
    stays.consumer.close()


def test_a_static_member_started_twice_ends_the_first(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    first = Member(world, group, [topic], member="same")
    settle(world, topic, 1, first)
    second = Member(world, group, [topic], member="same")
    world.until(lambda: len(second.listener.owned) == 1, second.poll)
    with pytest.raises(MembershipLost):
        world.until(lambda: False, lambda: poll(second, first))  # only one that polls is alive
    with pytest.raises(MembershipLost):
        first.commit(TopicPartition(topic, 0), 1)
    second.poll()
    assert len(second.listener.owned) == 1
    second.commit(TopicPartition(topic, 0), 2)
    first.consumer.close()
    second.consumer.close()


def test_stopped_partitions_are_read_again_from_where_one_says(world: World) -> None:
    topic = world.topic()
    place = TopicPartition(topic, 0)
    world.produce(topic, *[(b"k", b"%d" % n) for n in range(10)])
    member = Member(world, world.name("group"), [topic])
    settle(world, topic, 1, member)
    member.consumer.stop([place, TopicPartition(topic, 9)])
    member.start_all(7)
    world.until(lambda: len(member.records) == 3, member.poll)
    member.consumer.stop([place])
    world.produce(topic, (b"k", b"10"))
    world.during(0.3, member.poll)
    assert len(member.records) == 3
    member.consumer.start({place: 2})
    world.until(lambda: len(member.records) == 3 + 9, member.poll)
    assert [record.offset for record in member.records] == [7, 8, 9, *range(2, 11)]
    member.consumer.close()


def test_partitions_stopped_and_started_amid_the_records_of_others_miss_none(world: World) -> None:
    """The client works off a stop some time after it was told: what it has fetched comes neither late nor twice."""
    draw, topic = random.Random(6), world.topic(partitions=3)
    places = [TopicPartition(topic, partition) for partition in range(3)]
    for place in places:
        world.produce(topic, *[(b"k", b"%d" % n) for n in range(3_000)], partition=place.partition)
    member = Member(world, world.name("group"), [topic])
    settle(world, topic, 3, member)
    wanted = dict.fromkeys(places, 0)
    member.consumer.start(wanted)

    def read() -> None:
        for batch in member.consumer.poll(draw.choice([1, 50, 300]), STEP_SECONDS):
            first = wanted[batch.source]
            assert batch.offsets == list(range(first, first + len(batch)))
            wanted[batch.source] += len(batch)

    def read_and_start_again() -> None:
        read()
        place = draw.choice(places[:2])
        wanted[place] = max(0, wanted[place] - draw.choice([0, 0, 1, 400]))
        member.consumer.stop([place])
        if draw.random() < 0.3:
            read()
        member.consumer.start({place: wanted[place]})

    for _ in range(30):
        read_and_start_again()
    world.until(lambda: all(offset == 3_000 for offset in wanted.values()), read)
    assert all(member.consumer.position(place) == 3_000 for place in places)
    member.consumer.close()


def test_partitions_of_another_topic_are_read_beside(world: World) -> None:
    lead, beside = world.topic(partitions=2), world.topic(partitions=2)
    world.produce(beside, (b"k", b"co-partitioned"), partition=1)
    group = world.name("group")
    member = Member(world, group, [lead])
    settle(world, lead, 2, member)
    member.consumer.start({TopicPartition(lead, 1): 0, TopicPartition(beside, 1): 0})
    world.until(lambda: len(member.records) == 1, member.poll)
    assert member.records[0].value == b"co-partitioned"
    other = Member(world, group, [lead])
    settle(world, lead, 2, member, other)
    world.produce(beside, (b"k", b"still read"), partition=1)
    world.until(lambda: len(member.records) == 2, lambda: poll(member, other))
    member.consumer.stop([TopicPartition(beside, 1)])
    member.consumer.close()
    other.consumer.close()


def test_starting_inside_the_callback(world: World) -> None:
    topic = world.topic(partitions=2)
    world.produce(topic, (b"k", b"v"), partition=1)
    member = Member(world, world.name("group"), [topic])
    taken = member.listener.on_assigned

    def start_at_once(partitions: Sequence[TopicPartition]) -> None:
        taken(partitions)
        member.consumer.start(dict.fromkeys(partitions, 0))

    member.listener.on_assigned = start_at_once  # type: ignore[method-assign]
    world.until(lambda: len(member.records) == 1, member.poll)
    assert [(record.partition, record.offset) for record in member.records] == [(1, 0)]
    member.consumer.close()


def test_starting_outside_the_log_is_an_error(world: World) -> None:
    topic = world.topic()
    member = Member(world, world.name("group"), [topic])
    settle(world, topic, 1, member)
    member.start_all(99)
    with pytest.raises(OffsetOutOfRange):
        world.until(lambda: False, member.poll)
    member.consumer.close()


def test_a_missing_topic_is_noticed_when_joining(world: World) -> None:
    with pytest.raises(TopicMissing):
        Member(world, world.name("group"), [world.name("missing")])


def test_members_of_several_topics_share_each(world: World) -> None:
    one, two = world.topic(partitions=2), world.topic(partitions=2)
    group = world.name("group")
    first, second = Member(world, group, [one, two]), Member(world, group, [one, two])

    def shared() -> bool:
        return len(first.listener.owned) == len(second.listener.owned) == 2

    world.until(shared, lambda: poll(first, second))
    assert first.listener.owned | second.listener.owned == places(one, 0, 1) | places(two, 0, 1)
    first.consumer.close()
    second.consumer.close()


def test_polling_keeps_a_member_in_the_group(world: World) -> None:
    topic = world.topic()
    member = Member(world, world.name("group"), [topic])
    settle(world, topic, 1, member)
    world.during(1.5 * MAX_POLL_MS / 1000, member.poll)
    assert [kind for kind, _ in member.listener.events] == ["assigned"]
    assert member.consumer.poll(10, STEP_SECONDS) == []
    member.consumer.close()
