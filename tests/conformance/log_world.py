"""A cluster to hold to the contract, and the little that differs between one in memory and a real one: time."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stateflow.clock import ManualClock
from stateflow.log.base import Cluster, Committed, GroupConsumer, Reader, TopicSpec, Writer
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.log.memory import DelayedWriter, MemoryCluster
from stateflow.record import Record, RecordBatch, TopicPartition

SESSION_MS = 4_000  # short for the tests that wait for it, long enough for a machine with other work to do
MAX_POLL_MS = 6_000
TRANSACTION_MS = 8_000
WAIT_SECONDS = 60.0
STEP_SECONDS = 0.05

AGGRESSIVE: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "100",
}
"""Compaction as soon as the broker can."""


@dataclass
class World:
    """One cluster under test; names are unique, so that tests may share a broker."""

    cluster: Cluster
    clock: ManualClock | None
    _names: itertools.count[int] = field(default_factory=itertools.count)
    _unique: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def name(self, stem: str = "topic") -> str:
        """A name that no other test uses."""
        return f"{stem}-{self._unique}-{next(self._names)}"

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic, which keeps records of any age: brokers delete by the records' own timestamps."""
        name = self.name()
        self.cluster.create([TopicSpec(name, partitions, config={"retention.ms": "-1", **(config or {})})])
        return name

    def until(self, condition: Callable[[], bool], step: Callable[[], object] = lambda: None) -> None:
        """Repeat ``step`` until the condition holds; time passes in between. Fails after a generous wait."""
        deadline = time.monotonic() + WAIT_SECONDS
        for turn in itertools.count():
            step()
            if condition():
                return
            if self.clock is not None:
                self.clock.advance(seconds=STEP_SECONDS)
                assert turn * STEP_SECONDS < WAIT_SECONDS, "the condition never came to hold"
            else:
                time.sleep(STEP_SECONDS)  # between two looks at an observable condition
                assert time.monotonic() < deadline, f"the condition did not hold after {turn} looks"

    def during(self, seconds: float, step: Callable[[], object]) -> None:
        """Repeat ``step`` for some time: to show that something does not happen."""
        ends = time.monotonic() + seconds
        for turn in itertools.count():
            step()
            if self.clock is not None:
                self.clock.advance(seconds=STEP_SECONDS)
            if (
                turn * STEP_SECONDS if self.clock is not None else time.monotonic() - ends + seconds
            ) >= seconds:
                return

    def produce(self, topic: str, *rows: tuple[bytes | None, bytes | None], partition: int = 0) -> None:
        """Write records without a transaction."""
        writer = self.cluster.writer()
        for key, value in rows:
            writer.send(topic, key, value, partition=partition)
        writer.commit()
        writer.close()

    def open_transaction(self, topic: str, writer_id: str, value: bytes = b"open") -> Writer:
        """A writer with an open transaction whose records have taken offsets on partition 0.

        The only sign of that from outside is the offset of other records, here of key and value ``probe``.
        """
        probe = self.cluster.writer()
        place = TopicPartition(topic, 0)

        def probed() -> int:
            probe.send(topic, b"probe", b"probe", partition=0)
            return probe.commit()[place].offset

        first = probed()
        writer = self.cluster.writer(writer_id)
        writer.begin()
        for n in range(6):  # a writer may hold back the last record of a partition
            writer.send(topic, b"o%d" % n, value, partition=0)
        offsets = [first]
        # Five slots between the probes: one may be the marker of an earlier transaction, which comes after its commit.

        def look() -> None:
            if isinstance(writer, DelayedWriter):
                writer.let_arrive()
            offsets.append(probed())

        self.until(lambda: offsets[-1] - first >= len(offsets) + 4, look)
        probe.close()
        return writer

    def read_all(
        self, topic: str, partition: int = 0, offset_first: int = 0, *, settled: bool = True
    ) -> list[Record]:
        """Everything a reader gets between an offset and the end as it is now."""
        reader = self.cluster.reader()
        try:
            place = TopicPartition(topic, partition)
            return self.read_to_end(reader, place, offset_first, settled=settled)
        finally:
            reader.close()

    def read_to_end(
        self, reader: Reader, partition: TopicPartition, offset_first: int, *, settled: bool = True
    ) -> list[Record]:
        """Assign, and read until the position says that the end as it is now was reached.

        ``settled`` waits before for transactions to end; the markers of one follow a moment after its commit.
        """
        if settled:
            self.until(lambda: self.stable_end(partition) == self.log_end(partition))
        target = self.stable_end(partition)
        found: list[Record] = []
        reader.assign({partition: offset_first})
        self.until(
            lambda: reader.position(partition) >= target,
            lambda: found.extend(records(reader.read(1000, STEP_SECONDS))),
        )
        return found

    def stable_end(self, partition: TopicPartition) -> int:
        """Where a read-committed reader ends now."""
        return self.cluster.ranges([partition])[partition].offset_next

    def log_end(self, partition: TopicPartition) -> int:
        """Where the log ends now."""
        return self.cluster.ranges([partition], stable=False)[partition].offset_next

    def values(self, topic: str, partition: int = 0, *, settled: bool = True) -> list[bytes | None]:
        """The values of :meth:`read_all`."""
        return [record.value for record in self.read_all(topic, partition, settled=settled)]

    def clean(self, topic: str, until: Callable[[list[Record]], bool]) -> list[Record]:
        """Let the cleaner work on partition 0 until the records satisfy ``until``, then return them.

        A segment is closed only by an append after its time, so a record of key ``~`` is appended before each look.
        """
        seen: list[Record] = []

        def look() -> None:
            self.produce(topic, (b"~", b"tail"))
            if isinstance(self.cluster, MemoryCluster):
                self.cluster.compact(topic)
            seen[:] = [record for record in self.read_all(topic, settled=False) if record.key != b"~"]

        self.until(lambda: until(seen), look)
        return seen


