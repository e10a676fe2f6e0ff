"""A member of a group that is closed: its listener is told everything before the client library begins to close.

What the library tells while it closes may be answered by nobody, and the process stands still (librdkafka 4884).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.log.kafka.consumer import KafkaGroupConsumer
from stateflow.record import TopicPartition
from tests.broker.test_frozen_broker import frozen

pytestmark = pytest.mark.broker

SESSION_SECONDS = 1.5
OPTIONS = KafkaOptions(session_timeout_ms=int(SESSION_SECONDS * 1000), heartbeat_interval_ms=300)
PLACES = [TopicPartition("t", number) for number in range(2)]


class Listener:
    """Remembers what it was told, and in which thread."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition], threading.Thread]] = []

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._tell("assigned", partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._tell("revoked", partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._tell("lost", partitions)

    def _tell(self, event: str, partitions: Sequence[TopicPartition]) -> None:
        self.told.append((event, list(partitions), threading.current_thread()))


def joined(cluster: KafkaCluster, listener: Listener, member: str | None) -> KafkaGroupConsumer:
    cluster.create([TopicSpec("t", len(PLACES))])
    consumer = cluster.group_consumer("g", ["t"], listener, member=member)
    while not listener.told:
        consumer.poll(1, 0.1)
    return consumer


@pytest.mark.timeout(60)
def test_a_dynamic_member_gives_its_partitions_back_before_its_client_closes() -> None:
    with EmbeddedKafka() as kafka:
        cluster, listener = KafkaCluster(kafka.bootstrap, options=OPTIONS), Listener()
        joined(cluster, listener, member=None).close()
        assert listener.told[1:] == [("revoked", PLACES, threading.current_thread())]
        assert not cluster.group_members("g")
        cluster.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("member", [None, "static"])
def test_a_member_whose_session_has_ended_hears_of_it_before_its_client_closes(member: str | None) -> None:
    with EmbeddedKafka(overrides={"broker.session.timeout.ms": 30_000}) as kafka:
        cluster, listener = KafkaCluster(kafka.bootstrap, options=OPTIONS), Listener()
        consumer = joined(cluster, listener, member)
        with frozen(kafka.pids[0], 2 * SESSION_SECONDS):
            pass  # it is not polled meanwhile, and hears of it later, like a process that was stopped itself
        consumer.close()
        assert listener.told[1:] == [("lost", PLACES, threading.current_thread())]
        cluster.close()
