"""How long a restore takes: fixed + records / r + bytes / b, learnt from restores of different size."""

from __future__ import annotations

import re

import pytest

from stateflow.clock import ManualClock, SystemClock
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.advice.recommend import recommend
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measure import DEFAULT_RESTORE_RATE, share_on_trial
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.sensing.own_cpu import own_cpu
from stateflow.compaction.sensing.restore_probe import (
    RestoreProbe,
    busy_warning,
    fit_rate,
    learn_rate,
    probe_restore,
)
from stateflow.compaction.settings.topic_settings import CleanerSettings
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster

RATE = RestoreRate(100_000, 0.2, bytes_per_second=50e6, record_bytes=1000)
VALUE = bytes(900_000)


def one_key(values: int) -> MemoryCluster:
    """A log of one key that was written so often, 900 kB each time."""
    cluster = MemoryCluster(ManualClock())
    cluster.create([TopicSpec("t", 1, 1, {"cleanup.policy": "compact"})])
    writer = cluster.writer()
    for _ in range(values):
        writer.send("t", b"key", VALUE, partition=0)
    writer.commit()
    writer.close()
    return cluster


def test_the_time_is_a_sum_of_three_parts_and_its_inverse_tells_the_records() -> None:
    assert RATE.seconds(10_000) == pytest.approx(0.2 + 0.1 + 0.2)
    assert RATE.records_within(RATE.seconds(10_000)) == pytest.approx(10_000)
    assert RATE.records_within(0.1) == 0


def test_what_is_printed_adds_up() -> None:
    found = [float(text) for text in re.findall(r"([\d.]+) s ", RATE.told(10_000) + " ")]
    assert sum(found) == pytest.approx(RATE.seconds(10_000), abs=0.01)
    assert len(found) == 3


def test_the_budget_of_a_recommendation_is_the_sum_that_it_prints() -> None:
    known = Measurement.known(
        "t",
        live_keys=1000,
        updates_per_second=100,
        record_bytes=1000,
        restore=RATE,
        cleaner=CleanerSettings(),
    )
    told = recommend(known, objective=Objective(2.0, margin=0.1)).reasons[0]
    assert "reads 60,000 records: 0.20 s to start + 0.60 s for 60,000 records + 1.20 s for 60.0 MB" in told
    assert "54,000" in told


def test_no_more_is_restored_on_trial_than_was_allowed_whatever_the_log() -> None:
    assert share_on_trial(0, 250_000) == share_on_trial(250_000, 250_000) == 1.0
    assert share_on_trial(100e6, 250_000) * 100e6 == pytest.approx(250_000)


def test_few_large_records_take_as_long_as_their_bytes() -> None:
    """One key of 300 × 900 kB was predicted at 0.11 s, and took seconds."""
    cluster = one_key(300)
    rate, _ = learn_rate(cluster, "t", clock=SystemClock())
    assert rate.record_bytes == pytest.approx(900_003)
    whole = probe_restore(cluster, "t", clock=SystemClock())
    assert (whole.records, whole.live_keys, whole.plain_bytes) == (300, 1, 300 * 900_003)
    assert rate.seconds(300) > 0.1 * whole.seconds  # other work on the machine may slow either
    bytes_alone = 300 * rate.record_bytes / rate.bytes_per_second
    assert bytes_alone > 0.99 * (rate.seconds(300) - rate.fixed_seconds)


def test_a_part_of_a_log_is_its_beginning() -> None:
    assert probe_restore(one_key(40), "t", clock=SystemClock(), share=0.25).records == 10


def test_an_assumed_rate_knows_bytes() -> None:
    assert DEFAULT_RESTORE_RATE.bytes_per_second < 1e9


def test_bytes_and_records_are_told_apart_by_what_they_usually_take() -> None:
    def probe(records: int, plain_bytes: int) -> RestoreProbe:
        return RestoreProbe(0.3 + 5e-6 * records + 8e-9 * plain_bytes, records, 0, plain_bytes)

    rate = fit_rate([probe(10_000, 1_000_000), probe(40_000, 4_000_000)])
    assert rate.fixed_seconds == pytest.approx(0.3)
    assert rate.records_per_second == pytest.approx(200_000)
    assert rate.bytes_per_second == pytest.approx(125e6)
    assert rate.seconds(100_000) == pytest.approx(0.3 + 0.5 + 0.08)


def test_cpu_time_stands_beside_wall_time() -> None:
    rate = fit_rate(
        [RestoreProbe(1.0, 1000, 0, 0, cpu_seconds=0.2), RestoreProbe(3.0, 3000, 0, 0, cpu_seconds=0.6)]
    )
    assert rate.cpu_seconds_per_record == pytest.approx(0.0002)


def test_a_busy_machine_is_named() -> None:
    calm = RestoreProbe(2.0, 1000, 10, 0, cpu_seconds=1.5, waited_seconds=0.1)
    assert busy_warning(calm) is None
    busy = busy_warning(RestoreProbe(5.0, 1000, 10, 0, cpu_seconds=1.5, waited_seconds=3.0))
    assert busy is not None
    assert "waited 3.0 s for a core" in busy
    assert "about 2.0 s" in busy


def test_this_process_has_used_a_core() -> None:
    before = own_cpu()
    assert sum(range(1_000_000)) > 0
    spent = own_cpu() - before
    assert spent.used_seconds > 0
    assert spent.waited_seconds >= 0
