"""Repartition trusts the commit records: they say where input goes on, and whether a commit is whole."""

from __future__ import annotations

import pytest

from stateflow.catalog.names import changelog_topic, repartition_topic, task_id, transactional_id
from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.event_time import EventTime, PortTime
from stateflow.changelog.position import InputPosition
from stateflow.errors import CommitTorn, ProducerFenced
from stateflow.lab.applications.written import SOURCE_PARTITIONS, STEP, STORES
from stateflow.log.base import Cluster
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.runtime.task.rotating_producer import RotatingProducer
from stateflow.scale import generation as generations
from tests.sim.repartitioned import assert_everything_kept, run, written

BEFORE, AFTER = RoutingTable.modulo(4), RoutingTable.modulo(6)


def append(cluster: Cluster, store: str, key: bytes, value: bytes) -> None:
    """One committed record at the end of the changelog of task 1."""
    writer = cluster.writer()
    writer.begin()
    writer.send(changelog_topic("shop", store), key, value, partition=1, timestamp_ms=1)
    writer.commit()
    writer.close()


def end_commit(cluster: Cluster, input_next: int) -> None:
    """End what stands in the changelogs of task 1 with a commit record, as its worker would."""
    event_time = EventTime(70, (PortTime(STEP, (70,) * SOURCE_PARTITIONS),))
    source = TopicPartition(repartition_topic("shop", STEP), 1)
    record = CommitRecord(2, 4, 0, InputPosition({source: input_next}, event_time))
    for store in STORES:
        append(cluster, store.name, COMMIT_KEY, record.encode())


def test_input_goes_on_where_the_commit_record_says(cluster: MemoryCluster) -> None:
    app = written(cluster, BEFORE)
    first, *rest = [record for record in app.found_unread(0)[1] if record.key is not None]
    end_commit(cluster, first.offset + 1)  # while the group's offset stayed behind
    run(cluster, AFTER.entry())
    moved = [record.value for records in app.found_unread(1).values() for record in records]
    assert first.value not in moved, "its effect is in the state already"
    assert {record.value for record in rest} <= set(moved)
    assert {position.event_time.reached_ms for position in app.positions(1).values()} == {70}


def test_a_torn_commit_is_refused_before_anything_is_begun(cluster: MemoryCluster) -> None:
    app = written(cluster, BEFORE)
    end_commit(cluster, app.found_unread(0)[1][0].offset)
    append(cluster, "totals", b"half", b"of a commit")
    with pytest.raises(CommitTorn, match=f"{STEP}-1 is only half visible"):
        run(cluster, AFTER.entry())
    assert generations.preparing(generations.load_catalog(cluster, "shop")) is None


def test_a_paranoid_worker_is_fenced_under_both_its_ids(cluster: MemoryCluster) -> None:
    app = written(cluster, BEFORE)
    zombie = RotatingProducer(cluster, transactional_id("shop", 0, task_id(STEP, 1)))
    zombie.begin()
    zombie.commit()
    zombie.begin()  # now under its second id
    zombie.send(changelog_topic("shop", "totals"), b"key-1", b"from a zombie", partition=1)
    run(cluster, AFTER.entry())
    assert_everything_kept(app, 1, AFTER)
    with pytest.raises(ProducerFenced):
        zombie.commit()
