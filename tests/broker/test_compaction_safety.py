"""Whatever is recommended and however settings change: the newest value of every key survives, no deleted key returns.

In the manner of Kafka's own compaction torture test: random writes and deletions, policies recommended for random
objectives applied in between, then the log as a restore sees it against a plain dictionary. Nothing is slept for:
the test waits on the cleaner's visible work.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stateflow.changelog.format import is_reserved
from stateflow.compaction import (
    ClusterAdmin,
    Journal,
    Measurement,
    MeasureOptions,
    Objective,
    RestoreRate,
    changelog_bytes,
    measure,
    recommend_allowed,
    wait_for_size,
)
from stateflow.compaction.control.change import change, rollback
from stateflow.errors import ConfigError
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.record import TopicPartition
from stateflow.testing.broker import TestBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]
ROUNDS = 8
RECORDS_PER_ROUND = 4000


@dataclass
class World:
    """One topic, what must be in it, and the means to write, tune and read it."""

    cluster: KafkaCluster
    admin: ClusterAdmin
    journal: Journal
    topic: str
    partitions: int
    source: random.Random
    measured: Measurement | None = None

    def __post_init__(self) -> None:
        self.newest: dict[bytes, bytes | None] = {}

    def write(self) -> None:
        keys = self.source.choice([20, 500, 3000])
        transactional = self.source.random() < 0.3
        writer = self.cluster.writer(f"safety-{uuid.uuid4().hex}" if transactional else None)
        writer.begin()
        for _ in range(RECORDS_PER_ROUND):
            number = self.source.randrange(keys)
            value = (
                None
                if self.source.random() < 0.25
                else self.source.randbytes(self.source.choice([0, 20, 400]))
            )
            self.newest[b"k%06d" % number] = value
            writer.send(self.topic, b"k%06d" % number, value, partition=number % self.partitions)
        writer.commit()
        writer.close()

    def abort(self) -> None:
        """A transaction that must leave nothing behind."""
        writer = self.cluster.writer(f"safety-{uuid.uuid4().hex}")
        writer.begin()
        for number in range(50):
            writer.send(self.topic, b"k%06d" % number, b"never", partition=number % self.partitions)
        writer.abort()
        writer.close()

    def tune(self) -> None:
        """Apply what is recommended for a random objective, or take the last change back."""
        if self.source.random() < 0.2:
            with contextlib.suppress(ConfigError):  # nothing to take back yet
                rollback(self.admin, self.topic, self.journal, force=True)
            return
        options = MeasureOptions(
            seconds=0.2,
            updates_per_second=self.source.choice([50.0, 2000.0]),
            restore=RestoreRate(100_000, 0.0),
        )
        found = measure(self.cluster, self.topic, admin=self.admin, options=options)
        seconds = self.source.choice([1.05, 1.5, 3.0]) * found.live_records / 100_000
        objective = Objective(seconds, transaction_timeout_ms=100)
        recommendation = recommend_allowed(self.admin, found, objective)
        assert recommendation.best.policy.delete_retention_ms >= objective.tombstone_guard_ms
        change(self.admin, self.topic, dict(recommendation.changes), self.journal)

    def compact(self) -> None:
        """Let the cleaner at it: close the segments, and wait until the log is clearly smaller."""
        self.admin.alter_topic(
            self.topic, {"segment.ms": "50", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": None}
        )
        wait_for_size(
            self.cluster,
            self.admin,
            self.topic,
            bytes_at_most=0.7 * changelog_bytes(self.admin, self.topic),
            deadline_seconds=10,
            touch_every_seconds=0.5,
        )

    def replayed(self) -> dict[bytes, bytes]:
        partitions = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        targets = self.cluster.ranges(partitions)
        newest: dict[bytes, bytes | None] = {}
        reader = self.cluster.reader()
        reader.assign({partition: found.offset_first for partition, found in targets.items()})
        while any(reader.position(partition) < found.offset_next for partition, found in targets.items()):
            for batch in reader.read(10_000, 0.5):
                newest.update(zip(batch.keys, batch.values, strict=True))
        reader.close()
        return {key: value for key, value in newest.items() if value is not None and not is_reserved(key)}

    def expected(self) -> dict[bytes, bytes]:
        return {key: value for key, value in self.newest.items() if value is not None}


@pytest.fixture
def opened(broker: TestBroker) -> Iterator[tuple[KafkaCluster, ClusterAdmin]]:
    cluster, admin = connect(broker.bootstrap), ClusterAdmin(broker.bootstrap)
    yield cluster, admin
    admin.close()
    cluster.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_lost_and_nothing_returns(
    opened: tuple[KafkaCluster, ClusterAdmin], tmp_path: Path, seed: int
) -> None:
    cluster, admin = opened
    source = random.Random(seed)
    topic, partitions = f"safety-{uuid.uuid4().hex[:8]}-changelog", source.choice([1, 3])
    config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    cluster.create([TopicSpec(topic, partitions, 1, config)])
    world = World(cluster, admin, Journal("safety", tmp_path), topic, partitions, source)
    try:
        shrank = 0
        for round_number in range(ROUNDS):
            world.write()
            if source.random() < 0.3:
                world.abort()
            if source.random() < 0.8:
                world.tune()
            if round_number % 2:
                before = changelog_bytes(admin, topic)
                world.compact()
                shrank += changelog_bytes(admin, topic) < before
            assert world.replayed() == world.expected(), f"seed {seed}, round {round_number}"
        assert shrank > 0, "the cleaner never worked: the test showed nothing"
    finally:
        cluster.delete([topic])
