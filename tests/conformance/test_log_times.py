"""The times that records are written with."""

from __future__ import annotations

from typing import Any

import pytest

from stateflow.record import TopicPartition
from tests.conformance.log_world import World


def test_timestamps_per_record(world: World) -> None:
    topic = world.topic()
    stamps = [1_650_000_000_000 + n for n in range(5)]
    writer = world.cluster.writer()
    writer.send_many(topic, [b"k"] * 5, [b"v"] * 5, partitions=0, timestamps_ms=stamps)
    writer.commit()
    writer.close()
    assert [record.timestamp_ms for record in world.read_all(topic)] == stamps


@pytest.mark.parametrize("times_ms", [0, [0, 7, 0, 8, 0]])
@pytest.mark.parametrize("headers", [None, [(("a", b"1"),)] * 5])
def test_the_first_moment_of_all_is_no_time_of_sending(world: World, times_ms: Any, headers: Any) -> None:
    """To the client library 0 says that there is none: event time 0 would become the wall clock's."""
    topic = world.topic()
    told_ms = [0] * 5 if times_ms == 0 else times_ms
    for writer in (world.cluster.writer(world.name("tx")), world.cluster.writer()):
        writer.begin()
        writer.send_many(topic, [b"k"] * 5, [b"v"] * 5, partitions=0, timestamps_ms=times_ms, headers=headers)
        writer.send(topic, b"k", b"v", partition=0, timestamp_ms=0)
        landed = writer.commit()
        writer.close()
        assert landed[TopicPartition(topic, 0)].timestamp_ms == 1
    assert [record.timestamp_ms for record in world.read_all(topic)] == [
        each or 1 for each in (*told_ms, 0)
    ] * 2
