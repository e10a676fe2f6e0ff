"""Deletions that come many at a time: found in a log, and what they do to a recommendation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.model.workload import Bursts, RestoreRate
from stateflow.compaction.sensing.bursts import LogSpan, find_bursts
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000
WINDOWS = [at for minute in range(5) for at in [minute * MINUTE_MS] * 3000]
"""A window of 3,000 keys closes every minute."""


def test_windows_that_close_are_bursts() -> None:
    span = LogSpan(0, 4 * MINUTE_MS + 15_000, retention_ms=86_400_000, live_keys=750)
    found = find_bursts(WINDOWS, span, tombstone_bytes=30)
    assert found == Bursts(3000, 60.0, 3000.0, 30)


def test_what_the_retention_may_have_dropped_does_not_count() -> None:
    span = LogSpan(0, 4 * MINUTE_MS + 15_000, retention_ms=150_000, live_keys=750)
    found = find_bursts(WINDOWS, span, tombstone_bytes=30, scale=2.0)
    assert found is not None
    assert (found.records, found.interval_seconds) == (6000, 60)


def test_keys_deleted_one_by_one_are_no_bursts() -> None:
    span = LogSpan(0, 300_000, retention_ms=86_400_000, live_keys=50_000)
    assert find_bursts(range(0, 300_000, 20), span, tombstone_bytes=30) is None


def test_few_deletions_among_many_keys_are_no_bursts() -> None:
    span = LogSpan(0, 300_000, retention_ms=86_400_000, live_keys=1_000_000)
    assert find_bursts(WINDOWS, span, tombstone_bytes=30) is None


def test_a_single_burst_is_not_taken_for_a_habit() -> None:
    span = LogSpan(0, 10_000, retention_ms=3_600_000, live_keys=0)
    found = find_bursts([9000] * 5000, span, tombstone_bytes=30)
    assert found is not None
    assert found.interval_seconds == 3600


RETAIN_ALL = replace(
    Measurement.known(
        "windows",
        live_keys=10_000,
        updates_per_second=8000.0,
        record_bytes=580.0,
        restore=RestoreRate(100_000),
        cleaner=CleanerSettings(backoff_ms=100),
        policy=Policy(delete_retention_ms=86_400_000),
        bursts=Bursts(40_000, 10.0, 40_000, 30.0),
    ),
    records=80_000,
    tombstones=40_000,
)


def test_a_burst_and_the_keys_that_it_deletes_are_in_the_log_together() -> None:
    assert RETAIN_ALL.records_floor == 80_000
    workload = RETAIN_ALL.workload()
    assert (workload.live_records, workload.updates_per_second) == (40_000, 4000)
    assert recommend(RETAIN_ALL, 0.7).reachable is False


def test_more_tombstones_than_updates_are_of_a_log_that_was_idle_for_long() -> None:
    """The mean of its history may be less than its bursts: whatever they delete was written all the same."""
    idle = replace(RETAIN_ALL, updates_per_second=100.0)
    assert idle.workload().updates_per_second == 4000
    assert recommend(idle, 3.0).current.size_max_bytes < 1e15


def test_tombstones_of_a_day_are_the_reason_when_they_are() -> None:
    found = recommend(RETAIN_ALL, 3.0)
    assert not found.reachable
    advice = {alternative.name: alternative for alternative in found.alternatives}["fewer tombstones"]
    assert advice.meets
    assert "--slowest-replay 6s" in advice.action


def test_a_named_slowest_reader_lets_tombstones_go_earlier_and_no_earlier() -> None:
    found = recommend(RETAIN_ALL, objective=Objective(3.0, replay_seconds_max=6.0))
    assert found.reachable
    assert found.best.policy.delete_retention_ms == 6000


def test_without_bursts_a_named_slowest_reader_changes_no_retention_that_is_long_enough() -> None:
    smooth = replace(RETAIN_ALL, bursts=None)
    found = recommend(smooth, objective=Objective(3.0, replay_seconds_max=6.0))
    assert found.best.policy.delete_retention_ms == 86_400_000
