"""The result of measuring a compacted topic: what a recommendation is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from stateflow.compaction.cluster.which_topics import TopicRole
from stateflow.compaction.model.workload import Bursts, RestoreRate, Workload
from stateflow.compaction.sensing.cleaner_metrics import CleanerEstimate
from stateflow.compaction.settings.cleanup import Cleanup
from stateflow.compaction.settings.legal import require_number
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SizeSample:
    """Bytes of a topic's log at one moment, all partitions together, leaders only."""

    seconds: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One look at one compacted topic on its broker, taken without changing anything."""

    topic: str
    partitions: int
    replication: int
    broker_version: tuple[int, int]
    broker_newer_than_known: bool
    policy: Policy
    cleaner: CleanerSettings
    size_bytes: int
    """Log bytes now, one replica of every partition."""
    disk_bytes: int
    """Log bytes now, all replicas on all brokers."""
    records: int
    """Records in the log now, superseded ones included."""
    live_keys: int
    tombstones: int
    """Keys whose newest record is a tombstone that the log still carries."""
    distinct_relative_error: float
    """Of the two counts above; 0 when every key was seen."""
    record_bytes: float
    """Bytes on disk per record as appended, its share of a compressed batch."""
    updates_per_second: float
    rate_source: str
    """Where the update rate comes from: observed, the log's history, or given."""
    transactional: bool
    """True when the log carries transaction markers."""
    restore: RestoreRate
    live_record_bytes: float | None = None
    """Bytes on disk per record that survived compaction; as appended when not known."""
    live_record_bytes_high: float | None = None
    """The most that it may be."""
    cleaner_cores: float | None = None
    """CPU of the cleaner threads while watching, all topics together; None when the broker is not on this machine."""
    cleaner_estimate: CleanerEstimate | None = None
    """The same from the brokers' exporters, where they were asked: an interval."""
    sizes: tuple[SizeSample, ...] = ()
    unknown: tuple[str, ...] = ()
    """What could not be sensed, in sentences, with what it does to the result."""
    overrides: dict[str, str] = field(default_factory=dict)
    """The topic's own settings, without those inherited from the broker."""
    measured_ms: int = 0
    """When, in Unix time; 0 when not known."""
    compacted: bool = True
    """False when ``cleanup.policy`` does not name compact: then no policy of ours has any effect."""
    bursts: Bursts | None = None
    """Deletions that come many at a time; None when keys are deleted one by one, or not at all."""
    cleanup: Cleanup = field(default_factory=Cleanup)
    """What removes records of the topic, retention included."""
    cleaners_known: bool = True
    """False when the brokers' settings may not be read: ``cleaner`` is then Kafka's defaults."""
    cleaners_alike: bool = True
    """False when the brokers that lead the partitions have different cleaner settings; ``cleaner`` is one of them."""
    writes_seen: bool = True
    """False when nothing was written while the topic was watched: no setting acts on a log until somebody writes."""
    restore_timed_busy: str = ""
    """What to say of the restore rate where the machine was busy while restores were timed; else empty."""
    role: TopicRole = field(default_factory=TopicRole)
    """What the topic is to an application of ours."""

    ours: bool = False
    """True when the log carries commit records of this library: only then can its restorers use images."""

    def __post_init__(self) -> None:
        require_number(f"partitions of {self.topic}", self.partitions, low=1)
        require_number(f"size_bytes of {self.topic}", self.size_bytes)
        require_number(f"records of {self.topic}", self.records)
        require_number(f"record_bytes of {self.topic}", self.record_bytes, is_above=True)
        require_number(f"updates_per_second of {self.topic}", self.updates_per_second)

    @classmethod
    def known(
        cls,
        topic: str,
        *,
        live_keys: int,
        updates_per_second: float,
        record_bytes: float,
        restore: RestoreRate,
        cleaner: CleanerSettings,
        policy: Policy | None = None,
        partitions: int = 1,
        bursts: Bursts | None = None,
        ours: bool = False,
    ) -> Measurement:
        """What measuring a Kafka 4.3 topic of this load would find just after a pass: for loads that are known."""
        return cls(
            topic=topic,
            partitions=partitions,
            replication=1,
            broker_version=(4, 3),
            broker_newer_than_known=False,
            policy=policy or Policy(),
            cleaner=cleaner,
            size_bytes=round(live_keys * record_bytes),
            disk_bytes=round(live_keys * record_bytes),
            records=live_keys,
            live_keys=live_keys,
            tombstones=0,
            distinct_relative_error=0.0,
            record_bytes=record_bytes,
            updates_per_second=updates_per_second,
            rate_source="known",
            transactional=False,
            restore=restore,
            bursts=bursts,
            ours=ours,
        )

    @property
    def live_records(self) -> int:
        """Records that a finished compaction would keep today."""
        return self.live_keys + self.tombstones

    @property
    def records_floor(self) -> float:
        """Records that the log has to hold at its fullest, whatever the cleaner does: with the tombstones of a burst,
        the keys that it deletes are there until the next pass.
        """
        return self._keys_max + (self.bursts.records if self.bursts is not None else 0.0)

    @property
    def _keys_max(self) -> float:
        """Keys just before a burst; without bursts, all that is live."""
        if self.bursts is None:
            return float(self.live_records)
        return max(self.bursts.keys_max, self.live_keys)

    @property
    def dirty_share(self) -> float:
        """Share of the records in the log that newer ones have superseded."""
        return 1 - self.live_records / self.records if self.records else 0.0

    def workload(self) -> Workload:
        """The load that the model takes."""
        updates = self.updates_per_second
        if self.bursts is not None:
            # At least as many as the bursts delete, for those keys were written. The mean of a log that was idle for
            # hours may be less; and with next to no updates the time between two passes would have no end.
            updates = max(updates - self.bursts.per_second, self.bursts.per_second)
        return Workload(
            partitions=self.partitions,
            live_records=max(1.0, self._keys_max),
            updates_per_second=updates,
            record_bytes=self.record_bytes,
            live_record_bytes=self.live_record_bytes or self.record_bytes,
            live_record_bytes_high=self.live_record_bytes_high,
            bursts=self.bursts,
        )

    def to_data(self) -> dict[str, Any]:
        """As plain data for JSON."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @classmethod
    def from_data(cls, data: Any) -> Measurement:
        """Back from plain data; raises ``ConfigError`` when it is not a measurement."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"This is not a measurement: {error}.",
                action="Write it with `stateflow compaction measure --json`.",
            ) from error