def records(batches: Sequence[RecordBatch]) -> list[Record]:
    """The records of several batches."""
    return [record for batch in batches for record in batch.records()]


@dataclass
class Listener:
    """A group listener that notes what it is told, and starts what it is given from offset 0."""

    events: list[tuple[str, tuple[TopicPartition, ...]]] = field(default_factory=list)
    owned: set[TopicPartition] = field(default_factory=set)
    at_revoke: Callable[[Sequence[TopicPartition]], None] = lambda _: None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert not self.owned.intersection(partitions), "assigned twice"
        self.events.append(("assigned", tuple(partitions)))
        self.owned.update(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.owned.issuperset(partitions), "revoked what was not assigned"
        self.at_revoke(partitions)
        self.events.append(("revoked", tuple(partitions)))
        self.owned.difference_update(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.owned.issuperset(partitions), "lost what was not assigned"
        self.events.append(("lost", tuple(partitions)))
        self.owned.difference_update(partitions)

    def told(self, kind: str) -> list[TopicPartition]:
        """Every partition of the events of one kind, sorted."""
        return sorted(
            partition for name, partitions in self.events if name == kind for partition in partitions
        )


class Member:
    """A group member with its listener and everything it has read."""

    def __init__(
        self,
        world: World,
        group: str,
        topics: Sequence[str],
        member: str | None = None,
        *,
        independent: bool = False,
    ) -> None:
        self.listener = Listener()
        self.consumer: GroupConsumer = world.cluster.group_consumer(
            group, topics, self.listener, member=member, independent=independent
        )
        self.records: list[Record] = []

    def poll(self) -> None:
        """One poll."""
        self.records += records(self.consumer.poll(1000, STEP_SECONDS))

    def start_all(self, offset: int = 0) -> None:
        """Read everything it owns from an offset."""
        self.consumer.start(dict.fromkeys(self.listener.owned, offset))

    def commit(self, partition: TopicPartition, offset_next: int, metadata: str = "") -> None:
        """Commit one offset."""
        self.consumer.commit({partition: Committed(offset_next, metadata)})


def memory_world(delays_seed: int | None = None) -> World:
    """A cluster in memory whose clock moves only in :meth:`World.until` and by hand."""
    clock = ManualClock(1_700_000_000_000)
    cluster = MemoryCluster(
        clock,
        transaction_timeout_ms=TRANSACTION_MS,
        session_timeout_ms=SESSION_MS,
        max_poll_interval_ms=MAX_POLL_MS,
        delays_seed=delays_seed,
    )
    return World(cluster, clock)


def kafka_world(bootstrap: str) -> World:
    """A real cluster."""
    options = KafkaOptions(
        request_timeout_seconds=10.0,
        transaction_timeout_ms=TRANSACTION_MS,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=300,
        max_poll_interval_ms=MAX_POLL_MS,
        missing_topic_after_ms=500,
    )
    return World(KafkaCluster(bootstrap, options=options), None)
