"""A changelog cut anywhere, and its keys divided into any number of slices: what comes together is its live state."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stateflow.catalog.model import RoutingEntry
from stateflow.changelog.format import TOUCH_KEY
from stateflow.errors import ChangelogTrimmed
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale.audit import AuditJob, audit_partition
from stateflow.scale.audit_slices import AuditedChangelog, audit_changelogs
from stateflow.scale.engine import InProcess
from stateflow.scale.ranges import ChangelogRange, changelog_ranges, grouped, keys_by_slice, slice_of
from stateflow.scale.settings import RangeSettings, ScaleSettings
from stateflow.scale.state_move import RangeJob, SliceJob, send_state, write_slice

LOGS = [TopicPartition("old", 0), TopicPartition("old", 1)]
ROUTING = RoutingEntry(kind="modulo", partitions=3)


def filled(seed: int) -> tuple[MemoryCluster, list[dict[bytes, tuple[bytes, int]]]]:
    """Two changelogs of changes, deletions and touch records; and the live value and time of each key."""
    draw, cluster = random.Random(seed), MemoryCluster()
    cluster.create([TopicSpec("old", 2), TopicSpec("new", 3)])
    live: list[dict[bytes, tuple[bytes, int]]] = [{}, {}]
    writer = cluster.writer()
    for number in range(draw.randrange(1, 400)):
        partition = draw.randrange(2)
        key, value = b"%d-%d" % (partition, draw.randrange(60)), b"v" * draw.randrange(40)
        deleted = draw.random() < 0.3
        writer.send("old", key, None if deleted else value, partition=partition, timestamp_ms=number + 1)
        live[partition].pop(key, None)
        if not deleted:
            live[partition][key] = value, number + 1
        if number % 50 == 0:
            writer.send("old", TOUCH_KEY, b"", partition=partition, timestamp_ms=1)
    writer.commit()
    writer.close()
    return cluster, live


@settings(max_examples=40, deadline=None)
@example(
    seed=906, slots_each=1, slices=1, memory_bytes_max=1, transaction_bytes_max=150, together=1
)  # the first log is empty
@given(
    seed=st.integers(0, 10**6),
    slots_each=st.integers(1, 150),
    slices=st.integers(1, 9),
    memory_bytes_max=st.sampled_from([1, 4_000, 1 << 20]),
    transaction_bytes_max=st.sampled_from([150, 1 << 20]),
    together=st.integers(1, 4),
)
def test_each_live_entry_is_written_once(
    seed: int, slots_each: int, slices: int, memory_bytes_max: int, transaction_bytes_max: int, together: int
) -> None:
    cluster, live = filled(seed)
    logs = cluster.ranges(LOGS)
    senders = [
        RangeJob(
            parts=parts,
            slices=slices,
            receivers={number: number for number in range(slices)},
            memory_bytes_max=memory_bytes_max,
        )
        for parts in grouped(
            (part for source in LOGS for part in changelog_ranges(source, logs[source], None, slots_each)),
            slots_each * together,
        )
    ]
    receivers = [
        SliceJob(
            app="shop",
            generation=1,
            target_topic="new",
            layout="plain",
            routing=ROUTING,
            number=number,
            slices=slices,
            slots=1,
            transaction_bytes_max=transaction_bytes_max,
        )
        for number in range(slices)
    ]
    _, done = InProcess(cluster, 2).shuffle(send_state, senders, write_slice, receivers)
    expected = live[0] | live[1]
    found = {}
    for partition, log in cluster.ranges([TopicPartition("new", number) for number in range(3)]).items():
        for batch in read_range(cluster, partition, log):
            for record in batch.records():
                assert record.key not in found, "written once"
                assert RoutingTable.from_entry(ROUTING).partition_of(record.key) == record.partition
                found[record.key] = record.value, record.timestamp_ms
    assert found == expected
    assert sum(result.records_written_total for result in done) == len(expected)
    cluster.close()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), slots=st.integers(1, 150), keys_max=st.integers(1, 500))
def test_the_audit_in_slices_is_that_of_whole_partitions(seed: int, slots: int, keys_max: int) -> None:
    cluster, live = filled(seed)
    logs = cluster.ranges(LOGS)
    partitions = tuple((source, log, None) for source, log in logs.items())
    limits = RangeSettings(slots_min=slots, slots_max=slots, memory_bytes_max=5_000)
    found = audit_changelogs(
        InProcess(cluster),
        [AuditedChangelog(store="s", layout="plain", partitions=partitions)],
        ROUTING,
        keys_max,
        limits,
    )
    whole = [
        audit_partition(
            cluster, AuditJob(store="s", source=source, offsets=log, layout="plain", routing=ROUTING)
        )
        for source, log in logs.items()
    ]
    assert found == whole
    assert sum(tally.keys for result in found for tally in result.tallies) == len(live[0]) + len(live[1])
    cluster.close()


def test_a_log_without_its_beginning_is_refused() -> None:
    with pytest.raises(ChangelogTrimmed):
        changelog_ranges(LOGS[0], OffsetRange(5, 10), None, 3)


def test_small_sub_ranges_are_one_job() -> None:
    parts = [ChangelogRange(LOGS[0], OffsetRange(at, at + 10), None) for at in range(0, 100, 10)]
    jobs = grouped(parts, 35)
    assert [len(job) for job in jobs] == [3, 3, 3, 1]
    assert [part for job in jobs for part in job] == parts
    assert grouped(parts[:2], 5) == [(parts[0],), (parts[1],)], "a larger one is a job of its own"
    assert grouped([], 5) == []


def test_only_wanted_slices_are_sent_and_no_bookkeeping() -> None:
    keys = [b"%d" % number for number in range(100)]
    found = keys_by_slice([*keys, TOUCH_KEY, None], 4, {1, 3})
    assert found.keys() == {1, 3}
    assert sorted(found[1] + found[3]) == sorted(key for key in keys if slice_of(key, 4) in (1, 3))
    assert keys_by_slice([TOUCH_KEY], 1, {0}) == {}


def test_one_large_partition_is_work_for_every_core() -> None:
    """1 → 5 is read and written by as many as 4 → 6 is."""
    limits = ScaleSettings()
    slots, size_bytes = 2_000_000, 232_000_000
    for lanes in (2, 8):
        parts = changelog_ranges(
            LOGS[0], OffsetRange(0, slots), None, limits.ranges.slots_each(slots, size_bytes, lanes)
        )
        assert len(parts) >= 2 * lanes
        assert limits.slices(slots, size_bytes, lanes) >= lanes
    assert limits.slices(100, 10_000, 8) == 1, "little is one transaction"


def test_large_values_make_small_ranges_and_many_slices() -> None:
    limits = ScaleSettings()
    slots, size_bytes = 1_000_000, 10_000_000_000
    assert limits.ranges.slots_each(slots, size_bytes, 2) * (size_bytes // slots) <= limits.ranges.bytes_max
    assert size_bytes / limits.slices(slots, size_bytes, 2) <= limits.chunk_bytes_max


def test_files_of_a_shuffle_are_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        test_each_live_entry_is_written_once.hypothesis.inner_test(5, 20, 3, 1 << 20, 1 << 20, 2)  # type: ignore[attr-defined]
        assert not list(Path(folder).iterdir())
