"""What so long a time shows of a topic under a policy: its largest and its mean size, on average over all phases."""

from __future__ import annotations

import math

from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.flow import Flow, Shown, Windows
from stateflow.compaction.model.passes import due_records, steady_state
from stateflow.compaction.model.workload import Workload
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy


def shown_within(
    workload: Workload,
    policy: Policy,
    cleaner: CleanerSettings,
    costs: Costs,
    seconds: float,
    *,
    others_seconds: float = 0.0,
) -> Shown:
    """Sizes over all partitions, which are taken to be in step; infinite where no pass ever comes.

    :func:`stateflow.compaction.model.closed_form.predict` names the largest log of any phase. ``others_seconds``
    is how long passes over other topics keep the cleaner thread from its next look.
    """
    steady = steady_state(workload, policy, cleaner, costs, others_seconds=others_seconds)
    if isinstance(steady, float):
        return Shown(math.inf, math.inf)
    rate, segment, count = steady.rate, steady.segment, workload.partitions

    def due_seconds(clean_bytes: float) -> float:
        live = clean_bytes / workload.live_record_bytes
        return due_records(workload, policy, live, segment, rate, worst=False) / rate

    windows = None
    if workload.bursts is not None:
        windows = Windows(
            seconds=workload.bursts.interval_seconds,
            alive_bytes_per_second=rate * workload.live_record_bytes,
            tombstone_bytes=workload.bursts.records / count * workload.bursts.tombstone_bytes,
            retention_seconds=policy.delete_retention_ms / 1000,
        )
    one = Flow(
        looks=steady.usual.looks._replace(backoff=cleaner.backoff_ms / 1000),
        lag_seconds=policy.min_lag_ms / 1000,
        pass_seconds=steady.usual.pass_wall,
        live_bytes=steady.live * workload.live_record_bytes,
        bytes_per_second=rate * workload.record_bytes,
        due_seconds=due_seconds,
        windows=windows,
        others_seconds=others_seconds,
    ).shown(seconds)
    return Shown(count * one.size_max_bytes, count * one.size_mean_bytes)
