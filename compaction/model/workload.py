"""What a changelog has to carry: how many keys, how fast they change, how large records are, how fast they restore."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stateflow.compaction.settings.legal import require_number

BATCH_OVERHEAD_BYTES = 61
"""Header of a record batch; a batch keeps it as long as one of its records lives."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """Keys that are deleted many at a time, as when a window closes; totals over the partitions."""

    records: float
    """Tombstones that one burst brings."""
    interval_seconds: float
    keys_max: float
    """Live keys just before a burst."""
    tombstone_bytes: float
    """Bytes on disk per tombstone."""

    @property
    def per_second(self) -> float:
        """Tombstones per second, on average."""
        return self.records / self.interval_seconds

    def scaled(self, factor: float) -> Bursts:
        """As many bursts, so many times as large, of so many times as many keys."""
        return replace(self, records=self.records * factor, keys_max=self.keys_max * factor)


@dataclass(frozen=True, slots=True)
class Workload:
    """One topic's load, as totals over its partitions, which are taken to be equally loaded."""

    partitions: int
    live_records: float
    """Records that a finished compaction keeps at most: newest per key, tombstones not yet expired included. Those of
    bursts apart.
    """
    updates_per_second: float
    """Records appended, tombstones of bursts apart."""
    record_bytes: float
    """Bytes on disk per record as appended: compressed, its share of the batch header included."""
    live_record_bytes: float
    """Bytes on disk per record that survived compaction; more than ``record_bytes`` where batches thin out."""
    live_record_bytes_high: float | None = None
    """The most that ``live_record_bytes`` may be, where it is not known well."""
    append_interval_seconds: float = 0.02
    """Mean time between appends to one partition: rolling happens only then."""
    bursts: Bursts | None = None

    def scaled(self, rate: float = 1.0, live: float = 1.0) -> Workload:
        """The same load with another update rate and number of keys; what a window holds grows with either."""
        if self.bursts is not None:
            live = max(rate, live)
        return replace(
            self,
            updates_per_second=self.updates_per_second * rate,
            live_records=self.live_records * live,
            bursts=None if self.bursts is None else self.bursts.scaled(live),
        )

    def stressed(self, rate: float, live: float) -> Workload:
        """A higher load, with survivors as large as they may be: what a bound must hold under."""
        high = self.live_record_bytes_high or self.live_record_bytes
        return replace(self.scaled(rate, live), live_record_bytes=max(high, self.live_record_bytes))


UNLIMITED = 1e300
"""Of a rate per second: finite, because JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class RestoreRate:
    """How long one restorer takes to read a log back: ``fixed_seconds`` + records / r + bytes / b.

    ``record_bytes`` is what a record of the log at hand takes, keys and values uncompressed, so that a number of
    records tells the bytes, too. Where r and b come from restores of one log alone, they tell their sum; how it is
    divided is then assumed, and matters only when records change their size.
    """

    records_per_second: float
    """r: what a record costs however small it is."""
    fixed_seconds: float = 0.0
    source: str = "given"
    relative_error: float = 0.2
    bytes_per_second: float = UNLIMITED
    """b."""
    record_bytes: float = 0.0
    cpu_seconds_per_record: float | None = None
    """CPU time of the restoring process per record of this log; None when it was not measured."""

    def __post_init__(self) -> None:
        require_number("records_per_second of a restore", self.records_per_second, is_above=True)
        require_number("bytes_per_second of a restore", self.bytes_per_second, is_above=True)
        require_number("fixed_seconds of a restore", self.fixed_seconds)
        require_number("relative_error of a restore", self.relative_error)
        require_number("record_bytes of a restore", self.record_bytes)

    @property
    def seconds_per_record(self) -> float:
        """For records of this log, their bytes included."""
        return 1 / self.records_per_second + self.record_bytes / self.bytes_per_second

    def seconds(self, records: float) -> float:
        """Time for one restorer to restore a log of so many records."""
        return self.fixed_seconds + records * self.seconds_per_record

    def records_within(self, seconds: float) -> float:
        """How many records one restorer can restore in a time; 0 when the fixed part alone takes longer."""
        return max(0.0, (seconds - self.fixed_seconds) / self.seconds_per_record)

    def told(self, records: float) -> str:
        """How the time for so many records comes about: a sum that adds up."""
        parts = [f"{self.fixed_seconds:.2f} s to start"] if self.fixed_seconds else []
        parts.append(f"{records / self.records_per_second:.2f} s for {records:,.0f} records")
        log_bytes = records * self.record_bytes
        if self.bytes_per_second < UNLIMITED and log_bytes:
            parts.append(f"{log_bytes / self.bytes_per_second:.2f} s for {log_bytes / 1e6:,.1f} MB")
        return " + ".join(parts)


def zipf_weights(keys: int, exponent: float) -> list[float]:
    """Probability of each key, most frequent first, proportional to 1 / rank ** exponent."""
    weights = [1.0 / (rank + 1) ** exponent for rank in range(keys)]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
