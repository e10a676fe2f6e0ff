"""Many records at a time to a real cluster: the core and the Python client send the same, and meet the same errors."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from stateflow.errors import BrokerRefused, BrokerUnreachable, ProducerFenced, StateflowError, TopicMissing
from stateflow.log.base import Appended, TopicSpec, Writer
from stateflow.log.kafka import KafkaCluster, KafkaOptions, sends
from stateflow.log.outgoing import Outgoing
from stateflow.record import Record, TopicPartition
from stateflow.testing.broker import TestBroker
from tests.conformance.log_world import World, kafka_world

pytestmark = [pytest.mark.broker, pytest.mark.slow]

BY = ("core", "client")
TRANSACTIONAL = (True, False)
TIME_MS = 1_650_000_000_000
ADMINISTRATIVE = 1
"""A cluster has a client of its own."""

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are looked up in /proc")


@dataclass
class Sending:
    """A world of one cluster, and a writer's settings in it."""

    world: World
    bootstrap: str
    by: str

    def writer(self, transactional: bool, **settings: object) -> Writer:
        """One with settings of its own, which its cluster is made for."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        options = KafkaOptions(request_timeout_seconds=5.0, transaction_timeout_ms=20_000)
        cluster = KafkaCluster(self.bootstrap, named, options=options)
        return cluster.writer(self.world.name("tx") if transactional else None)


@pytest.fixture(params=BY)
def sending(
    request: pytest.FixtureRequest, broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sending]:
    """Both ways to send; the core's is used where it is there."""
    if request.param == "client":
        monkeypatch.setattr(sends, "sends_core", lambda: None)
    world = kafka_world(broker.bootstrap)
    yield Sending(world, broker.bootstrap, request.param)
    world.cluster.close()


def drawn(topic: str, draw: random.Random, count: int) -> Outgoing:
    """Records of any shape, to partitions 0 to 2."""
    fills: tuple[Callable[[], bytes | None], ...] = (lambda: None, lambda: b"", lambda: draw.randbytes(9))
    keys, values = ([draw.choice(fills)() for _ in range(count)] for _ in range(2))
    places, times_ms = (
        draw.choices(range(3), k=count),
        [TIME_MS + draw.randrange(1_000) for _ in range(count)],
    )
    return Outgoing(
        topic,
        keys,
        values,
        places if draw.random() < 0.5 else draw.randrange(3),
        times_ms if draw.random() < 0.5 else TIME_MS,
    )


def expected(batches: list[Outgoing], partition: int) -> list[tuple[bytes | None, bytes | None, int]]:
    """What a partition is to hold then."""
    rows = (row for batch in batches for row in batch.rows())
    return [(key, value, time_ms) for key, value, place, time_ms, _ in rows if place == partition]


def rows_read(records: list[Record]) -> list[tuple[bytes | None, bytes | None, int]]:
    """The same of what was read."""
    return [(record.key, record.value, record.timestamp_ms) for record in records]


@pytest.mark.parametrize("transactional", TRANSACTIONAL)
def test_whatever_is_sent_is_read_in_its_order(sending: Sending, transactional: bool) -> None:
    world, draw = sending.world, random.Random(7)
    topic = world.topic(partitions=3)
    writer = sending.writer(transactional)
    batches: list[Outgoing] = []
    for counts in ((1, 40, 5), (12_000, 1, 40), (5, 40)):
        some = [drawn(topic, draw, count) for count in counts]
        writer.begin()
        for batch in some:
            writer.append(batch)
        landed = writer.commit()
        batches += some
        for place in {row[2] for batch in some for row in batch.rows()}:
            last = world.read_all(topic, place)[-1]
            assert landed[TopicPartition(topic, place)] == Appended(last.offset, last.timestamp_ms)
    writer.close()
    for place in range(3):
        assert rows_read(world.read_all(topic, place)) == expected(batches, place)


