"""Proofs of membership: renewed for the member that has kept its place, and for no other."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from stateflow.errors import TransactionAborted
from stateflow.log.base import Committed, GroupMetadata
from stateflow.log.kafka import streams
from stateflow.record import TopicPartition
from tests.conformance.log_world import MAX_POLL_MS, Member, World

WAIT_SECONDS = 20.0


@pytest.fixture(params=[True, False], ids=["core", "plain"], autouse=True)
def has_core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The client's handle is known, as the native core reads from it; or it is not."""
    if not request.param:
        monkeypatch.setattr(streams, "client_core", lambda: None)
    return bool(request.param)


def joined(world: World, group: str, topic: str, partitions: int) -> Member:
    member = Member(world, group, [topic])
    world.until(lambda: len(member.listener.owned) == partitions, member.poll)
    return member


def poll(*members: Member) -> None:
    for member in members:
        member.poll()


def send_offset(world: World, group: str, place: TopicPartition, proof: GroupMetadata) -> None:
    writer = world.cluster.writer(world.name("tx"))
    try:
        writer.begin()
        writer.send(place.topic, b"k", b"v", partition=place.partition)
        writer.send_offsets({place: Committed(7)}, group, proof)
        writer.commit()
    finally:
        writer.close()


def test_a_rebalance_makes_a_proof_stale_and_it_is_renewed(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    first = joined(world, group, topic, 2)
    proof = first.consumer.metadata()
    assert first.consumer.renewed(proof) == proof, "nothing has happened"
    second = Member(world, group, [topic])
    world.until(
        lambda: len(first.listener.owned) == len(second.listener.owned) == 1,
        lambda: poll(first, second),
    )
    first.poll()
    (kept,) = first.listener.owned
    with pytest.raises(TransactionAborted):
        send_offset(world, group, kept, proof)
    send_offset(world, group, kept, first.consumer.renewed(proof))
    assert world.cluster.committed(group, [kept]) == {kept: Committed(7)}
    assert second.consumer.renewed(proof) == proof, "it is not the other's"
    first.consumer.close()
    second.consumer.close()


def test_a_proof_is_renewed_beside_a_callback(world: World) -> None:
    topic, group = world.topic(partitions=2), world.name("group")
    first = joined(world, group, topic, 2)
    proof = first.consumer.metadata()
    renewed: list[GroupMetadata] = []

    def commit_elsewhere(gone: Sequence[TopicPartition]) -> None:
        def commit() -> None:
            renewed.append(first.consumer.renewed(proof))
            send_offset(world, group, gone[0], renewed[0])

        thread = threading.Thread(target=commit)
        thread.start()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), "the client does not answer beside its callback"

    first.listener.at_revoke = commit_elsewhere
    second = Member(world, group, [topic])
    world.until(lambda: len(second.listener.owned) == 1, lambda: poll(first, second))
    first.listener.at_revoke = lambda _: None
    (moved,) = second.listener.owned
    assert renewed != [proof]
    assert world.cluster.committed(group, [moved]) == {moved: Committed(7)}
    first.consumer.close()
    second.consumer.close()


def test_the_proof_of_a_member_that_was_put_out_is_not_renewed(world: World) -> None:
    topic, group = world.topic(), world.name("group")
    place = TopicPartition(topic, 0)
    stalled = joined(world, group, topic, 1)
    lively = Member(world, group, [topic])
    proof = stalled.consumer.metadata()
    world.during(MAX_POLL_MS / 1000 + 0.5, lively.poll)
    world.until(lambda: lively.listener.owned == {place}, lively.poll)
    assert stalled.consumer.renewed(proof) == proof, "nobody has told it yet"
    with pytest.raises(TransactionAborted):
        send_offset(world, group, place, stalled.consumer.renewed(proof))
    lively.consumer.close()
    world.until(lambda: stalled.listener.told("assigned") == [place, place], stalled.poll)
    assert stalled.consumer.renewed(proof) == proof, "it has come back as another member"
    with pytest.raises(TransactionAborted):
        send_offset(world, group, place, stalled.consumer.renewed(proof))
    send_offset(world, group, place, stalled.consumer.metadata())
    stalled.consumer.close()
    assert stalled.consumer.renewed(proof) == proof, "nothing is asked of a closed client"


def test_a_transaction_that_proves_nothing_is_taken_beside_live_members(world: World) -> None:
    """First positions are committed with the catalog, whatever member opens the task."""
    topic, group = world.topic(partitions=1), world.name("group")
    member = joined(world, group, topic, 1)
    place = TopicPartition(topic, 0)
    writer = world.cluster.writer(world.name("tx"))
    writer.begin()
    writer.send(topic, b"k", b"v", partition=0)
    writer.send_offsets({place: Committed(3)}, group, None)
    writer.commit()
    writer.close()
    assert world.cluster.committed(group, [place]) == {place: Committed(3)}
    poll(member)
    assert set(member.listener.owned) == {place}, "the member stays"
    member.consumer.close()
