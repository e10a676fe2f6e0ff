"""A timed restore of a topic: the very code that restores a task, into a store that is thrown away."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stateflow.checkpoint.changelog_policy import ChangelogPolicy
from stateflow.checkpoint.planner import StorePlan, TaskPlan, plan_task
from stateflow.checkpoint.restore import Restoration
from stateflow.clock import Clock, SystemClock
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.own_cpu import OwnCpu, own_cpu
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.store.directory import Identity, TaskDirectory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_STORE = "probe"
_TERMS = ChangelogPolicy(accept_trimmed=True)
"""What is read is thrown away: a log that was trimmed is timed as it is."""
_SPREAD_MIN = 0.1
"""Logs that differ less than this in size tell a rate, but not what part of the time is fixed."""
_RECORD_SECONDS, _BYTE_SECONDS = 2.5e-6, 4e-9
"""What a record and a byte take, in proportion: restores of one log tell their sum only. From records of 0.1 kB and of
10 kB, all keys different, restored on one core.
"""
_BUSY_SHARE = 0.2
"""A restore whose threads waited for a core for longer than this share of its time says little about a free machine."""
_PAIR, _PAIR_ERROR = 2, 0.2
"""A line through two points always fits: that says nothing about how far it is off."""
_SHARES = 0.25, 1.0
"""Of a log, or of as much of it as is read on trial."""


@dataclass(frozen=True, slots=True)
class RestoreProbe:
    """What one restore took, from opening the store to its last flush, all partitions one after another."""

    seconds: float
    records: int
    live_keys: int
    plain_bytes: int = 0
    """Keys and values read, uncompressed."""
    cpu_seconds: float = 0.0
    """Of this process, while it restored."""
    waited_seconds: float = 0.0
    """Its threads were ready for so long, and had no core."""


def probe_restore(
    cluster: Cluster,
    topic: str,
    *,
    clock: Clock | None = None,
    folder: Path | None = None,
    share: float = 1.0,
) -> RestoreProbe:
    """Restore all partitions of a topic by one restorer into temporary stores, and time it.

    Of every partition the first ``share`` of its offsets. Needs as much free disk as the live state, under ``folder``
    or the system's temporary folder.
    """
    clock = clock or SystemClock()
    info = cluster.describe([topic])[topic]
    resources = RocksResources()
    seconds, records, plain_bytes, live = 0.0, 0, 0, 0
    spent = OwnCpu(0.0, 0.0)
    with tempfile.TemporaryDirectory(dir=folder, prefix="stateflow-probe-") as scratch:
        for number in range(info.partitions):
            task = f"probe-{number}"
            identity = Identity("stateflow-probe", cluster.cluster_id, 0, task)
            directory = TaskDirectory(Path(scratch) / task, identity)
            started, before = clock.monotonic_seconds(), own_cpu()
            stores = RocksTaskStores.open(directory, [_STORE], resources, clock)
            try:
                changelogs = {_STORE: TopicPartition(topic, number)}
                plan = plan_task(
                    cluster, task, changelogs, {topic: info.topic_id}, stores, clock, log_policy=_TERMS
                )
                restoration = Restoration(cluster, _first_part(plan, share), stores, clock)
                try:
                    progress = restoration.run()
                finally:
                    restoration.close()
                seconds += clock.monotonic_seconds() - started
                spent += own_cpu() - before
                records, plain_bytes = records + progress.records_total, plain_bytes + progress.bytes_total
                live += sum(1 for _ in stores.reader(_STORE).scan())
            finally:
                stores.close()
    return RestoreProbe(seconds, records, live, plain_bytes, spent.used_seconds, spent.waited_seconds)


def _first_part(plan: TaskPlan, share: float) -> TaskPlan:
    """The plan, with targets that lie where so much of every store's offsets has been read."""
    if share >= 1:
        return plan

    def cut(part: StorePlan) -> StorePlan:
        if part.action != "replay":
            return part
        offset_next = part.offsets.offset_first + max(1, math.ceil(share * part.offsets.slots))
        return replace(part, offsets=OffsetRange(part.offsets.offset_first, offset_next))

    return replace(plan, stores=tuple(cut(part) for part in plan.stores))


def learn_rate(
    cluster: Cluster, topic: str, *, clock: Clock | None = None, most: float = 1.0
) -> tuple[RestoreRate, str | None]:
    """The restore rate of a topic, from two restores on trial that differ in size, and a warning where the machine was
    too busy for it. ``most`` is the share of the log that is read at most.
    """
    small, large = (probe_restore(cluster, topic, clock=clock, share=share * most) for share in _SHARES)
    rate = fit_rate([small, large], "two restores on trial, timed here")
    warning = busy_warning(large)
    if warning is not None:
        error = 1 - _free_seconds(large) / large.seconds
        rate = replace(rate, relative_error=max(rate.relative_error, error))
    return rate, warning


def busy_warning(probe: RestoreProbe) -> str | None:
    """What to say of a restore during which the machine was busy with something else; None when it was not."""
    if probe.waited_seconds <= _BUSY_SHARE * probe.seconds:
        return None
    return (
        f"The machine was busy while a restore was timed: in {probe.seconds:.1f} s its threads waited "
        f"{probe.waited_seconds:.1f} s for a core. On a free machine it would take about {_free_seconds(probe):.1f} s: "
        "measure again then, or give --restore-rate."
    )


def _free_seconds(probe: RestoreProbe) -> float:
    """What it would have taken had a core been free all the time: threads may wait side by side."""
    return max(probe.seconds - probe.waited_seconds, min(probe.cpu_seconds, probe.seconds))


def fit_rate(probes: Sequence[RestoreProbe], source: str = "real restores") -> RestoreRate:
    """Fixed time and rates of several restores, by least squares; the mean rate when their sizes hardly differ."""
    assert probes
    count = len(probes)
    works = [_RECORD_SECONDS * probe.records + _BYTE_SECONDS * probe.plain_bytes for probe in probes]
    mean_work = sum(works) / count
    mean_seconds = sum(probe.seconds for probe in probes) / count
    spread = sum((work - mean_work) ** 2 for work in works)
    slope = 0.0
    if spread > (_SPREAD_MIN * mean_work) ** 2 * count:
        told = zip(works, probes, strict=True)
        slope = sum((work - mean_work) * (probe.seconds - mean_seconds) for work, probe in told) / spread
    fixed = mean_seconds - slope * mean_work
    if slope <= 0 or fixed < 0:
        slope, fixed = mean_seconds / max(_RECORD_SECONDS, mean_work), 0.0
    told = zip(works, probes, strict=True)
    errors = [abs(fixed + slope * work - probe.seconds) / max(probe.seconds, 1e-9) for work, probe in told]
    records = sum(probe.records for probe in probes)
    cpu_seconds = sum(probe.cpu_seconds for probe in probes)
    return RestoreRate(
        1 / (slope * _RECORD_SECONDS),
        fixed,
        source,
        max(0.05 if count > _PAIR else _PAIR_ERROR, sum(errors) / count),
        bytes_per_second=1 / (slope * _BYTE_SECONDS),
        record_bytes=sum(probe.plain_bytes for probe in probes) / max(1, records),
        cpu_seconds_per_record=cpu_seconds / records if cpu_seconds and records else None,
    )
