"""A dynamic member that has forgotten its id in an outage is not kept waiting for itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.log.base import GroupConsumer, TopicSpec
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.record import TopicPartition
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

SESSION_SECONDS = 12.0
"""The outage lasts as long, and the coordinator that comes back would wait as long for the former id."""


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        yield kafka


class Listener:
    """What a member owns."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned.update(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned.difference_update(partitions)

    on_lost = on_revoked


def owns(member: GroupConsumer, listener: Listener, partitions: int) -> bool:
    """Whether it owns so many partitions after another poll."""
    member.poll(10, 0.05)
    return len(listener.owned) == partitions


def test_a_member_is_back_soon_after_an_outage_of_a_session(kafka: EmbeddedKafka) -> None:
    options = KafkaOptions(session_timeout_ms=int(SESSION_SECONDS * 1000))
    with closing(KafkaCluster(kafka.bootstrap, None, options)) as cluster:
        cluster.create([TopicSpec("t", 2)])
        listener = Listener()
        member = cluster.group_consumer("g", ["t"], listener)
        wait_until(lambda: owns(member, listener, 2), "its partitions")
        (former,) = cluster.group_members("g")
        kafka.nodes[0].kill()
        wait_until(lambda: owns(member, listener, 0), "the end of its session", seconds=60.0)
        kafka.restart_node(1)
        began_seconds = time.monotonic()
        wait_until(lambda: owns(member, listener, 2), "its partitions again", seconds=60.0)
        seconds = time.monotonic() - began_seconds
        assert former not in cluster.group_members("g"), "it has joined as another member"
        assert seconds < SESSION_SECONDS * 2 / 3, "the coordinator has waited for the former id"
        member.close()


def test_a_member_that_is_closed_amid_an_outage_does_not_wait_for_its_former_id(kafka: EmbeddedKafka) -> None:
    options = KafkaOptions(session_timeout_ms=1_000, heartbeat_interval_ms=300)
    with closing(KafkaCluster(kafka.bootstrap, None, options)) as cluster:
        cluster.create([TopicSpec("t", 2)])
        listener = Listener()
        member = cluster.group_consumer("g", ["t"], listener)
        wait_until(lambda: owns(member, listener, 2), "its partitions")
        kafka.nodes[0].kill()
        wait_until(lambda: owns(member, listener, 0), "the end of its session", seconds=60.0)
        began_seconds = time.monotonic()
        member.close()
        assert time.monotonic() - began_seconds < 30.0
