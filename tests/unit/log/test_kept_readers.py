"""Readers that are used again: by whom, which are not, and that all are closed in the end."""

from __future__ import annotations

from contextlib import closing

import pytest

from stateflow.errors import OffsetOutOfRange
from stateflow.log.base import Cluster, Reader, TopicSpec
from stateflow.log.forwarding import ForwardingCluster
from stateflow.log.kept_readers import kept_readers
from stateflow.log.memory import MemoryCluster
from stateflow.log.memory.reader import MemoryReader
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition

PLACES = [TopicPartition("t", number) for number in range(2)]
ALL = OffsetRange(0, 3)


class Watched(ForwardingCluster):
    """Counts the readers that it gives out, and those that are closed."""

    def __init__(self, inner: MemoryCluster) -> None:
        super().__init__(inner)
        self.opened = self.closed = 0
        self._broker = inner._broker

    def reader(self, *, follows: bool = False) -> Reader:
        self.opened += 1
        return WatchedReader(self)


class WatchedReader(MemoryReader):
    def __init__(self, watched: Watched) -> None:
        super().__init__(watched._broker)
        self._watched = watched

    def close(self) -> None:
        self._watched.closed += 1
        super().close()


@pytest.fixture
def cluster() -> Watched:
    memory = MemoryCluster()
    memory.create([TopicSpec("t", 2)])
    writer = memory.writer()
    writer.begin()
    for _, number in PLACES:
        writer.send_many("t", [b"k"] * 3, [b"%d" % number] * 3, partitions=number)
    writer.commit()
    writer.close()
    return Watched(memory)


def values(cluster: Cluster, place: TopicPartition) -> list[bytes | None]:
    return [value for batch in read_range(cluster, place, ALL) for value in batch.values]


def test_one_reader_reads_one_range_after_the_other(cluster: Watched) -> None:
    with kept_readers(cluster) as keeping:
        for place in PLACES * 2:
            assert values(keeping, place) == [b"%d" % place.partition] * 3
        assert (cluster.opened, cluster.closed) == (1, 0)
    assert cluster.closed == 1


def test_a_reader_that_waits_reads_nothing(cluster: Watched) -> None:
    with kept_readers(cluster) as keeping:
        with closing(keeping.reader()) as reader:
            reader.assign({PLACES[0]: 0})
        with closing(keeping.reader()) as reader:
            assert reader.read(10, 0.0) == []
        assert cluster.opened == 1


def test_who_reads_at_the_same_time_has_another_one(cluster: Watched) -> None:
    with kept_readers(cluster) as keeping:
        with closing(keeping.reader()), closing(keeping.reader()):
            assert cluster.opened == 2
        with closing(keeping.reader()), closing(keeping.reader()):
            assert cluster.opened == 2
    assert cluster.closed == 2


def test_a_reader_that_failed_is_not_used_again(cluster: Watched) -> None:
    with kept_readers(cluster) as keeping:
        with closing(keeping.reader()) as reader:
            reader.assign({PLACES[0]: 99})
            with pytest.raises(OffsetOutOfRange):
                reader.read(10, 0.0)
        assert cluster.closed == 1
        assert values(keeping, PLACES[0]) == [b"0"] * 3
        assert cluster.opened == 2


def test_a_reader_that_follows_is_a_new_one(cluster: Watched) -> None:
    with kept_readers(cluster) as keeping:
        for _ in range(2):
            keeping.reader(follows=True).close()
        assert (cluster.opened, cluster.closed) == (2, 2)
