"""Measuring a compacted topic on a live broker, changing nothing: size, keys, update rate, restore rate,
cleaner CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypedDict

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.cluster.topic_admin import TopicAdmin
from stateflow.compaction.cluster.which_topics import role_of
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import Bursts, RestoreRate
from stateflow.compaction.sensing.broker_cpu import BrokerCpu, broker_cpu, broker_pid
from stateflow.compaction.sensing.bursts import LogSpan, find_bursts
from stateflow.compaction.sensing.cleaner_metrics import CleanerMetrics, estimate, look, warnings
from stateflow.compaction.sensing.measurement import Measurement, SizeSample
from stateflow.compaction.sensing.record_sizes import RECORD_OVERHEAD_BYTES, RecordBytes
from stateflow.compaction.sensing.record_sizes import estimate as estimate_bytes
from stateflow.compaction.sensing.restore_probe import learn_rate
from stateflow.compaction.sensing.scan import Scan, ScanOptions
from stateflow.compaction.sensing.scan import scan as read_log
from stateflow.compaction.settings.cleanup import Cleanup
from stateflow.compaction.settings.legal import require_number
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.errors import BrokerRefused, PartitionCountChanged
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition

_MIN_RECORDS_FOR_RATE, _MIN_BYTES_FOR_RATE = 20_000, 32e6
"""Reading fewer records and bytes says more about the connection than about the restore rate."""
DEFAULT_RESTORE_RATE = RestoreRate(
    200_000, 0.1, "assumed, as the log is too short to measure it", 0.5, bytes_per_second=150e6
)


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How long and how much to look."""

    seconds: float = 5.0
    """How long the update rate, the saw-tooth and the cleaner are watched."""
    sample_seconds: float = 0.25
    records_max: int = 20_000_000
    """Partitions are read one after another until so many records were read; the rest is extrapolated."""
    updates_per_second: float | None = None
    """Given by hand when the application is not running."""
    restore: RestoreRate | None = None
    """Learnt from real restores; else two restores of different size into a temporary store are timed."""
    probe_records_max: int = 1_000_000
    """Of a longer log only so many records are restored on trial; with 0 the reading of it is timed instead."""
    keys_max: int = 65_536
    """Keys counted exactly; more are estimated to within a percent."""
    metrics_urls: tuple[str, ...] = ()
    """Exporters of the brokers, in Prometheus' text format: the cleaner of a remote broker is seen through them."""
    costs: Costs = field(default_factory=Costs)
    """What cleaning costs, where it was calibrated: turns the exporters' bytes into CPU."""
    read_timeout_seconds: float = 120.0
    """When reading does not get on for so long, the broker counts as gone."""

    def __post_init__(self) -> None:
        require_number("seconds", self.seconds, is_above=True)
        require_number("sample_seconds", self.sample_seconds, is_above=True)
        require_number("records_max", self.records_max, low=1)  # of no record read, all would be extrapolated
        require_number("updates_per_second", self.updates_per_second)
        require_number("probe_records_max", self.probe_records_max)
        require_number("keys_max", self.keys_max, low=1)
        require_number("read_timeout_seconds", self.read_timeout_seconds, is_above=True)


@dataclass(slots=True)
class _Watch:
    """What watching the topic for a while told."""

    samples: list[SizeSample]
    ends: list[int]
    """End offsets of all partitions together, at the moment of every sample."""
    appended: int = 0
    seconds: float = 0.0
    cleaner: BrokerCpu | None = None
    metrics: tuple[CleanerMetrics, CleanerMetrics] | None = None
    """At the beginning and at the end."""


