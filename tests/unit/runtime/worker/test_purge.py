"""What is dropped of repartition topics while trims take their time."""

from __future__ import annotations

import logging

import pytest

from stateflow.clock import ManualClock
from stateflow.lab.faults.simulation.parked import ParkedExecutor
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.runtime.worker.purge import RETRY_SECONDS_MIN, Purge

A, B = TopicPartition("re-keyed", 0), TopicPartition("re-keyed", 1)
RECORDS = 10


class Purging:
    """Two partitions with records; trims go on when a test says so."""

    def __init__(self, topic: TopicSpec) -> None:
        self.clock = ManualClock()
        self.cluster = MemoryCluster(clock=self.clock)
        self.cluster.create([topic])
        writer = self.cluster.writer()
        for source in (A, B):
            writer.send_many(
                source.topic,
                [b"k"] * RECORDS,
                [b"v"] * RECORDS,
                partitions=source.partition,
                timestamps_ms=1,
            )
        writer.commit()
        writer.close()
        self.requests = ParkedExecutor()
        self.purge = Purge(self.cluster, 0, self.clock, self.requests)

    def firsts(self) -> tuple[int, int]:
        """Where the logs begin."""
        logs = self.cluster.ranges([A, B])
        return logs[A].offset_first, logs[B].offset_first

    def trim(self) -> None:
        """Let what is under way be done, and take note of it."""
        self.requests.drive(1)
        self.purge.turn()


def test_what_is_consumed_during_a_trim_is_dropped_by_the_next_one() -> None:
    purging = Purging(TopicSpec("re-keyed", 2))
    purging.purge.consumed({A: 3, B: 2})
    purging.purge.consumed({A: 5})
    assert purging.firsts() == (0, 0)
    purging.trim()
    assert purging.firsts() == (3, 2)
    purging.purge.consumed({})
    purging.trim()
    assert purging.firsts() == (5, 2)
    purging.purge.consumed({})
    assert purging.requests.open_total == 0, "there is nothing left to drop"


def test_what_a_worker_consumed_before_it_fell_idle_is_dropped_too() -> None:
    purging = Purging(TopicSpec("re-keyed", 2))
    purging.purge = Purge(purging.cluster, 30, purging.clock, purging.requests)
    purging.purge.consumed({A: 3})
    assert purging.requests.open_total == 0, "the interval has just begun"
    purging.clock.advance(seconds=30)
    purging.purge.turn()
    purging.trim()
    assert purging.firsts() == (3, 0)


def test_a_trim_that_fails_is_tried_again_with_what_was_consumed_since(
    caplog: pytest.LogCaptureFixture,
) -> None:
    purging = Purging(TopicSpec("re-keyed", 2, config={"cleanup.policy": "compact"}))
    purging.purge.consumed({A: 3})
    purging.purge.consumed({B: 2})
    purging.requests.drive(1)
    assert not caplog.records
    purging.purge.turn()
    (warned,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "Consumed records of re-keyed could not be purged" in warned
    purging.cluster.alter_topic_config("re-keyed", {"cleanup.policy": "delete"})
    purging.purge.consumed({})
    assert purging.requests.open_total == 0, "not before the pause is over"
    purging.clock.advance(seconds=RETRY_SECONDS_MIN)
    purging.purge.consumed({})
    purging.trim()
    assert purging.firsts() == (3, 2)