@pytest.mark.parametrize("linger_ms", [10, 15_000])
@pytest.mark.parametrize("transactional", TRANSACTIONAL)
def test_a_full_queue_is_waited_for(sending: Sending, transactional: bool, linger_ms: int) -> None:
    """And emptied: what lingers for longer than anything is waited for is sent to make room."""
    topic = sending.world.topic()
    writer = sending.writer(transactional, queue_buffering_max_messages=100, linger_ms=linger_ms)
    values = [b"%d" % number for number in range(5_000)]
    writer.begin()
    writer.send_many(topic, values, values, partitions=0)
    writer.commit()
    writer.close()
    assert sending.world.values(topic, 0) == values


def failure_of(writer: Writer, *steps: Callable[[], object]) -> StateflowError:
    """What the first of these raises."""

    def work() -> None:
        for step in steps:
            step()

    with pytest.raises(StateflowError) as raised:
        work()
    writer.close()
    return raised.value


@pytest.mark.parametrize("transactional", TRANSACTIONAL)
def test_a_record_that_the_broker_refuses(sending: Sending, transactional: bool) -> None:
    topic = sending.world.topic(config={"max.message.bytes": "2000"})
    writer = sending.writer(transactional, compression_type="none")
    large = [b"v"] * 20 + [bytes(5_000)] + [b"v"] * 20
    writer.begin()
    found = failure_of(
        writer,
        lambda: writer.send_many(topic, [b"k"] * 41, large, partitions=0),
        writer.flush,
        writer.commit,
    )
    assert isinstance(found, BrokerRefused)
    assert found.fields["code"] == "MSG_SIZE_TOO_LARGE"
    assert not transactional or sending.world.values(topic, 0) == []


@pytest.mark.parametrize("transactional", TRANSACTIONAL)
def test_a_record_that_the_client_refuses(sending: Sending, transactional: bool) -> None:
    topic = sending.world.topic()
    writer = sending.writer(transactional, message_max_bytes=2_000)
    large = [b"v"] * 20 + [bytes(5_000)] + [b"v"] * 20
    writer.begin()
    found = failure_of(writer, lambda: writer.send_many(topic, [b"k"] * 41, large, partitions=0))
    assert isinstance(found, BrokerRefused)
    assert found.fields["code"] == "MSG_SIZE_TOO_LARGE"


def kafka_clients() -> int:
    """Clients of this process that have not ended: each has a main thread."""
    names = [task / "comm" for task in Path("/proc/self/task").iterdir()]
    return sum(name.read_text().startswith("rdk:main") for name in names if name.exists())


@needs_proc
@pytest.mark.parametrize("transactional", TRANSACTIONAL)
def test_a_closed_writers_client_has_ended_though_its_failure_is_kept(
    sending: Sending, transactional: bool
) -> None:
    topic = sending.world.topic()
    gc.collect()
    before = kafka_clients()
    writer = sending.writer(transactional, message_max_bytes=2_000)
    writer.begin()
    assert kafka_clients() > before
    kept = failure_of(writer, lambda: writer.send_many(topic, [b"k"] * 41, [bytes(5_000)] * 41, partitions=0))
    assert kafka_clients() == before + ADMINISTRATIVE
    assert kept.__traceback__ is not None


@needs_proc
def test_a_fenced_writers_client_has_ended_though_its_failure_is_kept(sending: Sending) -> None:
    world = sending.world
    topic, name = world.topic(), world.name("tx")
    gc.collect()
    before = kafka_clients()
    writer = world.cluster.writer(name)
    writer.begin()
    writer.send_many(topic, [b"k"] * 40, [b"old"] * 40, partitions=0)
    successor = world.cluster.writer(name)
    kept = failure_of(writer, writer.commit)
    assert isinstance(kept, ProducerFenced)
    successor.close()
    assert kafka_clients() == before
    assert kept.__traceback__ is not None


