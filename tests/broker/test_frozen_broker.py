"""A broker that hangs for a while, and what its silence must not be taken for."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import BrokerUnreachable, TransactionAborted
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.log.kafka.last_commit import SLOW_SECONDS
from stateflow.record import TopicPartition

pytestmark = pytest.mark.broker

SOCKET_TIMEOUT_SECONDS = 1.0
FROZEN_SECONDS = 1.5
RECORDS = 5


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(overrides={"broker.session.timeout.ms": 30_000}) as kafka:
        yield kafka


@contextmanager
def frozen(pid: int, seconds: float) -> Iterator[None]:
    """The broker hangs from here on, and wakes up by itself."""
    os.kill(pid, signal.SIGSTOP)
    waking = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    waking.start()
    try:
        yield
    finally:
        waking.join()


def test_a_broker_that_is_silent_does_not_make_a_log_look_empty(kafka: EmbeddedKafka) -> None:
    """The client library then tells of offset −1001, without an error: it would be the end of an empty log."""
    cluster = KafkaCluster(kafka.bootstrap, {"socket.timeout.ms": int(SOCKET_TIMEOUT_SECONDS * 1000)})
    cluster.create([TopicSpec("t", 1)])
    place = TopicPartition("t", 0)
    writer = cluster.writer()
    for _ in range(RECORDS):
        writer.send("t", None, b"v", partition=0)
    writer.commit()
    writer.close()
    told = []
    for attempt in range(3):
        with frozen(kafka.pids[0], FROZEN_SECONDS + 0.3 * attempt):
            deadline = time.monotonic() + FROZEN_SECONDS
            while time.monotonic() < deadline:
                try:
                    told.append(cluster.ranges([place])[place].slots)
                except BrokerUnreachable:
                    continue  # that is the truth
    assert told, "the broker never answered"
    assert set(told) == {RECORDS}
    cluster.close()


@pytest.mark.timeout(120)
def test_nothing_is_begun_after_a_commit_that_had_to_wait(kafka: EmbeddedKafka) -> None:
    """It might be aborted with the next one. What its records wait for says nothing."""
    with closing(connect(kafka.bootstrap)) as cluster, closing(cluster.writer("id")) as writer:
        cluster.create([TopicSpec("waits", 1)])

        def begin_and_send() -> None:
            writer.begin()
            writer.send("waits", b"k", b"v", partition=0)

        begin_and_send()
        with frozen(kafka.pids[0], SLOW_SECONDS + 1):
            writer.flush()
        writer.commit()
        begin_and_send()
        writer.flush()
        with frozen(kafka.pids[0], SLOW_SECONDS + 1):
            writer.commit()
        with pytest.raises(TransactionAborted, match=r"not certain.* without an answer for [34]\.") as raised:
            writer.begin()
        assert raised.value.fields["passing"]
        assert raised.value.is_retriable
