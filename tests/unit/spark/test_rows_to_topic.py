"""A micro-batch's part of one partition: there once, whatever attempt died where."""

from __future__ import annotations

import pytest

from stateflow.errors import ConfigError, ProducerFenced
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.reading import read_topic
from stateflow.record import TopicPartition
from stateflow.spark.to_topic import MicroBatch, write_batch

TARGET = TopicPartition("orders", 0)
ROWS = [(b"a", b"1", 5), (b"b", None, None)]


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create([TopicSpec("orders", 1)])
    return made


def write(cluster: MemoryCluster, number: int, query: str = "q") -> int | None:
    return write_batch(cluster, TARGET, "files-to-orders", MicroBatch(query, number), ROWS)


def there(cluster: MemoryCluster) -> int:
    return sum(len(batch) for batch in read_topic(cluster, "orders"))


def test_what_is_written_is_not_written_again(cluster: MemoryCluster) -> None:
    assert [write(cluster, number) for number in (0, 0, 1, 1, 0)] == [2, None, 2, None, None]
    assert there(cluster) == 4


def test_an_attempt_that_died_leaves_nothing_and_one_that_lives_is_fenced(cluster: MemoryCluster) -> None:
    dead = cluster.writer("files-to-orders-0")
    dead.begin()
    dead.send("orders", b"a", b"of a dead attempt", partition=0)
    assert write(cluster, 0) == 2
    assert there(cluster) == 2
    with pytest.raises(ProducerFenced):
        dead.commit()
    assert there(cluster) == 2


def test_another_query_under_the_same_name_is_refused(cluster: MemoryCluster) -> None:
    write(cluster, 3)
    with pytest.raises(ConfigError, match="another checkpoint"):
        write(cluster, 0, query="new")
    assert there(cluster) == 2
