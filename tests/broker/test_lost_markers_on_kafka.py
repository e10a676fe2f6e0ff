"""Kafka writes no marker where a partition has no leader (KAFKA-20734): the task that is opened next writes it.

Three brokers, and topics that each have one replica only: the broker of one is killed between a task's records and the
end of its transaction. Should a Kafka come that waits for the leader, ``left_over`` finds nothing, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count

import pytest

from stateflow.clock import SystemClock
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import BrokerUnreachable, OffsetsPending, TopicMissing, TransactionAborted
from stateflow.log.base import Cluster, Committed, TopicSpec, Writer
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.log.kafka.last_commit import java_hash
from stateflow.log.kafka.settings import KafkaOptions
from stateflow.log.reading import read_ranges
from stateflow.record import TopicPartition
from stateflow.runtime.opening.opening import Opener
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.prepare import prepare
from stateflow.store.memory import MemoryTaskStores
from tests.sim.counting import APP, OUTPUT, SOURCE, STORE, topology
from tests.sim.one_machine import SETTINGS
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

OUTPUTS = 6
"""So many partitions that each broker leads some of them."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3, overrides={"offsets.topic.replication.factor": 1}) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def cluster(kafka: EmbeddedKafka) -> Iterator[KafkaCluster]:
    with closing(connect(kafka.bootstrap)) as made:
        made.create([TopicSpec(SOURCE, 1, 3), TopicSpec(OUTPUT, OUTPUTS, 1)])
        yield made


@pytest.fixture(scope="module")
def wiring(cluster: KafkaCluster) -> TaskWiring:
    """A task with one changelog, which also has one replica."""
    found: list[Wiring] = []

    def prepared() -> bool:
        try:
            found.append(prepare(cluster, topology(), "exactly-once", 1, SystemClock(), replication=1))
        except TopicMissing:  # of these brokers one may not have heard of them yet
            return False
        return True

    wait_until(prepared, "every broker to know the topics")
    (made,) = found
    return made.task(made.topology.stage("number"), 0)


def leader_of(cluster: KafkaCluster, partition: TopicPartition) -> int:
    topic = cluster._admin.client.list_topics(partition.topic, timeout=30).topics[partition.topic]
    return int(topic.partitions[partition.partition].leader)


def led_elsewhere(cluster: KafkaCluster, wiring: TaskWiring) -> TopicPartition:
    """An output partition on another broker than the changelog and the coordinator, which ends the transaction."""
    spared = {leader_of(cluster, wiring.changelogs[STORE])}
    spared.add(leader_of(cluster, coordinated_at("__transaction_state", wiring.transactional_id)))
    outputs = [TopicPartition(OUTPUT, number) for number in range(OUTPUTS)]
    return next(output for output in outputs if leader_of(cluster, output) not in spared)


def coordinated_at(topic: str, name: str) -> TopicPartition:
    """Where what is kept of a group or a transactional id is: Java's hash of its name decides."""
    return TopicPartition(topic, java_hash(name) % 4)


def end_without_leader(
    kafka: EmbeddedKafka, cluster: KafkaCluster, writer: Writer, lost: TopicPartition, *, commit: bool
) -> None:
    """End the transaction while the leader of one of its partitions is away; on return it is there again."""
    with no_leader(kafka, cluster, lost):
        writer.commit() if commit else writer.abort()
        writer.close()


@contextmanager
def no_leader(kafka: EmbeddedKafka, cluster: KafkaCluster, lost: TopicPartition) -> Iterator[None]:
    """The leader of a partition is away; at the end it is there again."""
    node = leader_of(cluster, lost)
    kafka.nodes[node - 1].kill()
    try:
        wait_until(lambda: leader_of(cluster, lost) < 0, f"{lost} to have no leader")
        yield
    finally:
        kafka.restart_node(node)
    wait_until(lambda: leader_of(cluster, lost) >= 0, f"{lost} to have its leader")


def values(cluster: Cluster, partition: TopicPartition) -> list[bytes | None]:
    """All that a reader of committed records sees."""
    with closing(cluster.reader()) as reader:
        batches = read_ranges(
            reader, cluster.ranges([partition]), stall_seconds_max=60.0, clock=SystemClock()
        )
        return [value for batch in batches for value in batch.values]


def is_open(cluster: Cluster, partition: TopicPartition) -> bool:
    whole = cluster.ranges([partition], stable=False)[partition]
    return cluster.ranges([partition])[partition].offset_next < whole.offset_next


def open_and_write(cluster: KafkaCluster, wiring: TaskWiring, output: TopicPartition, value: bytes) -> None:
    """A new owner opens the task, writes there, and commits."""
    opener = Opener(cluster, lambda *_: MemoryTaskStores([STORE]), SETTINGS, SystemClock())
    opener.open(wiring, lambda: False).task.abandon()
    assert not is_open(cluster, output), "nothing of its predecessors is"
    with closing(cluster.writer(wiring.transactional_id)) as writer:
        writer.begin()
        writer.send(output.topic, b"k", value, partition=output.partition)
        writer.commit()
    wait_until(lambda: not is_open(cluster, output), "the marker of that")


