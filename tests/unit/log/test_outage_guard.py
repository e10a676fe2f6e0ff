"""A writer whose commit had to wait for brokers is not used on: what it commits next might be aborted with it."""

from __future__ import annotations

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import TransactionAborted
from stateflow.log.base import Appended, TopicSpec, Writer
from stateflow.log.forwarding import ForwardingWriter
from stateflow.log.kafka.outage_guard import SLOW_SECONDS, OutageGuard
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition


class Slow(ForwardingWriter):
    """Its flushes and commits take so long."""

    def __init__(self, inner: Writer, clock: ManualClock) -> None:
        super().__init__(inner)
        self._clock = clock
        self.flush_seconds = self.commit_seconds = 0.0

    def flush(self, timeout_seconds: float = 60.0) -> None:
        self._clock.advance(ms=int(1000 * self.flush_seconds))
        super().flush(timeout_seconds)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        self._clock.advance(ms=int(1000 * self.commit_seconds))
        return super().commit(timeout_seconds)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster(clock=ManualClock(1_000))
    made.create([TopicSpec("t", 1)])
    return made


def commit_one(writer: Writer) -> None:
    writer.begin()
    writer.send("t", b"k", b"v", partition=0)
    writer.commit()


def test_a_commit_that_waited_is_the_last_one(cluster: MemoryCluster) -> None:
    clock = ManualClock(0)
    slow = Slow(cluster.writer("id"), clock)
    writer = OutageGuard(slow, clock)
    commit_one(writer)
    slow.commit_seconds = SLOW_SECONDS + 1
    commit_one(writer)
    with pytest.raises(TransactionAborted, match=r"without an answer for 3\.5 s") as raised:
        writer.begin()
    assert raised.value.fields["passing"]
    assert raised.value.is_retriable
    assert cluster.ranges([TopicPartition("t", 0)])[TopicPartition("t", 0)].offset_next == 4, (
        "both are committed"
    )


def test_records_may_take_their_time(cluster: MemoryCluster) -> None:
    clock = ManualClock(0)
    slow = Slow(cluster.writer("id"), clock)
    slow.flush_seconds = 10 * SLOW_SECONDS
    writer = OutageGuard(slow, clock)
    for _ in range(2):
        commit_one(writer)
    assert cluster.ranges([TopicPartition("t", 0)])[TopicPartition("t", 0)].offset_next == 4
