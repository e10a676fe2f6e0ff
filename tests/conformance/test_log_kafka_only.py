"""What only a real cluster, and its absence, can show."""

from __future__ import annotations

import logging
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from typing import Any

import pytest

from stateflow.errors import BrokerRefused, BrokerUnreachable
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, KafkaOptions, connect, streams
from stateflow.log.kafka.admin import OFFSETS
from stateflow.log.reading import read_ranges
from stateflow.record import TopicPartition
from stateflow.testing.broker import TestBroker
from tests.conformance.log_world import SESSION_MS, Member, World, kafka_world

pytestmark = pytest.mark.slow

CANARY = "canary-secret-41c7"


@pytest.fixture
def kafka(broker: TestBroker) -> World:
    return kafka_world(broker.bootstrap)


def free_address() -> str:
    """An address where nothing listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{holder.getsockname()[1]}"


def test_a_wrong_address_is_named() -> None:
    address = free_address()
    with pytest.raises(BrokerUnreachable, match=address):
        connect(address, timeout_seconds=2.0)


def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(BrokerUnreachable, match=r"no-such-host\.invalid"):
        connect("no-such-host.invalid:9092", timeout_seconds=2.0)


class Listing:
    """A client of librdkafka that notes which topics it lists; None for all of them."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.listed: list[str | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def list_topics(self, topic: str | None = None, **options: Any) -> Any:
        self.listed.append(topic)
        return self._client.list_topics(topic, **options) if topic else self._client.list_topics(**options)


def test_all_topics_of_a_cluster_are_listed_only_for_who_asks(kafka: World, broker: TestBroker) -> None:
    topic = kafka.topic(partitions=2)
    partitions = [TopicPartition(topic, number) for number in range(2)]
    with closing(connect(broker.bootstrap)) as cluster:
        client = cluster._admin.client = Listing(cluster._admin.client)  # type: ignore[assignment]
        assert cluster.cluster_id
        assert cluster.ranges(partitions).keys() == set(partitions)
        assert cluster.transactions.left_open(["nobody"], partitions) is not None
        assert set(client.listed) <= {OFFSETS}
        assert topic in cluster.list_topics()
        assert client.listed[-1] is None


def test_every_call_gives_up_in_time() -> None:
    address = free_address()
    cluster = KafkaCluster(
        address, options=KafkaOptions(request_timeout_seconds=1.0, unreachable_seconds=1.0)
    )
    place = TopicPartition("t", 0)
    for call in (
        lambda: cluster.describe(["t"]),
        lambda: cluster.create([TopicSpec("t", 1)]),
        lambda: cluster.ranges([place]),
        lambda: cluster.committed("g", [place]),
        lambda: cluster.group_members("g"),
        lambda: cluster.writer(),
        lambda: cluster.writer("tx"),
    ):
        with pytest.raises(BrokerUnreachable, match=address):
            call()


def test_a_reader_gives_up_on_a_cluster_that_stays_away() -> None:
    address = free_address()
    reader = KafkaCluster(address, options=KafkaOptions(unreachable_seconds=1.0)).reader()
    reader.assign({TopicPartition("t", 0): 0})
    deadline = time.monotonic() + 20

    def read() -> None:
        while time.monotonic() < deadline:
            reader.read(1, 0.1)

    with pytest.raises(BrokerUnreachable, match=address):
        read()
    reader.close()


def test_no_secret_reaches_a_log_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "someone",
        "sasl.password": CANARY,
        "debug": "conf,security",
    }
    with pytest.raises(BrokerUnreachable) as raised:
        connect(free_address(), settings, timeout_seconds=1.0)
    assert CANARY not in caplog.text
    assert CANARY not in str(raised.value)


@pytest.mark.broker
def test_connect_answers_with_the_clusters_id(broker: TestBroker) -> None:
    cluster = connect(broker.bootstrap)
    assert cluster.cluster_id
    cluster.close()


MEMBER_UNTIL_KILLED = """
import sys
from stateflow.log.kafka import KafkaCluster, KafkaOptions

class Told:
    def on_assigned(self, partitions): print("assigned", len(partitions), flush=True)
    def on_revoked(self, partitions): pass
    def on_lost(self, partitions): pass

bootstrap, group, topic, session_ms = sys.argv[1:]
options = KafkaOptions(session_timeout_ms=int(session_ms), heartbeat_interval_ms=300)
member = KafkaCluster(bootstrap, options=options).group_consumer(group, [topic], Told())
while True:
    member.poll(100, 0.1)
"""


