"""The memory log with records on their way: order within a partition, none between, and what a flush is for."""

from __future__ import annotations

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import ProducerFenced, TopicMissing
from stateflow.log.base import Committed, TopicSpec
from stateflow.log.memory import DelayedWriter, MemoryCluster
from stateflow.record import TopicPartition

SEEDS = range(20)
FIRST, SECOND = TopicPartition("two", 0), TopicPartition("two", 1)


def cluster(seed: int) -> MemoryCluster:
    made = MemoryCluster(ManualClock(1_700_000_000_000), delays_seed=seed)
    made.create([TopicSpec("two", 2)])
    return made


def ends(log: MemoryCluster) -> tuple[int, int]:
    found = log.ranges([FIRST, SECOND], stable=False)
    return found[FIRST].offset_next, found[SECOND].offset_next


def values(log: MemoryCluster, place: TopicPartition) -> list[bytes | None]:
    reader = log.reader()
    reader.assign({place: 0})
    return [value for batch in reader.read(100, 0) for value in batch.values]


def test_partitions_overtake_each_other_and_records_of_one_do_not() -> None:
    seen = set()
    for seed in SEEDS:
        log = cluster(seed)
        writer = log.writer()
        for number in range(4):
            writer.send("two", None, b"%d" % number, partition=0)
            writer.send("two", None, b"%d" % number, partition=1)
        seen.add(ends(log))
        writer.flush()
        assert values(log, FIRST) == values(log, SECOND) == [b"0", b"1", b"2", b"3"]
    assert any(first > second for first, second in seen)
    assert any(first < second for first, second in seen)


def test_offsets_of_a_transaction_overtake_its_records() -> None:
    late = 0
    for seed in SEEDS:
        log = cluster(seed)
        writer = log.writer("tx")
        writer.begin()
        writer.send("two", b"k", b"v", partition=0)
        writer.send_offsets({SECOND: Committed(7)}, "group", None)
        is_late = ends(log) == (0, 0)
        assert isinstance(writer, DelayedWriter)
        writer.late_end_txn()
        assert log.committed("group", [SECOND]) == {SECOND: Committed(7)}
        late += is_late
    assert late > len(SEEDS) / 4


def test_what_is_on_its_way_dies_with_its_process() -> None:
    lost = 0
    for seed in SEEDS:
        log = cluster(seed)
        writer = log.writer()
        writer.send("two", None, b"v", partition=0)
        assert isinstance(writer, DelayedWriter)
        writer.kill()
        lost += ends(log) == (0, 0)
    assert 0 < lost < len(SEEDS)


def test_an_aborted_transaction_leaves_nothing_to_the_next() -> None:
    for seed in SEEDS:
        log = cluster(seed)
        writer = log.writer("tx")
        writer.begin()
        writer.send_many("two", [None] * 5, [b"old"] * 5, partitions=0)
        writer.abort()
        writer.begin()
        writer.send("two", None, b"new", partition=0)
        writer.commit()
        assert values(log, FIRST) == [b"new"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_goes_wrong_on_the_way_comes_out_of_the_next_call(seed: int) -> None:
    log = cluster(seed)
    old = log.writer("tx")
    assert isinstance(old, DelayedWriter)
    old.begin()
    old.send("two", None, b"v", partition=0)
    log.writer("tx")
    for _ in range(100):
        old.let_arrive()
    with pytest.raises(ProducerFenced):
        old.flush()


def test_a_missing_topic_is_known_at_once() -> None:
    with pytest.raises(TopicMissing):
        cluster(0).writer().send("none", None, b"v", partition=0)
