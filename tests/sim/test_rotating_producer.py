"""The rotating producer on the memory log: two ids in turn, both fenced by a successor."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stateflow.errors import ProducerFenced
from stateflow.log.base import TopicSpec, Writer
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.runtime.task.rotating_producer import RotatingProducer

PLACE = TopicPartition("log", 0)


class CountingCluster:
    """The memory cluster, which notes whose producers were opened."""

    def __init__(self) -> None:
        self.real = MemoryCluster()
        self.opened: list[str | None] = []
        self._changed = threading.Condition()

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    def writer(self, transactional_id: str | None = None) -> Writer:
        writer = self.real.writer(transactional_id)
        with self._changed:
            self.opened.append(transactional_id)
            self._changed.notify_all()
        return writer

    def wait_for_opened(self, total: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.opened) >= total, timeout=10)


@pytest.fixture
def cluster() -> Iterator[CountingCluster]:
    made = CountingCluster()
    made.real.create([TopicSpec("log", 1)])
    yield made
    made.real.close()


def commit(writer: Writer, value: bytes) -> None:
    writer.begin()
    writer.send("log", b"k", value, partition=0)
    writer.flush()
    writer.commit()


def values(cluster: CountingCluster) -> list[bytes]:
    reader = cluster.real.reader()
    reader.assign({PLACE: 0})
    found = [value for batch in reader.read(100, 0) for value in batch.values]
    reader.close()
    return found


def test_every_transaction_has_a_new_producer(cluster: CountingCluster) -> None:
    writer = RotatingProducer(cluster, "task")  # type: ignore[arg-type]  # a memory cluster that counts
    for number in range(5):
        commit(writer, b"%d" % number)
    writer.close()
    assert cluster.opened == ["task", "task-second"] * 3 + ["task"]
    assert values(cluster) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("commits", [0, 1, 2, 3])
def test_a_successor_fences_whichever_producer_is_next(cluster: CountingCluster, commits: int) -> None:
    zombie = RotatingProducer(cluster, "task")  # type: ignore[arg-type]
    for number in range(commits):
        commit(zombie, b"%d" % number)
    cluster.wait_for_opened(commits + 2)
    zombie.begin()
    zombie.send("log", b"k", b"never", partition=0)
    successor = RotatingProducer(cluster, "task")  # type: ignore[arg-type]
    with pytest.raises(ProducerFenced):
        commit_rest(zombie)
    commit(successor, b"next")
    successor.close()
    zombie.close()
    assert values(cluster) == [*(b"%d" % number for number in range(commits)), b"next"]


def commit_rest(writer: Writer) -> None:
    writer.send("log", b"k", b"never either", partition=0)
    writer.commit()


def test_an_aborted_transaction_leaves_nothing(cluster: CountingCluster) -> None:
    writer = RotatingProducer(cluster, "task")  # type: ignore[arg-type]
    writer.begin()
    writer.send("log", b"k", b"aborted", partition=0)
    writer.abort()
    writer.close()
    assert values(cluster) == []
