"""Generated histories of a log, played on the log in memory and on real Kafka: nobody can tell them apart."""

from __future__ import annotations

import uuid

import pytest

from stateflow.clock import ManualClock
from stateflow.lab.faults.equivalence import STEPS, compare, log_history
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.log.memory import MemoryCluster
from stateflow.testing.broker import TestBroker

KAFKA_SEEDS = range(8)


def memory() -> MemoryCluster:
    return MemoryCluster(ManualClock(1_700_000_000_000))


def test_histories_have_everything_in_them() -> None:
    verbs = {step.verb for seed in KAFKA_SEEDS for step in log_history(seed)}
    assert {"commit", "abort", "open_more", "end", "fence", "trim", "offsets", "read", "recreate"} <= verbs
    assert all(len(log_history(seed)) == STEPS + 1 for seed in KAFKA_SEEDS)
    assert log_history(3) == log_history(3)


@pytest.mark.parametrize("seed", range(60))
def test_two_logs_in_memory_agree(seed: int) -> None:
    assert compare(seed, memory(), memory(), "twice") is None


@pytest.mark.parametrize("seed", range(60))
def test_delays_change_nothing_that_was_acknowledged(seed: int) -> None:
    delayed = MemoryCluster(ManualClock(1_700_000_000_000), delays_seed=seed)
    assert compare(seed, memory(), delayed, "delayed", settle_seconds=0) is None


def test_a_difference_is_told() -> None:
    class Forgetful(MemoryCluster):
        """Drops nothing when it is trimmed."""

        def trim(self, offsets: object) -> None:
            """Does nothing."""

    differences = [
        compare(seed, memory(), Forgetful(ManualClock(0)), "differs", settle_seconds=0) for seed in range(20)
    ]
    assert any(found is not None and "stable" in found.what for found in differences)


@pytest.mark.broker
@pytest.mark.parametrize("seed", KAFKA_SEEDS)
def test_memory_and_kafka_agree(seed: int, broker: TestBroker) -> None:
    real = KafkaCluster(broker.bootstrap, options=KafkaOptions(request_timeout_seconds=10.0))
    try:
        assert compare(seed, memory(), real, f"history-{seed}-{uuid.uuid4().hex[:8]}") is None
    finally:
        real.close()
