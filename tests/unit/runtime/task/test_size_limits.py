"""How large a record a topic takes is asked once, again after a while, and never in the way of the work."""

from __future__ import annotations

import logging
import sys

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import BrokerRefused
from stateflow.log.base import TopicSpec
from stateflow.log.kafka.settings import client_record_bytes_max
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.task.size_limits import SizeLimits


class Asked:
    """A cluster that counts how often it is asked, and refuses while it is told to."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.bytes_max = 1_000
        self.refuses = False

    def record_bytes_max(self, topic: str) -> int:
        self.topics.append(topic)
        if self.refuses:
            raise BrokerRefused("not allowed to read settings.", action="allow it.")
        return self.bytes_max


def test_a_limit_is_asked_for_once_and_again_after_five_minutes() -> None:
    cluster, clock = Asked(), ManualClock()
    limits = SizeLimits(cluster, clock)
    assert [limits.record_bytes_max(topic) for topic in ("a", "a", "b")] == [1_000] * 3
    assert cluster.topics == ["a", "b"]
    cluster.bytes_max = 2_000
    clock.advance(seconds=299)
    assert limits.record_bytes_max("a") == 1_000
    clock.advance(seconds=1)
    assert limits.record_bytes_max("a") == 2_000


def test_what_cannot_be_told_is_left_to_the_broker_and_said(caplog: pytest.LogCaptureFixture) -> None:
    cluster, clock = Asked(), ManualClock()
    limits = SizeLimits(cluster, clock)
    cluster.refuses = True
    with caplog.at_level(logging.WARNING):
        assert limits.record_bytes_max("a") == limits.record_bytes_max("a") == sys.maxsize
    assert len(caplog.records) == len(cluster.topics) == 1
    assert "How large a record 'a' takes is not known" in caplog.text
    cluster.refuses = False
    clock.advance(seconds=300)
    assert limits.record_bytes_max("a") == 1_000
    cluster.refuses = True
    clock.advance(seconds=300)
    assert limits.record_bytes_max("a") == 1_000, "what was known still is the best guess"


def test_the_limit_is_that_of_the_topic_and_of_the_client() -> None:
    cluster = MemoryCluster()
    cluster.create([TopicSpec("small", 1, config={"max.message.bytes": "5000"})])
    assert cluster.record_bytes_max("small") == 5_000
    assert client_record_bytes_max({"message.max.bytes": "2000"}) == 2_000
    assert client_record_bytes_max({}) == 64 << 20