def measure(
    cluster: Cluster,
    topic: str,
    *,
    admin: ClusterAdmin,
    options: MeasureOptions | None = None,
    progress: Callable[[str], None] = lambda _text: None,
    clock: Clock | None = None,
) -> Measurement:
    """Measure one topic; takes ``options.seconds`` and the time to read the log once.

    Raises ``TopicMissing``, ``BrokerUnreachable``, ``BrokerRefused``.
    """
    options, clock = options or MeasureOptions(), clock or SystemClock()
    count = admin.partition_counts([topic])[topic]
    partitions = [TopicPartition(topic, number) for number in range(count)]
    config = admin.topic_config(topic)
    version, newer = admin.version()
    progress(f"watching {topic} for {options.seconds:g} s")
    watch = _watch(cluster, admin, topic, partitions, options, clock)
    progress(f"reading {topic}")
    role = role_of(cluster, topic)
    how = ScanOptions(
        options.records_max, options.keys_max, role.copied_until_ms, options.read_timeout_seconds
    )
    scan = read_log(cluster, cluster.ranges(partitions), how, clock)
    sizes = partition_bytes(admin, topic)
    size_bytes = sum(sizes.values())
    scale = count / max(1, scan.partitions_read)
    policy = Policy.from_config(config)
    bursts = _bursts(size_bytes, scan, policy, scale)
    per_record = _record_sizes(size_bytes, watch, scan, scale, bursts)
    rate, rate_source = _rate(options, watch, scan, scale)
    restore, busy = options.restore, None
    if restore is None:
        restore, busy = _restore_rate(cluster, topic, scan, scale, options, progress, clock)
    found = Measurement(
        topic=topic,
        partitions=count,
        replication=cluster.describe([topic])[topic].replication,
        broker_version=version,
        broker_newer_than_known=newer,
        policy=policy,
        size_bytes=size_bytes,
        disk_bytes=sum(replica.size_bytes for replica in admin.replica_sizes([topic])),
        records=round(scan.records * scale),
        live_keys=round((scan.sketch.distinct() - scan.sketch.tombstones()) * scale),
        tombstones=round(scan.sketch.tombstones() * scale),
        distinct_relative_error=scan.sketch.relative_error,
        record_bytes=per_record.appended,
        live_record_bytes=per_record.live,
        live_record_bytes_high=per_record.live_high,
        updates_per_second=rate,
        rate_source=rate_source,
        transactional=scan.markers,
        restore=restore,
        cleaner_cores=None if watch.cleaner is None else watch.cleaner.cleaner_seconds / watch.seconds,
        sizes=tuple(watch.samples),
        unknown=_unknown(options, watch, scan, count, newer),
        overrides=admin.topic_overrides(topic),
        measured_ms=clock.now_ms(),
        bursts=bursts,
        ours=scan.ours,
        role=role,
        writes_seen=watch.appended > 0,
        restore_timed_busy=busy or "",
        **_removing(admin, topic, config),
    )
    return found if watch.metrics is None else _with_metrics(found, watch, options.costs)


def _with_metrics(found: Measurement, watch: _Watch, costs: Costs) -> Measurement:
    assert watch.metrics is not None
    before, after = watch.metrics
    load = (found.workload(), found.policy, found.cleaner)
    told = list(warnings(after))
    cleaner = estimate(before, after, watch.seconds, load, costs)
    if cleaner is None:
        told.append(
            "The exporters do not count the bytes of the cleaner (kafka.utils:type=Throttler,name=cleaner-io)."
        )
    return replace(found, cleaner_estimate=cleaner, unknown=(*found.unknown, *told))


def with_settings_in_force(
    admin: ClusterAdmin, measurement: Measurement, clock: Clock | None = None
) -> Measurement:
    """A measurement taken earlier, with the settings that topic and broker have now, and its age among what is
    not known well. Raises ``TopicMissing``, or ``PartitionCountChanged`` when it was another topic's then.
    """
    topic = measurement.topic
    count = admin.partition_counts([topic])[topic]
    if count != measurement.partitions:
        raise PartitionCountChanged(
            f"{topic} has {count} partitions; it had {measurement.partitions} when it was measured.",
            action="Measure it again.",
            topic=topic,
        )
    config = admin.topic_config(topic)
    age = ((clock or SystemClock()).now_ms() - measurement.measured_ms) / 60_000
    told = f"Load and size were measured {age:,.0f} min ago." if measurement.measured_ms else ""
    return replace(
        measurement,
        policy=Policy.from_config(config),
        overrides=admin.topic_overrides(topic),
        unknown=(*measurement.unknown, *([told] if told else [])),
        **_removing(admin, topic, config),
    )


class _Removing(TypedDict):
    """Fields of a measurement: what removes records of the topic, as the brokers have it set now."""

    cleanup: Cleanup
    compacted: bool
    cleaner: CleanerSettings
    cleaners_known: bool
    cleaners_alike: bool


