"""A timed restore of a topic: read to a target fixed before, keep the newest record of every key."""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.changelog.format import is_reserved
from stateflow.clock import Clock, SystemClock
from stateflow.compaction.workload import RestoreRate
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

READ_BATCH_RECORDS = 10_000
_QUIET_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class RestoreProbe:
    """What one restore took, from opening the connection to the last key."""

    seconds: float
    records: int
    live_keys: int


def probe_restore(cluster: Cluster, topic: str, *, clock: Clock | None = None) -> RestoreProbe:
    """Restore all partitions into memory with one reader, and time it."""
    clock = clock or SystemClock()
    count = cluster.describe([topic])[topic].partitions
    targets = {
        partition: found
        for partition, found in cluster.ranges(TopicPartition(topic, n) for n in range(count)).items()
        if not found.is_empty
    }
    started = heard = clock.monotonic_seconds()
    newest: dict[bytes, bytes | None] = {}
    records = 0
    reader = cluster.reader()
    try:
        reader.assign({partition: found.offset_first for partition, found in targets.items()})
        while any(reader.position(partition) < found.offset_next for partition, found in targets.items()):
            batches = reader.read(READ_BATCH_RECORDS, 0.2)
            for batch in batches:
                newest.update(zip(batch.keys, batch.values, strict=True))
                records += len(batch)
            now = clock.monotonic_seconds()
            heard = now if batches else heard
            if now - heard > _QUIET_SECONDS_MAX:
                raise BrokerUnreachable(
                    f"{topic} sent nothing for {_QUIET_SECONDS_MAX:g} s.",
                    action="Check that all its partitions have leaders, then try again.",
                )
        live = sorted(key for key, value in newest.items() if value is not None and not is_reserved(key))
        return RestoreProbe(clock.monotonic_seconds() - started, records, len(live))
    finally:
        reader.close()


def fit_rate(probes: list[RestoreProbe], source: str = "real restores") -> RestoreRate:
    """Fixed time and rate of several restores, by least squares; the mean rate when their sizes hardly
    differ.
    """
    assert probes
    count = len(probes)
    mean_records = sum(probe.records for probe in probes) / count
    mean_seconds = sum(probe.seconds for probe in probes) / count
    spread = sum((probe.records - mean_records) ** 2 for probe in probes)
    slope = 0.0
    if spread > (0.1 * mean_records) ** 2 * count:
        slope = sum((p.records - mean_records) * (p.seconds - mean_seconds) for p in probes) / spread
    fixed = mean_seconds - slope * mean_records
    if slope <= 0 or fixed < 0:
        slope, fixed = mean_seconds / max(1.0, mean_records), 0.0
    errors = [abs(fixed + slope * p.records - p.seconds) / max(p.seconds, 1e-9) for p in probes]
    return RestoreRate(1 / slope, fixed, source, max(0.05, sum(errors) / count))
