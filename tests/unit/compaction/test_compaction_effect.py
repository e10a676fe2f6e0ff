"""What the tuner says of topics that no setting, or not a setting alone, can help."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from stateflow.clock import ManualClock
from stateflow.compaction.cluster.which_topics import TopicRole
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.effect import cautions, require_effect
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.sensing.restore_probe import RestoreProbe, busy_warning
from stateflow.compaction.sensing.scan import ScanOptions, scan
from stateflow.compaction.settings.cleanup import Cleanup
from stateflow.compaction.settings.topic_settings import CleanerSettings
from stateflow.compaction.settings.units import duration
from stateflow.errors import ConfigError
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition

BUSY = Measurement.known(
    "t",
    live_keys=1000,
    updates_per_second=500,
    record_bytes=200,
    restore=RestoreRate(100_000),
    cleaner=CleanerSettings(),
)


def test_a_busy_compacted_topic_has_nothing_against_it() -> None:
    require_effect(BUSY)
    assert cautions(BUSY) == ()


@pytest.mark.parametrize(
    ("found", "said", "advised"),
    [
        (
            replace(BUSY, compacted=False, cleanup=Cleanup("delete", 604_800_000)),
            "cleanup.policy=delete",
            "cleanup.policy=compact",
        ),
        (replace(BUSY, cleaner=CleanerSettings(enabled=False)), "log.cleaner.enable=false", "restart"),
        (replace(BUSY, role=TopicRole("retired", "shop")), "retired generation of shop", "--app shop"),
        (replace(BUSY, role=TopicRole("filling", "shop")), "repartition of shop is filling", "scale status"),
    ],
)
def test_what_no_setting_can_help_is_refused(found: Measurement, said: str, advised: str) -> None:
    with pytest.raises(ConfigError) as caught:
        require_effect(found)
    assert said in caught.value.message
    assert advised in caught.value.action


def test_an_idle_topic_is_said_to_stay_as_it_is() -> None:
    idle = replace(BUSY, writes_seen=False, records=500_000)
    (foreign,) = cautions(idle)
    assert "500,000 records and 5 s to read" in foreign
    assert "touch" not in foreign
    assert "--until-cleaned" not in foreign, "a record of ours would be state to another system's restore"
    (own,) = cautions(replace(idle, role=TopicRole("changelog", "shop")))
    assert "--until-cleaned" in own


@pytest.mark.parametrize(
    ("cleanup", "said"),
    [
        (Cleanup("compact,delete", 604_800_000), "older than 7 d, the newest"),
        (Cleanup("compact,delete", -1, 1_000_000), "beyond 977 KiB of a partition"),
        (Cleanup("delete,compact", 60_000, 5), "older than 60 s or beyond 5 B"),
    ],
)
def test_retention_beside_compaction_is_said_to_delete_live_records(cleanup: Cleanup, said: str) -> None:
    (told,) = cautions(replace(BUSY, cleanup=cleanup))
    assert said in told
    assert "does not bring back" in told


@pytest.mark.parametrize("cleanup", [Cleanup("compact", 604_800_000), Cleanup("compact,delete")])
def test_retention_that_is_unlimited_or_not_in_force_deletes_nothing(cleanup: Cleanup) -> None:
    assert cautions(replace(BUSY, cleanup=cleanup)) == ()


def test_cleaner_settings_that_are_assumed_or_differ_are_told() -> None:
    assert "may not be read" in cautions(replace(BUSY, cleaners_known=False))[0]
    assert "different" in cautions(replace(BUSY, cleaners_alike=False))[0]


def test_a_restore_that_was_timed_on_a_busy_machine_is_told_with_every_recommendation() -> None:
    warning = busy_warning(RestoreProbe(4.0, 1000, 10, cpu_seconds=1.0, waited_seconds=2.0))
    assert warning is not None
    assert cautions(replace(BUSY, restore_timed_busy=warning)) == (warning,)


def test_settings_are_read_as_kafka_answers_them() -> None:
    config = {"cleanup.policy": "compact, delete", "retention.ms": "5", "remote.storage.enable": "true"}
    found = Cleanup.from_config(config)
    assert (found.compacts, found.deletes, found.tiered) == (True, True, True)
    assert not Cleanup.from_config({}).compacts, "Kafka's default is delete"
    assert CleanerSettings.from_config({}).enabled
    assert not CleanerSettings.from_config({"log.cleaner.enable": "false"}).enabled


def test_a_measurement_kept_by_an_earlier_version_can_still_be_read() -> None:
    data = BUSY.to_data()
    for name in ("cleanup", "cleaners_known", "cleaners_alike", "writes_seen", "role", "restore_timed_busy"):
        data.pop(name)
    data["cleaner"].pop("enabled")
    assert Measurement.from_data(data) == BUSY


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.25, "250 ms"),
        (14, "14 s"),
        (90, "90 s"),
        (150, "2.5 min"),
        (7200, "2 h"),
        (604_800, "7 d"),
        (2e9, "63.4 years"),
    ],
)
def test_durations_are_for_people(seconds: float, said: str) -> None:
    assert duration(seconds) == said


# --- the update rate of a log that a repartition filled ---------------------------------------------------------


def written(cluster: MemoryCluster, clock: ManualClock, count: int, seconds_between: float) -> None:
    with closing(cluster.writer()) as writer:
        for number in range(count):
            writer.send("t", b"k%d" % (number % 50), b"v", partition=0)
            writer.commit()
            clock.advance(seconds=seconds_between)


def test_what_a_repartition_copied_is_not_the_update_rate() -> None:
    clock = ManualClock(1_000_000)
    cluster, ranges = MemoryCluster(clock=clock), [TopicPartition("t", 0)]
    cluster.create([TopicSpec("t", 1, 1, {"message.timestamp.type": "LogAppendTime"})])
    written(cluster, clock, 2000, 0.001)
    activated_ms = clock.now_ms()
    copied = scan(cluster, cluster.ranges(ranges), ScanOptions(history_since_ms=activated_ms), clock)
    assert copied.updates_per_second is None, "nothing was written since"
    written(cluster, clock, 101, 2.0)
    options = ScanOptions(history_since_ms=activated_ms)
    found = scan(cluster, cluster.ranges(ranges), options, clock)
    assert found.updates_per_second == pytest.approx(0.5, rel=0.02)
    assert found.records == 2101, "copied records are in the log all the same"
    naive = scan(cluster, cluster.ranges(ranges), ScanOptions(), clock).updates_per_second
    assert naive is not None
    assert naive > 5
