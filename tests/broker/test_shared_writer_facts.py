"""What one writer for many tasks would rest on (docs/decisions/0024), on a real broker.

Each fact is a rule of the model in ``stateflow.lab.protocol.shared``. If one changes with a broker or client, the test
tells.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence

import pytest

from stateflow.errors import OffsetsPending, ProducerFenced, TransactionAborted
from stateflow.log.base import Committed, GroupConsumer, TopicSpec, Writer
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.log.reading import read_range
from stateflow.record import TopicPartition
from stateflow.testing.broker import TestBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


class Listener:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.told = 0

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += 1

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += 1

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += 1


@pytest.fixture
def impatient(broker: TestBroker) -> Iterator[KafkaCluster]:
    """Waits for stable offsets for two seconds only."""
    made = KafkaCluster(broker.bootstrap, options=KafkaOptions(request_timeout_seconds=2.0))
    yield made
    made.close()


@pytest.fixture
def name(cluster: KafkaCluster) -> str:
    """Of an input topic with two partitions, its group and a changelog."""
    made = f"shared-{uuid.uuid4().hex[:8]}"
    cluster.create([TopicSpec(made, 2), TopicSpec(f"{made}-changelog", 1)])
    return made


def test_a_stale_generation_is_refused_and_a_transaction_without_offsets_is_not(
    cluster: KafkaCluster, name: str
) -> None:
    place, changelog = TopicPartition(name, 0), TopicPartition(f"{name}-changelog", 0)
    first, writer = joined(cluster, name), cluster.writer(f"{name}-a")
    proof = first.metadata()
    second = joined(cluster, name, beside=first)  # a rebalance: the proof is of the generation before
    writer.begin()
    put(writer, changelog, b"stale")
    with pytest.raises((TransactionAborted, ProducerFenced)):
        writer.send_offsets({place: Committed(1)}, name, proof)
    writer.close()
    assert cluster.committed(name, [place]) == {}

    other = cluster.writer(f"{name}-b")
    other.begin()
    put(other, changelog, b"nobody asked")
    other.commit()
    other.close()

    def is_decided() -> bool:
        return cluster.ranges([changelog]) == cluster.ranges([changelog], stable=False)

    wait_until(is_decided, "the marker, which follows the answer")
    assert visible(cluster, changelog) == [b"nobody asked"]
    second.close()
    first.close()


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_taken_before_a_rebalance_hold_up_the_next_owner_until_they_are_decided(
    cluster: KafkaCluster, impatient: KafkaCluster, name: str, commits: bool
) -> None:
    """Its transaction may still commit afterwards: the generation is asked when offsets are sent, and not again."""
    place = TopicPartition(name, 0)
    first, writer = joined(cluster, name), cluster.writer(f"{name}-a")
    writer.begin()
    writer.send_offsets({place: Committed(7)}, name, first.metadata())
    second = joined(cluster, name, beside=first)
    with pytest.raises(OffsetsPending):
        impatient.committed(name, [place])
    if commits:
        writer.commit()
    else:
        writer.abort()
    assert cluster.committed(name, [place]) == ({place: Committed(7)} if commits else {})
    writer.close()
    second.close()
    first.close()


def test_an_open_transaction_hides_what_its_successor_commits_until_its_id_is_fenced(
    cluster: KafkaCluster, name: str
) -> None:
    """So a target must be the end of the log, not the last stable offset; and who knows the id need not wait."""
    changelog = TopicPartition(f"{name}-changelog", 0)
    zombie, successor = cluster.writer(f"{name}-zombie"), cluster.writer(f"{name}-successor")
    zombie.begin()
    put(zombie, changelog, b"void")
    successor.begin()
    put(successor, changelog, b"true")
    successor.commit()
    assert visible(cluster, changelog) == []
    assert cluster.ranges([changelog])[changelog].offset_next == 0
    assert cluster.ranges([changelog], stable=False)[changelog].offset_next >= 2

    cluster.writer(f"{name}-zombie").close()  # by anybody, from anywhere
    end = cluster.ranges([changelog], stable=False)[changelog]
    assert cluster.ranges([changelog])[changelog] == end, "on return of the fence all is decided"
    assert visible(cluster, changelog) == [b"true"]
    with pytest.raises(ProducerFenced):
        put(zombie, changelog, b"late")
    zombie.close()
    successor.close()


def joined(cluster: KafkaCluster, name: str, beside: GroupConsumer | None = None) -> GroupConsumer:
    """A member that has been assigned something, while another goes on taking part."""
    listener = Listener()
    member = cluster.group_consumer(name, [name], listener)
    deadline = time.monotonic() + 30
    while not listener.told or (beside is not None and len(cluster.group_members(name)) < 2):
        assert time.monotonic() < deadline, "the group never settled"
        for each in (member, beside):
            if each is not None:
                each.poll(1, 0.1)
    return member


def put(writer: Writer, partition: TopicPartition, value: bytes) -> None:
    writer.send(partition.topic, b"k", value, partition=partition.partition)
    writer.flush()


def visible(cluster: KafkaCluster, partition: TopicPartition) -> list[bytes | None]:
    """Values up to the last stable offset."""
    held = cluster.ranges([partition])[partition]
    return [value for batch in read_range(cluster, partition, held) for value in batch.values]
