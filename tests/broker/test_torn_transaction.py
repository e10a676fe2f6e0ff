"""Transactions torn by a late EndTxn, on a real broker with the plain client: why there is a commit protocol.

docs/exactly-once.md builds on each of these facts. If one of them changes with a new broker or client, the
test tells, and the protocol can be thought over.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stateflow.lab.network.faults import END_TXN, Action, Fault
from stateflow.lab.network.proxy import KafkaProxy
from stateflow.log.kafka.end_watch import sent_once_seconds
from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker

TIMEOUT_SECONDS = 30.0
PRODUCE = 0
OBEYED, INVALID_PRODUCER_EPOCH = 0, 47


@pytest.fixture
def proxy(broker: TestBroker) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.bootstrap) as running:
        yield running


@pytest.fixture
def topics(broker: TestBroker) -> tuple[str, str]:
    """A changelog and an output topic of this test alone."""
    tag = uuid.uuid4().hex[:8]
    names = (f"torn-{tag}-changelog", f"torn-{tag}-out")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(TIMEOUT_SECONDS)
    return names


def producer(bootstrap: str, transactional_id: str, **more: object) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 20,
            "log_level": 0,
            **more,
        }
    )
    made.init_transactions(TIMEOUT_SECONDS)
    return made


def send(client: Producer, topic: str, value: str) -> None:
    """Produce one record and wait until it is acknowledged; raises what the broker said against it."""
    errors: list[KafkaException] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(KafkaException(error))

    client.produce(topic, value.encode(), on_delivery=delivered)
    assert client.flush(TIMEOUT_SECONDS) == 0
    if errors:
        raise errors[0]


def visible(bootstrap: str, topic: str) -> list[str]:
    """What a read-committed reader finds from the beginning to the last stable offset."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[str] = []
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        while (message := reader.poll(TIMEOUT_SECONDS)) is not None and message.error() is None:
            found.append((message.value() or b"").decode())
    finally:
        reader.close()
    return found


