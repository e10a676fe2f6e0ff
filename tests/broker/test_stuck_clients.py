"""A client that has lost all brokers for good, while others reach them, is replaced by a new one.

librdkafka gets into that state after outages, on a busy machine more often. What cannot be had at will is only that
state: it is declared here, to clients that are well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import Committed, TopicSpec
from stateflow.log.kafka import KafkaCluster, KafkaOptions, admin, consumer, fetching
from stateflow.log.kafka.consumer import KafkaGroupConsumer
from stateflow.log.kafka.reader import KafkaReader
from stateflow.record import TopicPartition
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

PLACE = TopicPartition("t", 0)
OUTAGE_SECONDS = 8.0


class Listener:
    """Begins to read where a test says as soon as a partition is dealt to it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.offset_next = 0
        self.member: KafkaGroupConsumer | None = None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.member is not None
        self.told.append("assigned")
        self.member.start(dict.fromkeys(partitions, self.offset_next))

    def on_revoked(self, _: Sequence[TopicPartition]) -> None:
        self.told.append("revoked")

    def on_lost(self, _: Sequence[TopicPartition]) -> None:
        self.told.append("lost")


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with EmbeddedKafka() as kafka:
        options = KafkaOptions(unreachable_seconds=0.1, session_timeout_ms=6_000)
        cluster = KafkaCluster(kafka.bootstrap, options=options)
        cluster.create([TopicSpec("t", 1)])
        yield cluster
        cluster.close()


def send(cluster: KafkaCluster, value: bytes) -> None:
    writer = cluster.writer()
    writer.begin()
    writer.send("t", None, value, partition=0)
    writer.commit()
    writer.close()


def declare_stuck(client: KafkaReader | KafkaGroupConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the next time on at which there is nothing to read, until it has made itself another client."""
    read = client.read if isinstance(client, KafkaReader) else client.poll
    while read(10, 1.0):  # the end of the partition is told, too, and shows that the brokers answer
        pass
    stuck = client._consumer
    monkeypatch.setattr(fetching, "answers", lambda asked: asked is not stuck)
    client._fetching.broker_event(KafkaError(KafkaError._ALL_BROKERS_DOWN))


def values(read: Callable[[int, float], Sequence[object]], count: int) -> list[bytes]:
    found: list[bytes] = []

    def all_there() -> bool:
        for batch in read(10, 0.1):
            found.extend(batch.values)  # type: ignore[attr-defined]
        return len(found) >= count

    wait_until(all_there, lambda: f"{count} records, of which there are {found}", every_seconds=0.0)
    return found


def test_a_reader_goes_on_where_it_was(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = cluster.reader()
    reader.assign({PLACE: 0})
    send(cluster, b"before")
    assert values(reader.read, 1) == [b"before"]
    stuck = reader._consumer
    declare_stuck(reader, monkeypatch)
    deadline = time.monotonic() + 20
    while reader._consumer is stuck:
        assert reader.read(10, 0.1) == []
        assert time.monotonic() < deadline
    send(cluster, b"after")
    assert values(reader.read, 1) == [b"after"]
    reader.close()


@pytest.mark.parametrize("name", [None, "static"])
def test_a_member_loses_what_it_had_and_joins_again(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    listener = Listener()
    member = listener.member = cluster.group_consumer("g", ["t"], listener, member=name)
    send(cluster, b"before")
    assert values(member.poll, 1) == [b"before"]
    listener.offset_next = 1
    declare_stuck(member, monkeypatch)
    wait_until(lambda: not member.poll(10, 0.1) and "lost" in listener.told, "another client")
    send(cluster, b"after")
    assert values(member.poll, 1) == [b"after"]
    assert listener.told == ["assigned", "lost", "assigned"]
    member.close()


def test_a_member_that_the_group_does_not_know_joins_again(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    member = listener.member = cluster.group_consumer("g", ["t"], listener)
    send(cluster, b"before")
    assert values(member.poll, 1) == [b"before"]
    listener.offset_next = 1
    monkeypatch.setattr(consumer, "_VERIFY_SECONDS", 0.0)
    member.verify_membership()
    assert listener.told == ["assigned"], "the group knows it"
    with monkeypatch.context() as declared:
        declared.setattr(member._offsets, "group_members", lambda *_: [])
        member.verify_membership()
        assert listener.told == ["assigned"], "it may just be joining"
        member.verify_membership()
    assert listener.told == ["assigned", "lost"]
    send(cluster, b"after")
    assert values(member.poll, 1) == [b"after"]
    member.close()


def test_offsets_are_asked_for_by_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that reaches nobody, for a consumer that has lost all brokers and does not find back."""
    monkeypatch.setattr(admin, "_REPLACE_SECONDS", 0.0)
    with EmbeddedKafka() as kafka:
        cluster = KafkaCluster(kafka.bootstrap, options=KafkaOptions(request_timeout_seconds=3.0))
        cluster.create([TopicSpec("t", 1)])
        cluster.commit("g", {PLACE: Committed(7)})
        nowhere = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
        stuck = Consumer(nowhere)
        cluster._admin.coordinators._asking["read_committed", "g"] = stuck
        assert cluster.committed("g", [PLACE]) == {PLACE: Committed(7)}
        assert cluster._admin.coordinators._asking["read_committed", "g"] is not stuck
        stuck.close()
        cluster.close()


def is_answered(ask: Callable[[KafkaCluster], object], cluster: KafkaCluster) -> bool:
    try:
        ask(cluster)
    except BrokerUnreachable:
        return False
    return True


def test_who_asks_brokers_rests_while_none_is_there() -> None:
    """A worker does so, to know whether all is done, to purge and to notice new partitions, while an outage lasts.

    Requests are on their way when the broker goes: those that begin later may fail at once.
    """
    asks: list[Callable[[KafkaCluster], object]] = [
        lambda cluster: cluster.ends([PLACE]),
        lambda cluster: cluster.trim({PLACE: 1}),
        lambda cluster: cluster.describe([PLACE.topic]),
        lambda cluster: cluster.topic_config(PLACE.topic),
    ]
    with EmbeddedKafka() as kafka:
        options = KafkaOptions(request_timeout_seconds=OUTAGE_SECONDS)
        clusters = [KafkaCluster(kafka.bootstrap, options=options) for _ in asks]
        clusters[0].create([TopicSpec(PLACE.topic, 1)])
        send(clusters[0], b"before")

        def ask_on(ask: Callable[[KafkaCluster], object], cluster: KafkaCluster) -> None:
            while is_answered(ask, cluster):
                pass

        with ThreadPoolExecutor() as pool:
            asking = [pool.submit(ask_on, *each) for each in zip(asks, clusters, strict=True)]
            kafka.nodes[0].stop()
            worked_seconds = time.process_time()
            for one in asking:
                one.result()
        worked_seconds = time.process_time() - worked_seconds
        assert worked_seconds < OUTAGE_SECONDS / 6
        kafka.restart_node(1)
        for ask, cluster in zip(asks, clusters, strict=True):
            # Clients rest for up to 10 s between two attempts to connect, which is longer than a request here.
            wait_until(partial(is_answered, ask, cluster), "an answer", seconds=30)
        assert clusters[0].ends([PLACE])[PLACE] > 0
        for cluster in clusters:
            cluster.close()