def test_a_partition_that_is_not_there(sending: Sending) -> None:
    topic = sending.world.topic(partitions=2)
    writer = sending.writer(transactional=True)
    writer.begin()
    found = failure_of(
        writer, lambda: writer.send_many(topic, [b"k"] * 40, [b"v"] * 40, partitions=[0, 2] * 20)
    )
    assert isinstance(found, TopicMissing)


def test_a_topic_that_is_deleted_meanwhile(sending: Sending) -> None:
    topic = sending.world.topic()
    writer = sending.writer(transactional=False, message_timeout_ms=3_000)
    writer.begin()
    writer.send_many(topic, [b"k"] * 40, [b"v"] * 40, partitions=0)
    writer.commit()
    sending.world.cluster.delete([topic])
    rows = [b"v"] * 40
    found = failure_of(writer, lambda: writer.send_many(topic, rows, rows, partitions=0), writer.commit)
    assert isinstance(found, TopicMissing | BrokerUnreachable)


def test_a_writer_that_was_replaced(sending: Sending) -> None:
    world = sending.world
    topic, name = world.topic(), world.name("tx")
    writer = world.cluster.writer(name)
    writer.begin()
    writer.send_many(topic, [b"k"] * 40, [b"old"] * 40, partitions=0)
    successor = world.cluster.writer(name)
    found = failure_of(
        writer, lambda: writer.send_many(topic, [b"k"] * 40, [b"old"] * 40, partitions=0), writer.commit
    )
    assert isinstance(found, ProducerFenced)
    successor.begin()
    successor.send_many(topic, [b"k"] * 40, [b"new"] * 40, partitions=0)
    successor.commit()
    successor.close()
    assert world.values(topic, 0) == [b"new"] * 40


def test_what_was_aborted_is_not_told_of(sending: Sending) -> None:
    world = sending.world
    topic = world.topic(partitions=2)
    writer = sending.writer(transactional=True)
    for value in (b"aborted", b"committed"):
        writer.begin()
        places = 0 if value == b"committed" else [0, 1] * 20
        writer.send_many(topic, [b"k"] * 40, [value] * 40, partitions=places)
        if value == b"aborted":
            writer.abort()
    assert set(writer.commit()) == {TopicPartition(topic, 0)}
    writer.close()
    assert world.values(topic, 0) == [b"committed"] * 40
    assert world.values(topic, 1) == []


def test_records_whose_fate_was_open_are_not_told_of_later(sending: Sending) -> None:
    world = sending.world
    topic = world.topic(partitions=2)
    writer = sending.writer(transactional=False, linger_ms=1_000)
    writer.begin()
    writer.send_many(topic, [b"k"] * 40, [b"first"] * 40, partitions=1)
    writer.begin()  # forgets them, and they are under way yet
    writer.send_many(topic, [b"k"] * 40, [b"second"] * 40, partitions=0)
    assert set(writer.commit()) == {TopicPartition(topic, 0)}
    writer.begin()
    writer.send_many(topic, [b"k"] * 40, [b"third"] * 40, partitions=1)
    assert set(writer.commit()) == {TopicPartition(topic, 1)}
    writer.close()
    assert world.values(topic, 1) == [b"first"] * 40 + [b"third"] * 40


def test_the_core_is_what_sends_them(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    if sends.sends_core() is None:
        assert sends.made_producer({"bootstrap.servers": broker.bootstrap})[0] is None
        return
    sent: list[int] = []
    send = sends.Sends.send

    def noted(
        own: sends.Sends, records: Outgoing, places: Sequence[int] | int, first: int, count: int
    ) -> int:
        sent.append(send(own, records, places, first, count))
        return sent[-1]

    monkeypatch.setattr(sends.Sends, "send", noted)
    world = kafka_world(broker.bootstrap)
    topic = world.name()
    world.cluster.create([TopicSpec(topic, 1)])
    writer = world.cluster.writer()
    writer.send_many(topic, [b"k"] * 15_000, [b"v"] * 15_000, partitions=0)
    assert sent == [10_000, 5_000]
    writer.commit()
    writer.close()
    world.cluster.close()