def until(seconds: float, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this never came true"


def commit_with_a_late_copy(proxy: KafkaProxy, client: Producer, topic: str) -> Callable[[], int]:
    """Commit a first transaction whose EndTxn is sent twice; the answer delivers the first copy, at last."""
    client.begin_transaction()
    send(client, topic, "first")
    caught = proxy.arm(Fault(Action.HOLD_AND_CUT, commits=True))
    client.commit_transaction(TIMEOUT_SECONDS)
    return caught.wait().deliver


@pytest.mark.parametrize("action", [Action.HOLD_AND_CUT, Action.LOSE_ANSWER])
def test_an_end_is_sent_again_after_the_retry_pause_and_no_sooner(
    action: Action, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    """So a commit that took less has sent it once: what ``stateflow.log.kafka.end_watch`` rests on."""
    changelog, _ = topics
    for round_number, backoff_ms in enumerate((50, 200, 200, 500)):
        client = producer(proxy.bootstrap, f"{changelog}-{round_number}", **{"retry.backoff.ms": backoff_ms})
        client.begin_transaction()
        send(client, changelog, "value")
        caught, before = proxy.arm(Fault(action, commits=True)), proxy.requests_total(END_TXN)
        began_seconds = time.monotonic()
        client.commit_transaction(TIMEOUT_SECONDS)
        took_seconds = time.monotonic() - began_seconds
        assert caught.happened
        assert proxy.requests_total(END_TXN) == before + 2
        assert took_seconds >= sent_once_seconds({"retry.backoff.ms": backoff_ms})


def test_an_aborted_transaction_is_seen(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    changelog, out = topics
    client = producer(proxy.bootstrap, changelog)
    late = commit_with_a_late_copy(proxy, client, changelog)

    client.begin_transaction()
    send(client, changelog, "aborted")
    assert late() == OBEYED
    send(client, out, "aborted")
    client.abort_transaction(TIMEOUT_SECONDS)  # and nothing tells the client

    assert visible(broker.bootstrap, changelog) == ["first", "aborted"]
    assert visible(broker.bootstrap, out) == []


def test_half_a_transaction_of_a_dead_client_is_committed(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    changelog, out = topics
    client = producer(proxy.bootstrap, changelog)
    late = commit_with_a_late_copy(proxy, client, changelog)

    client.begin_transaction()
    send(client, changelog, "half")
    assert late() == OBEYED
    send(client, out, "other half")
    producer(broker.bootstrap, changelog)  # the client is as good as dead: its successor has taken over

    assert visible(broker.bootstrap, changelog) == ["first", "half"]
    assert visible(broker.bootstrap, out) == []


def test_the_leader_refuses_what_follows_in_the_same_partition(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    """So a partition is cut once, and no second half can be committed into it."""
    changelog, _ = topics
    client = producer(proxy.bootstrap, changelog)
    late = commit_with_a_late_copy(proxy, client, changelog)

    client.begin_transaction()
    send(client, changelog, "before")
    assert late() == OBEYED
    until(TIMEOUT_SECONDS, lambda: visible(broker.bootstrap, changelog) == ["first", "before"])
    with pytest.raises(KafkaException) as refused:
        send(client, changelog, "after")
    assert refused.value.args[0].name() == "INVALID_TXN_STATE"
    with pytest.raises(KafkaException):
        client.commit_transaction(TIMEOUT_SECONDS)
    assert visible(broker.bootstrap, changelog) == ["first", "before"]


def test_a_new_producer_makes_the_late_copy_harmless(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    changelog, _ = topics
    late = commit_with_a_late_copy(proxy, producer(proxy.bootstrap, changelog), changelog)
    successor = producer(proxy.bootstrap, changelog)
    successor.begin_transaction()
    send(successor, changelog, "aborted")
    assert late() == INVALID_PRODUCER_EPOCH
    successor.abort_transaction(TIMEOUT_SECONDS)
    assert visible(broker.bootstrap, changelog) == ["first"]


def test_a_lost_answer_is_asked_for_again(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    changelog, _ = topics
    client = producer(proxy.bootstrap, changelog)
    client.begin_transaction()
    send(client, changelog, "once")
    caught = proxy.arm(Fault(Action.LOSE_ANSWER, transactional_id=changelog))
    client.commit_transaction(TIMEOUT_SECONDS)
    assert caught.happened
    assert visible(broker.bootstrap, changelog) == ["once"]


@pytest.mark.parametrize("action", [Action.HOLD_AND_CUT, Action.LOSE_ANSWER])
def test_the_clients_statistics_count_every_endtxn(
    proxy: KafkaProxy, topics: tuple[str, str], action: Action
) -> None:
    """The only sign of a retry that the client library gives, and the base of the first defence."""
    changelog, _ = topics
    emitted: list[str] = []
    settings = {"statistics.interval.ms": 50, "stats_cb": emitted.append}
    client = producer(proxy.bootstrap, changelog, **settings)

    def end_txn_total() -> int:
        return sum(node["req"].get("EndTxn", 0) for node in json.loads(emitted[-1])["brokers"].values())

    def commit() -> None:
        client.begin_transaction()
        send(client, changelog, "x")
        client.commit_transaction(TIMEOUT_SECONDS)
        client.poll(0)  # statistics from the time of the commit are old, and may be several
        known = len(emitted)
        until(TIMEOUT_SECONDS, lambda: client.poll(0.05) >= 0 and len(emitted) > known + 1)

    commit()
    assert end_txn_total() == proxy.requests_total(END_TXN) >= 1
    before = end_txn_total()
    proxy.arm(Fault(action))
    commit()
    assert (
        end_txn_total() == proxy.requests_total(END_TXN) >= before + 2
    )  # more on a machine that is very busy
    commit()
    assert end_txn_total() == proxy.requests_total(END_TXN) >= before + 3


def test_a_repeated_request_arrives_twice(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    changelog, out = topics
    client = producer(proxy.bootstrap, changelog)
    client.begin_transaction()
    send(client, changelog, "first")
    caught = proxy.arm(Fault(Action.DUPLICATE))
    client.commit_transaction(TIMEOUT_SECONDS)
    client.begin_transaction()
    send(client, changelog, "torn")
    assert caught.wait().deliver() == OBEYED
    send(client, out, "aborted")
    client.abort_transaction(TIMEOUT_SECONDS)
    assert visible(broker.bootstrap, changelog) == ["first", "torn"]


def test_a_held_request_is_asked_for_again_after_the_clients_timeout(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    changelog, _ = topics
    client = producer(proxy.bootstrap, changelog, **{"socket.timeout.ms": 1000})
    client.begin_transaction()
    send(client, changelog, "held")
    caught = proxy.arm(Fault(Action.HOLD))
    client.commit_transaction(TIMEOUT_SECONDS)
    assert caught.happened
    assert visible(broker.bootstrap, changelog) == ["held"]


def test_only_the_chosen_transaction_is_spoilt(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    changelog, _ = topics
    caught = proxy.arm(Fault(Action.HOLD_AND_CUT, transactional_id="somebody else"))
    client = producer(proxy.bootstrap, changelog)
    client.begin_transaction()
    send(client, changelog, "whole")
    client.commit_transaction(TIMEOUT_SECONDS)
    assert not caught.happened
    with pytest.raises(TimeoutError, match="no request matched"):
        caught.wait(0.01)
    assert visible(broker.bootstrap, changelog) == ["whole"]


def test_clients_stay_behind_the_proxy(
    broker: TestBroker, proxy: KafkaProxy, topics: tuple[str, str]
) -> None:
    changelog, _ = topics
    client = producer(proxy.bootstrap, changelog)
    client.begin_transaction()
    send(client, changelog, "through")
    client.commit_transaction(TIMEOUT_SECONDS)
    assert proxy.requests_total(PRODUCE) == 1
    assert proxy.requests_total(END_TXN) == 1
    assert visible(proxy.bootstrap, changelog) == ["through"]
