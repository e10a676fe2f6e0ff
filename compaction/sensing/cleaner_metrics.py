"""What a remote broker's exporter tells of its cleaner, and how much of its CPU time follows from that.

JMX has no CPU time of the cleaner. What it has: a count of all bytes that the cleaner read and wrote (the only
cumulative one), gauges of its last pass, and the CPU time of the whole process. From the bytes follow the passes,
through what the model says one moves, and from these the CPU; that of the whole process bounds it from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import Workload
from stateflow.compaction.sensing.exposition import Sample, canonical, finite, scrape
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy


@dataclass(frozen=True, slots=True)
class CleanerMetrics:
    """One look at the exporters of all brokers together."""

    moved_bytes_total: float | None
    """Read and written by cleaners since the brokers started; None when no exporter tells it."""
    cpu_seconds_total: float | None
    """Of the broker processes."""
    dirty_percent_max: float | None
    """Of the dirtiest partition; read as of the last time the cleaner looked."""
    last_pass_seconds: float | None
    """Longest of the last passes, in whole seconds."""
    uncleanable_partitions: float | None
    dead_threads: float | None

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> CleanerMetrics:
        """From the samples of one broker or several."""
        return cls(
            moved_bytes_total=_sum(samples, _is_moved_bytes),
            cpu_seconds_total=_sum(samples, lambda name: name == "processcpusecondstotal"),
            dirty_percent_max=_max(
                samples, lambda name: "logcleanermanager" in name and "maxdirtypercent" in name
            ),
            last_pass_seconds=_max(samples, lambda name: "logcleaner" in name and "maxcleantimesecs" in name),
            uncleanable_partitions=_sum(samples, lambda name: "uncleanablepartitionscount" in name),
            dead_threads=_sum(samples, lambda name: "logcleaner" in name and "deadthreadcount" in name),
        )


@dataclass(frozen=True, slots=True)
class CleanerEstimate:
    """CPU of all cleaner threads while metrics were watched, as an interval: cores."""

    cores: float
    low: float
    high: float
    moved_bytes_per_second: float


def look(urls: Sequence[str]) -> CleanerMetrics:
    """The metrics of all brokers now. Raises ``ConfigError``, ``BrokerUnreachable``."""
    return CleanerMetrics.of([sample for url in urls for sample in scrape(url)])


def estimate(
    before: CleanerMetrics,
    after: CleanerMetrics,
    seconds: float,
    load: tuple[Workload, Policy, CleanerSettings],
    costs: Costs,
) -> CleanerEstimate | None:
    """Cleaner CPU between two looks; None when the exporters do not count the cleaner's bytes.

    The model tells what this topic's passes move and cost; the bytes that were moved tell how many passes like these
    there were, of all topics together. Without passes to compare with (settings under which the topic is never
    cleaned) only what each record costs is counted, and the interval says so.
    """
    if before.moved_bytes_total is None or after.moved_bytes_total is None or seconds <= 0:
        return None
    moved = max(0.0, after.moved_bytes_total - before.moved_bytes_total) / seconds
    workload, policy, cleaner = load
    expected = predict(workload, policy, cleaner, costs)
    expected_moved = 0.0
    if math.isfinite(expected.size_max_bytes):
        expected_moved = moved_bytes_per_second(workload, expected.cycle_seconds)
    if expected_moved > 0:
        cores = expected.cleaner_cores * moved / expected_moved
    else:
        # Each byte kept is read once and written once.
        per_byte = costs.read_seconds_per_record / workload.record_bytes + costs.write_seconds_per_byte
        cores = moved / 2 * per_byte
    cores += costs.looking_cores(cleaner)  # of the threads that only look
    high = costs.uncertainty_factor * cores
    if before.cpu_seconds_total is not None and after.cpu_seconds_total is not None and moved:
        process = max(0.0, after.cpu_seconds_total - before.cpu_seconds_total) / seconds
        high = min(high, process) if expected_moved > 0 else process
    cores = min(cores, high)
    return CleanerEstimate(cores, cores / costs.uncertainty_factor, high, moved)


def warnings(metrics: CleanerMetrics) -> tuple[str, ...]:
    """What these metrics say that no setting can mend, in sentences."""
    told = []
    if metrics.dead_threads:
        told.append(
            f"{metrics.dead_threads:g} cleaner thread(s) of the brokers are dead: restart those brokers."
        )
    if metrics.uncleanable_partitions:
        told.append(
            f"{metrics.uncleanable_partitions:g} partition(s) are marked uncleanable: they grow whatever is set, "
            "until the broker's log says why and it is fixed."
        )
    return tuple(told)


def moved_bytes_per_second(workload: Workload, cycle_seconds: float) -> float:
    """Read and written by cleaning one replica of every partition once in ``cycle_seconds``; 0 for "never".

    A pass indexes the dirty part, reads everything once more, and writes what lives.
    """
    if not math.isfinite(cycle_seconds):
        return 0.0
    dirty = workload.updates_per_second / workload.partitions * cycle_seconds
    live = workload.live_records / workload.partitions
    bytes_per_pass = 2 * dirty * workload.record_bytes + 2 * live * workload.live_record_bytes
    return workload.partitions * bytes_per_pass / cycle_seconds


def _is_moved_bytes(name: str) -> bool:
    counted = name.endswith(("count", "total", "bytestotal", "counttotal")) or "countcleanerio" in name
    return "cleanerio" in name and counted


def _values(samples: Sequence[Sample], wanted: Callable[[str], bool]) -> list[float]:
    return finite([sample.value for sample in samples if wanted(canonical(sample))])


def _sum(samples: Sequence[Sample], wanted: Callable[[str], bool]) -> float | None:
    found = _values(samples, wanted)
    return sum(found) if found else None


def _max(samples: Sequence[Sample], wanted: Callable[[str], bool]) -> float | None:
    found = _values(samples, wanted)
    return max(found) if found else None
