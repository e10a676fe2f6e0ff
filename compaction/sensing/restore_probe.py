"""A timed restore of a topic: the very code that restores a task, into a store that is thrown away."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stateflow.checkpoint.changelog_policy import ChangelogPolicy
from stateflow.checkpoint.planner import plan_task
from stateflow.checkpoint.restore import Restoration
from stateflow.clock import Clock, SystemClock
from stateflow.compaction.model.workload import RestoreRate
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.store.directory import Identity, TaskDirectory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_STORE = "probe"
_TERMS = ChangelogPolicy(accept_cut=True)
"""What is read is thrown away: a log that was trimmed is timed as it is."""
_SPREAD_MIN = 0.1
"""Logs that differ less than this in size tell a rate, but not what part of the time is fixed."""


@dataclass(frozen=True, slots=True)
class RestoreProbe:
    """What one restore took, from opening the store to its last flush, all partitions one after another."""

    seconds: float
    records: int
    live_keys: int


def probe_restore(
    cluster: Cluster, topic: str, *, clock: Clock | None = None, folder: Path | None = None
) -> RestoreProbe:
    """Restore all partitions of a topic by one restorer into temporary stores, and time it.

    Needs as much free disk as the live state, under ``folder`` or the system's temporary folder.
    """
    clock = clock or SystemClock()
    info = cluster.describe([topic])[topic]
    resources = RocksResources()
    seconds, records, live = 0.0, 0, 0
    with tempfile.TemporaryDirectory(dir=folder, prefix="stateflow-probe-") as scratch:
        for number in range(info.partitions):
            task = f"probe-{number}"
            identity = Identity("stateflow-probe", cluster.cluster_id, 0, task)
            directory = TaskDirectory(Path(scratch) / task, identity)
            started = clock.monotonic_seconds()
            stores = RocksTaskStores.open(directory, [_STORE], resources, clock)
            try:
                changelogs = {_STORE: TopicPartition(topic, number)}
                plan = plan_task(
                    cluster, task, changelogs, {topic: info.topic_id}, stores, clock, log_policy=_TERMS
                )
                restoration = Restoration(cluster, plan, stores, clock)
                try:
                    records += restoration.run().records_total
                finally:
                    restoration.close()
                seconds += clock.monotonic_seconds() - started
                live += sum(1 for _ in stores.reader(_STORE).scan())
            finally:
                stores.close()
    return RestoreProbe(seconds, records, live)


def fit_rate(probes: Sequence[RestoreProbe], source: str = "real restores") -> RestoreRate:
    """Fixed time and rate of several restores, by least squares; the mean rate when their sizes hardly differ."""
    assert probes
    count = len(probes)
    mean_records = sum(probe.records for probe in probes) / count
    mean_seconds = sum(probe.seconds for probe in probes) / count
    spread = sum((probe.records - mean_records) ** 2 for probe in probes)
    slope = 0.0
    if spread > (_SPREAD_MIN * mean_records) ** 2 * count:
        slope = sum((p.records - mean_records) * (p.seconds - mean_seconds) for p in probes) / spread
    fixed = mean_seconds - slope * mean_records
    if slope <= 0 or fixed < 0:
        slope, fixed = mean_seconds / max(1.0, mean_records), 0.0
    errors = [abs(fixed + slope * p.records - p.seconds) / max(p.seconds, 1e-9) for p in probes]
    return RestoreRate(1 / slope, fixed, source, max(0.05, sum(errors) / count))
