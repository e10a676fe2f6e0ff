"""Reading the newest record of each key while others write to a topic, and the cleaner passes over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import AppEntry, Catalog, InputEntry, StageEntry
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.memory.reader import MemoryReader
from stateflow.log.reading import read_ranges, read_to_end, what_came_meanwhile
from stateflow.record import RecordBatch, TopicPartition

TOPIC = "prices"
SOURCE = TopicPartition(TOPIC, 0)
COMPACTED = {"cleanup.policy": "compact"}


class BusyCluster(MemoryCluster):
    """A cluster on which, as soon as somebody begins to read, all keys are written again and cleaned."""

    times = 0
    topic = TOPIC

    def reader(self, *, follows: bool = False) -> MemoryReader:
        while self.times:
            self.times -= 1
            self.write_again()
        return super().reader(follows=follows)

    def write_again(self) -> None:
        log = self.ranges([TopicPartition(self.topic, 0)])
        with closing(super().reader()) as reader:
            batches = list(read_ranges(reader, log))
        for key, value in newest(iter(batches)).items():
            send(self, self.topic, key, value)
        self.compact(self.topic, active_slots=0)


def send(cluster: MemoryCluster, topic: str, key: bytes, value: bytes | None) -> None:
    with closing(cluster.writer()) as writer:
        writer.send(topic, key, value, partition=0)
        writer.commit()


def newest(batches: Iterator[RecordBatch]) -> dict[bytes, bytes | None]:
    return {
        key: value
        for batch in batches
        for key, value in zip(batch.keys, batch.values, strict=True)
        if key is not None
    }


@pytest.fixture
def cluster() -> BusyCluster:
    made = BusyCluster()
    made.create([TopicSpec(TOPIC, 1, 1, COMPACTED)])
    for number in range(5):
        send(made, TOPIC, b"key-%d" % number, b"%d" % number)
    return made


def test_keys_that_are_written_again_meanwhile_are_found(cluster: BusyCluster) -> None:
    ranges = cluster.ranges([SOURCE])
    cluster.times = 1
    found = newest(read_to_end(cluster, ranges))
    assert found == {b"key-%d" % number: b"%d" % number for number in range(5)}
    assert ranges == {SOURCE: (0, 10)}, "what was read is told"


def test_up_to_an_end_that_was_taken_before_they_are_not(cluster: BusyCluster) -> None:
    ranges = cluster.ranges([SOURCE])
    cluster.times = 1
    with closing(cluster.reader()) as reader:
        assert newest(read_ranges(reader, ranges)) == {}


def test_who_reads_does_not_run_after_writers_for_ever(cluster: BusyCluster) -> None:
    ranges = cluster.ranges([SOURCE])
    read = 0
    for batch in read_to_end(cluster, ranges):
        read += len(batch)
        send(cluster, TOPIC, b"busy", b"%d" % read)
    assert 5 < read < 50


def test_what_came_meanwhile_ends_with_what_is_read_at_once() -> None:
    ends = iter([50_000, 80_000, 80_010, 90_000])
    assert [*what_came_meanwhile(100, lambda: next(ends))] == [
        (100, 50_000),
        (50_000, 80_000),
        (80_000, 80_010),
    ]
    busy = count(20_000, 20_000)
    assert len([*what_came_meanwhile(0, lambda: next(busy))]) == 10, "not for ever"
    for nothing in (7, 3):
        assert [*what_came_meanwhile(7, lambda: nothing)] == []  # noqa: B023 - called at once


def test_nothing_is_read_of_an_empty_topic() -> None:
    cluster = MemoryCluster()
    cluster.create([TopicSpec(TOPIC, 1, 1, COMPACTED)])
    ranges = cluster.ranges([SOURCE])
    assert list(read_to_end(cluster, ranges)) == []


def test_a_catalog_is_whole_though_it_is_written_again_meanwhile() -> None:
    cluster = BusyCluster()
    lines = (InputEntry(name="lines"),)
    stages = {name: StageEntry(name=name, inputs=lines, source_partitions=3) for name in ("main", "other")}
    app = AppEntry(app="shop", guarantee="exactly-once")
    written = ControlTopic(cluster, "shop").ensure(Catalog(app=app, stages=stages, stores={}, generations={}))
    other = ControlTopic(cluster, "shop")  # which has not read it yet
    cluster.topic, cluster.times = other.topic, 1
    assert other.load() == written
    assert cluster.times == 0