def _removing(admin: ClusterAdmin, topic: str, config: Mapping[str, str]) -> _Removing:
    cleanup, leading = Cleanup.from_config(config), leading_cleaner(admin, topic)
    return _Removing(
        cleanup=cleanup,
        compacted=cleanup.compacts,
        cleaner=leading.settings,
        cleaners_known=leading.known,
        cleaners_alike=leading.alike,
    )


class LeadingCleaner(NamedTuple):
    """The cleaner that counts: that of the brokers that lead a topic, as restores read from them."""

    settings: CleanerSettings
    known: bool
    """False when the settings may not be read: they are then Kafka's defaults."""
    alike: bool
    """False when the brokers differ."""


def leading_cleaner(admin: ClusterAdmin, topic: str) -> LeadingCleaner:
    """The cleaner settings that a topic is compacted under."""
    known = True
    leaders = sorted(set(admin.leaders(topic).values()))
    try:
        found = [admin.cleaner_settings(broker) for broker in leaders]
    except BrokerRefused:  # many hosted services keep their brokers' settings to themselves
        found, known = [CleanerSettings()], False
    # One that is off decides: partitions that it leads are not compacted.
    cleaner = next((one for one in found if not one.enabled), found[0])
    return LeadingCleaner(cleaner, known, all(one == found[0] for one in found))


def partition_bytes(admin: TopicAdmin, topic: str) -> dict[int, int]:
    """Log bytes of each partition: of its largest replica, as one that lags behind holds less."""
    sizes: dict[int, int] = {}
    for replica in admin.replica_sizes([topic]):
        number = replica.partition.partition
        sizes[number] = max(sizes.get(number, 0), replica.size_bytes)
    return sizes


def changelog_bytes(admin: TopicAdmin, topic: str) -> int:
    """Log bytes of a topic now, one replica of every partition."""
    return sum(partition_bytes(admin, topic).values())


def _watch(
    cluster: Cluster,
    admin: ClusterAdmin,
    topic: str,
    partitions: list[TopicPartition],
    options: MeasureOptions,
    clock: Clock,
) -> _Watch:
    pid = local_broker(admin)
    before = broker_cpu(pid) if pid is not None else None
    metrics = look(options.metrics_urls) if options.metrics_urls else None
    start = clock.monotonic_seconds()
    watch = _Watch([], [])
    while (watch.seconds < options.seconds) or not watch.samples:
        watch.samples.append(SizeSample(round(watch.seconds, 3), changelog_bytes(admin, topic)))
        watch.ends.append(_end_offsets(cluster.ranges(partitions)))
        time.sleep(min(options.sample_seconds, max(0.0, options.seconds - watch.seconds)))
        watch.seconds = clock.monotonic_seconds() - start
    watch.appended = _end_offsets(cluster.ranges(partitions)) - watch.ends[0]
    if pid is not None and before is not None:
        watch.cleaner = broker_cpu(pid) - before
    if metrics is not None:
        watch.metrics = metrics, look(options.metrics_urls)
    return watch


def local_broker(admin: ClusterAdmin) -> int | None:
    """The one broker of a cluster that runs on this machine; several share too much to be told apart."""
    return only_local(admin.broker_addresses())


def only_local(addresses: Mapping[int, tuple[str, int]]) -> int | None:
    """The process of the broker at the only address, if it runs on this machine."""
    return broker_pid(*next(iter(addresses.values()))) if len(addresses) == 1 else None


def _end_offsets(ranges: Mapping[TopicPartition, OffsetRange]) -> int:
    return sum(found.offset_next for found in ranges.values())


def _rate(options: MeasureOptions, watch: _Watch, scan: Scan, scale: float) -> tuple[float, str]:
    if options.updates_per_second is not None:
        return options.updates_per_second, "given"
    if watch.appended > 0:
        return watch.appended / watch.seconds, f"observed over {watch.seconds:.1f} s"
    if scan.updates_per_second is not None:
        told = "from the log's history, as nothing was written while watching"
        return scan.updates_per_second * scale, told
    return 0.0, "nothing was written"


