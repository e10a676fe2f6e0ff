"""Which source partitions a worker calls idle: those that are silent, and read to their ends as they are now."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.event_time.idleness import IdleSources

A, B = TopicPartition("in", 0), TopicPartition("in", 1)
IDLE_SECONDS = 5.0


class CountingCluster(MemoryCluster):
    """Counts who asks for the ends of logs, and may be unreachable."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.asked: list[list[TopicPartition]] = []
        self.is_reachable = True

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        wanted = sorted(partitions)
        self.asked.append(wanted)
        if not self.is_reachable:
            raise BrokerUnreachable("no answer", action="start it")
        return super().ranges(wanted, stable=stable)


class Reading:
    """Two partitions, read up to ``positions``."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = CountingCluster(self.clock)
        self.cluster.create([TopicSpec("in", 2)])
        self.idle_sources = IdleSources(self.cluster, IDLE_SECONDS, self.clock)
        self.idle_sources.begin([A, B])
        self.positions = {A: 0, B: 0}

    def produce(self, source: TopicPartition, count: int = 1) -> None:
        writer = self.cluster.writer()
        writer.send_many(
            source.topic, [b"k"] * count, [b"v"] * count, partitions=source.partition, timestamps_ms=1
        )
        writer.commit()
        writer.close()

    def fallen(self, *, after_seconds: float = 0.0) -> list[TopicPartition]:
        self.clock.advance(seconds=after_seconds)
        return sorted(self.idle_sources.fallen_idle(self.positions.__getitem__))


@pytest.fixture
def reading() -> Reading:
    return Reading()


def test_silent_partitions_at_their_ends_fall_idle_once(reading: Reading) -> None:
    assert reading.fallen(after_seconds=4.9) == []
    assert reading.cluster.asked == [], "who is not silent is not asked about"
    assert reading.fallen(after_seconds=0.1) == [A, B]
    assert reading.cluster.asked == [[A, B]], "one request for both"
    assert reading.fallen(after_seconds=60) == []
    assert len(reading.cluster.asked) == 1


def test_one_whose_task_is_busy_falls_idle_when_it_is_free(reading: Reading) -> None:
    reading.clock.advance(seconds=5)
    assert reading.idle_sources.fallen_idle(reading.positions.__getitem__, [A]) == [B]
    assert reading.fallen() == [A], "at once"


def test_a_partition_whose_records_wait_is_not_idle_however_silent(reading: Reading) -> None:
    reading.produce(B, 10)
    assert reading.fallen(after_seconds=60) == [A]
    reading.positions[B] = 9
    assert reading.fallen(after_seconds=60) == []
    reading.positions[B] = 10
    assert reading.fallen(after_seconds=60) == [B]


def test_the_end_is_asked_for_again_at_intervals(reading: Reading) -> None:
    reading.produce(B)
    reading.fallen(after_seconds=5)
    for _ in range(9):
        reading.fallen(after_seconds=0.1)
    assert len(reading.cluster.asked) == 1
    reading.fallen(after_seconds=0.1)
    assert reading.cluster.asked == [[A, B], [B]]


def test_who_speaks_is_awake_and_its_silence_begins_after_the_batch(reading: Reading) -> None:
    assert reading.fallen(after_seconds=5) == [A, B]
    reading.clock.advance(seconds=30)  # a slow batch of A
    reading.idle_sources.heard([A])
    assert reading.fallen(after_seconds=4.9) == []
    assert reading.fallen(after_seconds=0.1) == [A]


def test_records_of_an_open_transaction_keep_their_partition_awake(reading: Reading) -> None:
    writer = reading.cluster.writer("id")
    writer.begin()
    writer.send("in", b"k", b"v", partition=1, timestamp_ms=1)
    writer.flush()
    assert reading.fallen(after_seconds=10) == [A]
    writer.abort()
    reading.positions[B] = reading.cluster.ranges([B])[B].offset_next
    assert reading.fallen(after_seconds=1) == [B]


def test_an_unreachable_broker_leaves_all_awake(reading: Reading) -> None:
    reading.cluster.is_reachable = False
    assert reading.fallen(after_seconds=5) == []
    assert reading.fallen() == []
    assert len(reading.cluster.asked) == 1, "it is not asked again at once"
    reading.cluster.is_reachable = True
    assert reading.fallen(after_seconds=1) == [], "each question may take long to stay unanswered"
    assert reading.fallen(after_seconds=30) == [A, B]


def test_a_task_that_starts_again_begins_awake(reading: Reading) -> None:
    assert reading.fallen(after_seconds=5) == [A, B]
    reading.idle_sources.end([A, B, TopicPartition("unknown", 0)])
    reading.idle_sources.begin([A])
    assert reading.fallen(after_seconds=4.9) == []
    assert reading.fallen(after_seconds=0.1) == [A]