numbers = count()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("commit", [False, True], ids=["aborted", "committed"])
def test_an_output_gets_the_marker_that_is_missing(
    kafka: EmbeddedKafka, cluster: KafkaCluster, wiring: TaskWiring, commit: bool
) -> None:
    output = led_elsewhere(cluster, wiring)
    before = values(cluster, output)
    writer = cluster.writer(wiring.transactional_id)
    writer.begin()
    writer.send(output.topic, b"k", b"lost?", partition=output.partition)
    writer.flush()
    end_without_leader(kafka, cluster, writer, output, commit=commit)
    assert is_open(cluster, output), "this Kafka has left out the marker"
    assert values(cluster, output) == before

    new = b"new %d" % next(numbers)
    open_and_write(cluster, wiring, output, new)
    assert values(cluster, output) == [*before, b"lost?", new] if commit else [*before, new]


@pytest.mark.timeout(180)
def test_nothing_is_begun_behind_a_commit_that_may_lack_a_marker(
    kafka: EmbeddedKafka, cluster: KafkaCluster, wiring: TaskWiring
) -> None:
    """The commit was answered at once; whatever ended the next transaction would be the marker that it lacks."""
    output = led_elsewhere(cluster, wiring)
    before = values(cluster, output)
    writer = cluster.writer(wiring.transactional_id)
    writer.begin()
    writer.send(output.topic, b"k", b"kept", partition=output.partition)
    writer.flush()
    with no_leader(kafka, cluster, output):
        writer.commit()
    assert is_open(cluster, output), "this Kafka has left out the marker"
    with pytest.raises(TransactionAborted, match=r"not certain.* may have been away"):
        writer.begin()
    writer.close()

    new = b"new %d" % next(numbers)
    open_and_write(cluster, wiring, output, new)
    assert values(cluster, output) == [*before, b"kept", new]


def open_though_offsets_are_held(cluster: KafkaCluster, wiring: TaskWiring) -> None:
    opener = Opener(cluster, lambda *_: MemoryTaskStores([STORE]), SETTINGS, SystemClock())
    began_seconds = time.monotonic()
    with pytest.raises(OffsetsPending):  # as from any task that has to be opened again
        opener.open(wiring, lambda: False)
    seconds = time.monotonic() - began_seconds
    assert seconds < KafkaOptions().request_timeout_seconds / 2, "whoever is fenced is not waited for"
    opener.open(wiring, lambda: False).task.abandon()


@pytest.mark.timeout(180)
def test_offsets_of_the_group_get_the_marker_that_is_missing(
    kafka: EmbeddedKafka, cluster: KafkaCluster, wiring: TaskWiring
) -> None:
    """They would be pending for good, and the task would never be opened."""
    (source,) = wiring.inputs
    writer = cluster.writer(wiring.transactional_id)
    writer.begin()
    writer.send_offsets({source: Committed(7)}, APP, None)
    end_without_leader(kafka, cluster, writer, coordinated_at("__consumer_offsets", APP), commit=True)
    open_though_offsets_are_held(cluster, wiring)
    assert cluster.committed(APP, [source])[source].offset_next == 7


def test_a_running_transaction_is_none_that_was_left_open(cluster: KafkaCluster, wiring: TaskWiring) -> None:
    output, transactional_id = led_elsewhere(cluster, wiring), "somebody"
    with closing(cluster.writer(transactional_id)) as writer:
        none = cluster.transactions.last(transactional_id)
        assert none is not None
        assert none.outcome == "none"
        writer.begin()
        writer.send(output.topic, b"k", b"v", partition=output.partition)
        writer.flush()
        last = cluster.transactions.last(transactional_id)
        assert last is not None
        assert last.outcome == "open"
        assert last.partitions == frozenset({output})
        found = cluster.transactions.left_open([transactional_id, wiring.transactional_id], [output])
        assert found is not None
        assert (found.by_id, found.untold) == ({}, frozenset())
        writer.abort()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("only_replica", [False, True])
def test_who_led_a_partition_once_is_not_asked_in_the_place_of_a_leader(
    kafka: EmbeddedKafka, cluster: KafkaCluster, wiring: TaskWiring, only_replica: bool
) -> None:
    output = led_elsewhere(cluster, wiring)
    written = {output: 2**62}
    assert cluster.transactions.undecided(1, written, only_replica=only_replica) == set()
    with no_leader(kafka, cluster, output), pytest.raises(BrokerUnreachable, match="LEADER_NOT_AVAILABLE"):
        cluster.transactions.undecided(1, written, only_replica=only_replica)
    assert cluster.transactions.undecided(1, written, only_replica=only_replica) == set()
