"""Writers that nobody uses for a while: what their clients have to tell is taken out all the same, by one thread."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from stateflow.errors import ProducerFenced
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.log.kafka.end_watch import STATISTICS_INTERVAL_MS
from stateflow.log.kafka.endtxn_guard import EndTxnGuard
from stateflow.log.kafka.housekeeping import INTERVAL_SECONDS
from stateflow.record import TopicPartition
from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker

WRITERS = 4
STATISTICS = 300
"""What each client tells while the test looks on: 15 seconds' worth."""
QUEUED_MAX = 4 * int(INTERVAL_SECONDS * 1000 / STATISTICS_INTERVAL_MS)
"""Four rounds' worth: on a busy machine one may be late."""


@pytest.fixture
def own(broker: TestBroker) -> Iterator[KafkaCluster]:
    """A connection of the test's own, so that no other test's writers are served with its own."""
    made = connect(broker.bootstrap)
    yield made
    made.close()


def housekeepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kafka-housekeeping"]


def until(condition: Callable[[], bool]) -> None:
    """Look ten times a second; the test's own time-out ends it."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.1)


def guarded(own: KafkaCluster, transactional_id: str) -> EndTxnGuard:
    made = own.writer(transactional_id)
    assert isinstance(made, EndTxnGuard)
    return made


def taken_total(writer: EndTxnGuard) -> int:
    return writer._watch._taken_total


@pytest.mark.timeout(120)
def test_statistics_of_idle_writers_do_not_pile_up(own: KafkaCluster) -> None:
    topic, before = f"idle-{uuid.uuid4().hex[:8]}", len(housekeepers())
    own.create([TopicSpec(topic, WRITERS)])
    with ExitStack() as stack:
        writers: list[EndTxnGuard] = []
        for number in range(WRITERS):
            writer = guarded(own, f"{topic}-{number}")
            stack.callback(writer.close)
            writers.append(writer)
            commit_one(writer, topic, number)
        writers[0].begin()  # one is idle within a transaction
        writers[0].send(topic, b"k", b"open", partition=0)
        assert len(housekeepers()) == before + 1
        queued_max = 0

        def all_told() -> bool:
            nonlocal queued_max
            queued_max = max(queued_max, *(writer.queued_total for writer in writers))
            return all(taken_total(writer) >= STATISTICS for writer in writers)

        until(all_told)
        assert queued_max <= QUEUED_MAX
        writers[0].commit()
        for number, writer in enumerate(writers[1:], 1):
            commit_one(writer, topic, number)
    places = [TopicPartition(topic, number) for number in range(WRITERS)]
    # a commit is answered before its markers are written
    until(lambda: own.ranges(places) == own.ranges(places, stable=False))
    ends = {log.offset_next for log in own.ranges(places).values()}
    assert ends == {4}, "two records, and two markers, everywhere"
    until(lambda: len(housekeepers()) <= before)


@pytest.mark.timeout(60)
def test_what_is_met_between_calls_is_raised_by_the_next(own: KafkaCluster) -> None:
    topic = f"idle-{uuid.uuid4().hex[:8]}"
    own.create([TopicSpec(topic, 1)])
    fenced = guarded(own, topic)
    fenced.begin()
    own.writer(topic).close()  # its successor
    fenced.send(
        topic, b"k", b"never", partition=0
    )  # the broker's refusal is met by the housekeeping, or by the commit
    until(lambda: taken_total(fenced) > 3 * QUEUED_MAX or fenced._failure is not None)
    with pytest.raises(ProducerFenced):
        fenced.commit()
    fenced.close()


@pytest.mark.timeout(60)
def test_a_writer_that_was_forgotten_is_served_no_more(own: KafkaCluster) -> None:
    before = len(housekeepers())
    forgotten = own.writer(f"idle-{uuid.uuid4().hex[:8]}")
    assert len(housekeepers()) == before + 1
    del forgotten
    until(lambda: len(housekeepers()) <= before)


def commit_one(writer: EndTxnGuard, topic: str, partition: int) -> None:
    writer.begin()
    writer.send(topic, b"k", b"v", partition=partition)
    writer.commit()