def _bursts(size_bytes: int, scan: Scan, policy: Policy, scale: float) -> Bursts | None:
    if not scan.tombstones:
        return None
    plain = scan.plain_bytes / scan.records + RECORD_OVERHEAD_BYTES
    compressed = min(1.0, size_bytes / (scan.records * scale) / plain)
    live_keys = (scan.sketch.distinct() - scan.sketch.tombstones()) * scale
    return find_bursts(
        scan.sketch.tombstone_times_ms(),
        LogSpan(scan.first_ms, scan.last_ms, policy.delete_retention_ms, live_keys),
        tombstone_bytes=(scan.tombstone_bytes / scan.tombstones + RECORD_OVERHEAD_BYTES) * compressed,
        scale=scan.sketch.scale * scale,
    )


def _record_sizes(
    size_bytes: int, watch: _Watch, scan: Scan, scale: float, bursts: Bursts | None
) -> RecordBytes:
    """Of all records; of those with a value, where tombstones come in bursts and are counted apart."""
    records, plain_bytes, live = scan.records, scan.plain_bytes, scan.sketch.distinct()
    if bursts is not None and scan.tombstones < records:
        records, plain_bytes = records - scan.tombstones, plain_bytes - scan.tombstone_bytes
        size_bytes -= round(scan.tombstones * scale * bursts.tombstone_bytes)
        live -= scan.sketch.tombstones()
    if records == 0:
        return RecordBytes(100.0, 100.0, 200.0)
    return estimate_bytes(
        [sample.size_bytes for sample in watch.samples],
        watch.ends,
        average=max(1.0, size_bytes / (records * scale)),
        uncompressed=plain_bytes / records,
        live_records=live * scale,
    )


def _restore_rate(
    cluster: Cluster,
    topic: str,
    scan: Scan,
    scale: float,
    options: MeasureOptions,
    progress: Callable[[str], None],
    clock: Clock,
) -> tuple[RestoreRate, str | None]:
    """From two restores on trial, with a warning where the machine was busy; assumed for a short log."""
    record_bytes = scan.plain_bytes / max(1, scan.records)
    if scan.records < _MIN_RECORDS_FOR_RATE and scan.plain_bytes < _MIN_BYTES_FOR_RATE:
        return replace(DEFAULT_RESTORE_RATE, record_bytes=record_bytes), None
    if options.probe_records_max == 0:
        return RestoreRate(scan.records / scan.seconds, 0.1, "reading the log, timed here", 0.4), None
    progress(f"restoring {topic} on trial")
    most = share_on_trial(scan.records * scale, options.probe_records_max)
    return learn_rate(cluster, topic, clock=clock, most=most)


def share_on_trial(records: float, records_max: int) -> float:
    """Share of a topic that is restored on trial: of all partitions, those that were not read, too."""
    return min(1.0, records_max / max(1.0, records))


def _unknown(options: MeasureOptions, watch: _Watch, scan: Scan, count: int, newer: bool) -> tuple[str, ...]:
    records = scan.records * count / max(1, scan.partitions_read)
    told = []
    if watch.cleaner is None and watch.metrics is None:
        told.append(
            "Cleaner CPU was not observed, as the broker is not one process on this machine: it is predicted only, "
            f"right to a factor of {options.costs.uncertainty_factor:g} (costs: {options.costs.source}). An exporter's "
            "--metrics-url tells what the cleaner moves."
        )
    if options.updates_per_second is None and watch.appended == 0:
        told.append("Nothing was written while watching: the update rate is the mean of the log's history.")
    if scan.partitions_read < count:
        told.append(
            f"Only {scan.partitions_read} of {count} partitions were read; keys and records of the others "
            f"are "
            "taken to be alike."
        )
    if not scan.sketch.is_exact:
        told.append(f"Keys were estimated from a sketch, to ±{scan.sketch.relative_error:.1%}.")
    if options.restore is None and records > options.probe_records_max:
        told.append(
            f"The restore rate is that of the first {options.probe_records_max:,} records; larger stores are slower."
            if options.probe_records_max
            else "The restore rate is that of reading alone; writing the store makes a restore slower."
        )
    if newer:
        told.append("The broker is newer than Kafka 4.3; the strictest known ranges were used.")
    return tuple(told)