@pytest.mark.broker
def test_the_partitions_of_a_killed_process_are_taken_over(kafka: World, broker: TestBroker) -> None:
    topic, group = kafka.topic(partitions=2), kafka.name("group")
    arguments = [sys.executable, "-c", MEMBER_UNTIL_KILLED, broker.bootstrap, group, topic, str(SESSION_MS)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "assigned 2\n"
            member = Member(kafka, group, [topic])
            kafka.until(lambda: len(member.listener.owned) == 1, member.poll)
            process.send_signal(signal.SIGKILL)
            kafka.until(lambda: len(member.listener.owned) == 2, member.poll)
        finally:
            process.kill()
    assert member.listener.told("revoked") == []
    member.consumer.close()


def test_a_reader_goes_on_to_another_topic_at_once(kafka: World) -> None:
    """Left to itself the client library looks for a topic that comes later only once in a second."""
    places = [TopicPartition(kafka.topic(), 0) for _ in range(2)]
    for place in places:
        kafka.produce(place.topic, (b"k", b"v"))

    def second_seconds() -> float:
        with closing(kafka.cluster.reader()) as reader:
            began = 0.0
            for place in places:
                began = time.monotonic()
                assert [len(batch) for batch in read_ranges(reader, kafka.cluster.ranges([place]))] == [1]
            return time.monotonic() - began

    assert min(second_seconds() for _ in range(3)) < 0.6


def test_small_records_reach_a_topic_that_takes_little_at_a_time(kafka: World) -> None:
    """A batch is held against the topic's limit as a record is, and by itself grows to 1 MB."""
    topic = kafka.topic(config={"max.message.bytes": "20000"})
    small = [random.Random(number).randbytes(1_000) for number in range(200)]
    kafka.cluster.fit_batches([kafka.topic(), topic])
    for writer_id in (None, kafka.name("tx")):
        with closing(kafka.cluster.writer(writer_id)) as writer:
            writer.begin()
            writer.send_many(topic, small, small, partitions=0, timestamps_ms=0)
            writer.commit()
    assert kafka.values(topic) == small * 2


@pytest.mark.parametrize("places", [0, [0, 0, 0]])
def test_a_record_ahead_of_the_brokers_clock_is_refused_with_the_reason(kafka: World, places: Any) -> None:
    topic = kafka.topic(config={"message.timestamp.after.max.ms": "3600000"})
    now_ms = int(time.time() * 1000)
    with closing(kafka.cluster.writer(kafka.name("tx"))) as writer:
        writer.begin()
        times_ms = [now_ms, now_ms + 7_200_000, now_ms]
        writer.send_many(topic, [b"k"] * 3, [b"v"] * 3, partitions=places, timestamps_ms=times_ms)
        with pytest.raises(BrokerRefused, match="INVALID_TIMESTAMP") as told:
            writer.flush()
    assert "message.timestamp.after.max.ms" in told.value.action


def test_a_topic_whose_limit_cannot_be_told_leaves_batches_as_they_are(
    kafka: World, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.cluster.fit_batches(["no-such-topic"])
    assert "no-such-topic" in caplog.text


def test_records_come_though_the_client_has_forgotten_to_whom(
    kafka: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it stops an earlier assignment late: what comes waits in the partition's own queue."""
    monkeypatch.setattr(streams, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(streams, "_AGAIN_SECONDS", 0.3)
    place = TopicPartition(kafka.topic(), 0)
    member = Member(kafka, kafka.name("group"), [place.topic])
    kafka.until(lambda: member.listener.owned == {place}, member.poll)
    stream = member.consumer._stream  # type: ignore[attr-defined]
    if stream is None:
        pytest.skip("without the native core there is no stream")
    member.start_all()
    kafka.produce(place.topic, (b"k", b"one"))
    kafka.until(lambda: len(member.records) == 1, member.poll)
    stream._forward(place, follows=False)
    kafka.produce(place.topic, (b"k", b"two"))
    kafka.until(lambda: len(member.records) == 2, member.poll)
    assert [record.value for record in member.records] == [b"one", b"two"]
    member.consumer.close()
