"""The live state of a changelog partition is read in parts of bounded size, however large its values are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stateflow.catalog.model import RoutingEntry
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.memory import ENTRY_BYTES
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.audit import AuditJob, audit_partition
from stateflow.scale.reading import live_state

LOG = TopicPartition("changelog", 0)
RECORDS, KEYS = 4_000, 600


@pytest.fixture
def filled() -> tuple[MemoryCluster, dict[bytes, bytes]]:
    """A log of small and large values, some of them replaced and some keys deleted; and its live state."""
    draw = random.Random(11)
    cluster = MemoryCluster(ManualClock(1_000))
    cluster.create([TopicSpec(LOG.topic, 1)])
    state: dict[bytes, bytes | None] = {}
    writer = cluster.writer()
    for _ in range(RECORDS):
        key, size = b"key-%d" % draw.randrange(KEYS), draw.choice([10, 100, 5_000])
        value = None if draw.random() < 0.1 else draw.randbytes(size)
        writer.send(LOG.topic, key, value, partition=0)
        state[key] = value
    writer.commit()
    writer.close()
    return cluster, {key: value for key, value in state.items() if value is not None}


def held_bytes(state: dict[bytes, bytes]) -> int:
    return sum(ENTRY_BYTES + len(key) + len(value) for key, value in state.items())


@pytest.mark.parametrize("keys_max", [1_000_000, 700])
@pytest.mark.parametrize("bytes_max", [1 << 30, 100_000, 20_000, 1])
def test_parts_take_no_more_than_was_asked_for(
    filled: tuple[MemoryCluster, dict[bytes, bytes]], keys_max: int, bytes_max: int
) -> None:
    cluster, expected = filled
    offsets = OffsetRange(0, RECORDS)
    parts = list(live_state(cluster, LOG, offsets, keys_max=keys_max, bytes_max=bytes_max))
    assert all(held_bytes(part) <= bytes_max or len(part) == 1 for part in parts)
    assert sum(len(part) for part in parts) == len(expected), "parts have no key in common"
    assert {key: value for part in parts for key, value in part.items()} == expected
    if keys_max > RECORDS and bytes_max > held_bytes(expected):
        assert len(parts) == 1, "what fits is read once"


def test_the_audit_is_the_same_in_parts(filled: tuple[MemoryCluster, dict[bytes, bytes]]) -> None:
    cluster, expected = filled
    job = AuditJob(
        store="s",
        source=LOG,
        offsets=OffsetRange(0, RECORDS),
        layout="plain",
        routing=RoutingEntry(kind="modulo", partitions=3),
    )
    whole = audit_partition(cluster, job)
    in_parts = audit_partition(cluster, replace(job, bytes_max=20_000))
    assert in_parts == whole
    assert sum(tally.keys for tally in whole.tallies) == len(expected)
