"""The tuner against a real broker: sizes, versions, measuring, applying, undoing, settling, refusing."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.changelog.format import TOUCH_KEY
from stateflow.clock import SystemClock
from stateflow.compaction import (
    ClusterAdmin,
    Journal,
    MeasureOptions,
    Objective,
    RestoreRate,
    apply,
    changelog_bytes,
    measure,
    recommend_allowed,
    rollback,
    wait_for_size,
)
from stateflow.compaction.calibration.calibrate import VALUE_BYTES, calibration_cells
from stateflow.compaction.calibration.cell import run_cell
from stateflow.compaction.control.broker_settings import plan_brokers
from stateflow.compaction.control.change import change, refusals
from stateflow.compaction.sensing.broker_cpu import broker_cpu
from stateflow.compaction.sensing.measure import local_broker
from stateflow.compaction.sensing.restore_probe import probe_restore
from stateflow.errors import BrokerRefused, BrokerUnreachable, ConfigError, ObjectiveUnreachable, TopicMissing
from stateflow.log.base import TopicInfo, TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.record import TopicPartition
from stateflow.testing.broker import TestBroker
from tests.shared_broker import RunBroker

pytestmark = pytest.mark.broker
QUICK = MeasureOptions(
    seconds=0.5, updates_per_second=2000.0, restore=RestoreRate(100_000, 0.05, "given", 0.1)
)


@pytest.fixture
def admin(broker: TestBroker) -> Iterator[ClusterAdmin]:
    opened = ClusterAdmin(broker.bootstrap)
    yield opened
    opened.close()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal("test", tmp_path)


@pytest.fixture
def topic(cluster: KafkaCluster) -> Iterator[str]:
    name = f"tuned-{uuid.uuid4().hex[:8]}-changelog"
    config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    cluster.create([TopicSpec(name, 2, 1, config)])
    yield name
    cluster.delete([name])


def fill(
    cluster: KafkaCluster, topic: str, updates: int, keys: int, seed: int = 1
) -> dict[bytes, bytes | None]:
    """Write random values and some tombstones; returns the newest of each key."""
    source, newest = random.Random(seed), dict[bytes, bytes | None]()
    writer = cluster.writer()
    for _ in range(updates):
        number = source.randrange(keys)
        key = b"k%05d" % number
        value = None if source.random() < 0.1 else source.randbytes(200)
        newest[key] = value
        writer.send(topic, key, value, partition=number % 2)
    writer.commit()
    writer.close()
    return newest


def replay(cluster: KafkaCluster, topic: str) -> dict[bytes, bytes]:
    """The newest value of every key, as a restore sees it."""
    partitions = [TopicPartition(topic, number) for number in (0, 1)]
    targets = cluster.ranges(partitions)
    newest: dict[bytes, bytes | None] = {}
    reader = cluster.reader()
    reader.assign({partition: found.offset_first for partition, found in targets.items()})
    while any(reader.position(partition) < found.offset_next for partition, found in targets.items()):
        for batch in reader.read(10_000, 0.5):
            newest.update(zip(batch.keys, batch.values, strict=True))
    reader.close()
    return {key: value for key, value in newest.items() if value is not None}


def test_sizes_are_those_of_the_log_on_disk(
    broker: RunBroker, cluster: KafkaCluster, admin: ClusterAdmin, topic: str
) -> None:
    fill(cluster, topic, 2000, 100)
    if broker.log_dir is None:
        assert changelog_bytes(admin, topic) > 100_000
        return
    folders = [broker.log_dir / f"{topic}-{number}" for number in (0, 1)]
    on_disk = sum(path.stat().st_size for folder in folders for path in folder.glob("*.log"))
    assert changelog_bytes(admin, topic) == on_disk
    sizes = admin.replica_sizes([topic], beside=["deleted-meanwhile"])
    assert sum(replica.size_bytes for replica in sizes) == on_disk


def test_the_version_and_the_cleaner_are_read_back_from_the_broker(admin: ClusterAdmin) -> None:
    release, newer = admin.version()
    assert release >= (4, 0)
    assert isinstance(newer, bool)
    broker_id = next(iter(admin.broker_addresses()))
    assert admin.cleaner_settings(broker_id).threads >= 1


def test_a_missing_topic_is_typed(admin: ClusterAdmin) -> None:
    with pytest.raises(TopicMissing):
        changelog_bytes(admin, "no-such-topic")


@pytest.mark.parametrize(
    "ask",
    [
        ClusterAdmin.broker_addresses,
        lambda nowhere: nowhere.topic_config("orders"),
        lambda nowhere: nowhere.topic_configs(["orders"]),
        lambda nowhere: nowhere.cleaner_settings(1),
        lambda nowhere: nowhere.alter_topic("orders", {"segment.ms": "1000"}, validate_only=True),
    ],
)
def test_nobody_that_answers_is_no_refusal_and_has_its_reason(ask: Callable[[ClusterAdmin], object]) -> None:
    with (
        closing(ClusterAdmin("127.0.0.1:1", timeout_seconds=2.0)) as nowhere,
        pytest.raises(BrokerUnreachable, match="Connection refused"),
    ):
        ask(nowhere)


def test_measuring_counts_keys_tombstones_and_records_exactly(
    cluster: KafkaCluster, admin: ClusterAdmin, topic: str
) -> None:
    newest = fill(cluster, topic, 5000, 300)
    found = measure(cluster, topic, admin=admin, options=QUICK)
    assert found.records == 5000
    assert found.live_keys == sum(value is not None for value in newest.values())
    assert found.tombstones == sum(value is None for value in newest.values())
    assert found.distinct_relative_error == 0
    assert 150 < found.record_bytes < 260
    assert not found.transactional
    assert found.compacted


def test_measuring_sees_transactions(cluster: KafkaCluster, admin: ClusterAdmin, topic: str) -> None:
    writer = cluster.writer(f"tuner-{uuid.uuid4().hex}")
    writer.begin()
    for number in (0, 1):
        writer.send(topic, b"k", b"v", partition=number)
    writer.commit()
    writer.close()
    assert measure(cluster, topic, admin=admin, options=QUICK).transactional


def test_a_topic_is_changed_shrinks_and_is_changed_back(
    cluster: KafkaCluster, admin: ClusterAdmin, journal: Journal, topic: str
) -> None:
    newest = fill(cluster, topic, 40_000, 300)
    before = admin.topic_overrides(topic)
    found = measure(cluster, topic, admin=admin, options=QUICK)
    recommendation = recommend_allowed(admin, found, Objective(0.2))
    assert recommendation.reachable
    assert not recommendation.current.meets

    planned = apply(admin, recommendation, journal, dry_run=True)
    assert planned.changes == recommendation.changes
    assert admin.topic_overrides(topic) == before

    applied = apply(admin, recommendation, journal)
    assert admin.topic_overrides(topic) == {**before, **recommendation.changes}
    assert not applied.refused

    waited = wait_for_size(
        cluster,
        admin,
        topic,
        bytes_at_most=recommendation.best.size_max_stressed_bytes,
        deadline_seconds=30,
        touch_every_seconds=1.0,
    )
    fill(cluster, topic, 10, 5, seed=2)  # whatever is written meanwhile is kept, too
    assert waited.bytes_after < waited.bytes_before / 2, waited.why
    restored = replay(cluster, topic)
    written = {key: value for key, value in newest.items() if value is not None}
    unchanged = {key: value for key, value in written.items() if int(key[1:]) >= 5}
    assert {key: value for key, value in restored.items() if int(key[1:]) >= 5} == unchanged
    assert TOUCH_KEY not in restored

    rollback(admin, topic, journal)
    assert admin.topic_overrides(topic) == before
    with pytest.raises(ConfigError):
        rollback(admin, topic, journal)


def test_windows_that_closed_are_seen_in_the_log(
    cluster: KafkaCluster, admin: ClusterAdmin, topic: str
) -> None:
    admin.alter_topic(topic, {"message.timestamp.type": "CreateTime"})
    now_ms, keys_each = SystemClock().now_ms() - 600_000, 2000
    writer = cluster.writer()
    for minute in range(3):  # every key is written within the minute, and deleted at its end
        for number in range(keys_each):
            key = b"%d/%d" % (minute, number)
            at_ms = now_ms + 60_000 * minute + 25 * number
            writer.send(topic, key, b"v" * 300, partition=number % 2, timestamp_ms=at_ms)
        for number in range(keys_each if minute < 2 else 0):
            key = b"%d/%d" % (minute, number)
            writer.send(topic, key, None, partition=number % 2, timestamp_ms=now_ms + 60_000 * (minute + 1))
    writer.commit()
    writer.close()
    found = measure(cluster, topic, admin=admin, options=QUICK)
    assert (found.live_keys, found.tombstones) == (keys_each, 2 * keys_each)
    assert found.bursts is not None
    assert (found.bursts.records, found.bursts.interval_seconds) == (keys_each, 60.0)
    assert found.bursts.keys_max == pytest.approx(
        2000 + 2000 * (1 - 50 / 60), rel=0.02
    )  # bursts are told to the second
    assert found.record_bytes > 5 * found.bursts.tombstone_bytes
    assert found.records_floor >= 2 * keys_each


def test_what_was_set_is_in_force_when_the_call_returns(admin: ClusterAdmin, topic: str) -> None:
    """A broker says yes before it has applied a change; whoever reads on at once would read the old value."""
    broker_id = next(iter(admin.broker_addresses()))
    for number in range(10):
        admin.alter_topic(topic, {"segment.ms": str(1000 + number), "min.cleanable.dirty.ratio": "0.10"})
        assert admin.topic_overrides(topic)["segment.ms"] == str(1000 + number)
        admin.alter_topic(topic, {"segment.ms": None})
        assert "segment.ms" not in admin.topic_overrides(topic)
        admin.alter_broker(broker_id, {"log.cleaner.backoff.ms": str(500 + number)})
        assert admin.cleaner_settings(broker_id).backoff_ms == 500 + number
        admin.alter_broker(broker_id, {"log.cleaner.backoff.ms": None})
        assert "log.cleaner.backoff.ms" not in admin.broker_overrides(broker_id)


def test_a_ratio_of_zero_is_rolled_back_though_the_broker_writes_it_otherwise(
    admin: ClusterAdmin, journal: Journal, topic: str
) -> None:
    before = admin.topic_overrides(topic)
    change(admin, topic, {"min.cleanable.dirty.ratio": "0", "segment.ms": "5000"}, journal)
    assert admin.topic_overrides(topic)["min.cleanable.dirty.ratio"] != "0", "or this tests nothing"
    assert change(admin, topic, {"min.cleanable.dirty.ratio": "0"}, journal).changes == {}
    rollback(admin, topic, journal)
    assert admin.topic_overrides(topic) == before


def test_somebody_elses_change_is_not_rolled_back_silently(
    admin: ClusterAdmin, journal: Journal, topic: str
) -> None:
    change(admin, topic, {"segment.ms": "5000"}, journal)
    admin.alter_topic(topic, {"segment.ms": "7000"})
    with pytest.raises(ConfigError):
        rollback(admin, topic, journal)
    rollback(admin, topic, journal, force=True)
    assert "segment.ms" not in admin.topic_overrides(topic)


def test_what_the_broker_refuses_is_named_and_nothing_changes(
    admin: ClusterAdmin, journal: Journal, topic: str
) -> None:
    wanted = {"segment.ms": "1000", "segment.bytes": "10"}
    assert set(refusals(admin, topic, wanted)) == {"segment.bytes"}
    with pytest.raises(BrokerRefused) as caught:
        change(admin, topic, wanted, journal)
    assert "segment.bytes" in str(caught.value)
    assert "segment.ms" not in admin.topic_overrides(topic)
    assert journal.entries(topic) == []


def test_an_unreachable_objective_is_not_applied(
    cluster: KafkaCluster, admin: ClusterAdmin, journal: Journal, topic: str
) -> None:
    fill(cluster, topic, 5000, 5000)
    found = measure(cluster, topic, admin=admin, options=QUICK)
    recommendation = recommend_allowed(admin, replace(found, live_keys=10_000_000), Objective(1.0))
    with pytest.raises(ObjectiveUnreachable):
        apply(admin, recommendation, journal)


def test_an_idle_log_stays_until_it_is_touched(
    cluster: KafkaCluster, admin: ClusterAdmin, topic: str
) -> None:
    fill(cluster, topic, 20_000, 50)
    admin.alter_topic(topic, {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"})
    idle = wait_for_size(cluster, admin, topic, bytes_at_most=100_000, deadline_seconds=3)
    assert not idle.reached
    assert "closes no segment" in idle.why
    touched = wait_for_size(
        cluster, admin, topic, bytes_at_most=100_000, deadline_seconds=30, touch_every_seconds=1.0
    )
    assert touched.reached
    assert touched.touches >= 2


def test_a_probe_restores_what_was_written(cluster: KafkaCluster, topic: str) -> None:
    newest = fill(cluster, topic, 3000, 100)
    probe = probe_restore(cluster, topic)
    assert probe.records == 3000
    assert probe.live_keys == sum(value is not None for value in newest.values())


def test_a_run_measures_sizes_and_the_cleaners_cpu(
    broker: TestBroker, cluster: KafkaCluster, admin: ClusterAdmin
) -> None:
    cell = calibration_cells(2.0, VALUE_BYTES)[0]
    second = ClusterAdmin(broker.bootstrap)
    try:
        if local_broker(admin) is None:
            with pytest.raises(ConfigError):
                run_cell(cluster, admin, second, cell)
            return
        result = run_cell(cluster, admin, second, cell)
    finally:
        second.close()
    assert result.live_end == cell.stream.keys
    assert 0 < result.cleaner_cores < 1.5
    assert result.size_max_bytes >= result.size_mean_bytes > 0
    assert len(result.sizes) > 10


def test_topics_deleted_while_brokers_are_planned_for_count_for_nothing(
    cluster: KafkaCluster, admin: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, configs = admin.all_partition_counts(), admin.topic_configs
    describe = cluster.describe
    before, after, late = (f"{word}-{uuid.uuid4().hex}" for word in ("before", "after", "late"))
    asked: list[set[str]] = []
    monkeypatch.setattr(admin, "all_partition_counts", lambda: {**counts, before: 1, after: 1, late: 1})
    huge = {"cleanup.policy": "compact", "segment.bytes": str(1 << 40)}
    monkeypatch.setattr(admin, "topic_configs", lambda topics: {**configs(topics), after: huge, late: huge})

    def described(topics: Iterable[str]) -> dict[str, TopicInfo]:
        asked.append(set(topics))
        there = describe(topics)
        return {**there, late: TopicInfo(late, "", 1, 1)} if len(asked) == 1 else there

    monkeypatch.setattr(cluster, "describe", described)
    now = admin.cleaner_settings(next(iter(admin.broker_addresses())))
    assert plan_brokers(cluster, admin, now, now, []).largest_topic not in {before, after, late}
    assert [late in topics for topics in asked] == [True, True], (
        "its offsets were asked for, and then without it"
    )


def test_the_brokers_process_is_found_by_its_port(broker: RunBroker, admin: ClusterAdmin) -> None:
    if broker.pid is None:
        assert local_broker(admin) is None or broker.bootstrap.startswith("127.")
        return
    pid = local_broker(admin)
    assert pid == broker.pid
    assert broker_cpu(pid).total_seconds > 0
