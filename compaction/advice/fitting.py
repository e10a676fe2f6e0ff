"""Cleaner settings of the brokers that fit a topic and its objective: a dedupe buffer for its keys, and a backoff.

With a restore budget that leaves D seconds of updates beside the live records, a pass comes every D − b seconds at
backoff b, and a thread looks every b seconds. Passes cost A each beside what every record costs however often it is
cleaned, looks l each, so the CPU A / (D − b) + l / b is least at b = D · s / (1 + s) with s = √(l / A). A backoff
that is as short as possible is not the best one: at four looks a second they cost more than the passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.passes import pass_cpu
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.topic_settings import CleanerSettings

BUFFER_BYTES_MIN = 2 << 20
"""Kafka wants strictly more than 1 MiB of dedupe buffer per cleaner thread."""
_BACKOFF_MS_MIN = 250
_BYTES_PER_KEY = 24


def fitting_cleaner(measurement: Measurement, objective: Objective, costs: Costs) -> CleanerSettings:
    """Cleaner settings that suit this topic alone: a dedupe buffer twice what its keys need, and the backoff with which
    the objective is kept at the least CPU, never a longer one than now.
    """
    cleaner = measurement.cleaner
    keys = max(1, measurement.records_floor / measurement.partitions)
    buffer_bytes = max(
        BUFFER_BYTES_MIN, 2 ** math.ceil(math.log2(keys * _BYTES_PER_KEY / cleaner.load_factor * 2))
    )
    better = replace(
        cleaner, dedupe_buffer_bytes=min(cleaner.dedupe_buffer_bytes, buffer_bytes * cleaner.threads)
    )
    seconds = _backoff_seconds(measurement, objective, costs, better)
    backoff_ms = max(_BACKOFF_MS_MIN, round(1000 * seconds, -1))
    return replace(better, backoff_ms=min(cleaner.backoff_ms, int(backoff_ms)))


def fitting_for_all(fitting: Sequence[CleanerSettings]) -> CleanerSettings:
    """What suits all of several topics: the largest of the buffers, the shortest of the sleeps."""
    return replace(
        fitting[0],
        dedupe_buffer_bytes=max(one.dedupe_buffer_bytes for one in fitting),
        backoff_ms=min(one.backoff_ms for one in fitting),
    )


def _backoff_seconds(
    measurement: Measurement, objective: Objective, costs: Costs, cleaner: CleanerSettings
) -> float:
    load = measurement.workload()
    room = room_seconds(measurement, objective)
    if room <= 0:
        return 0.0
    live = load.live_records / load.partitions
    dirty = load.updates_per_second / load.partitions * room
    each = pass_cpu(load, cleaner, costs, live, dirty)
    each -= dirty * (costs.dirty_seconds_per_record + load.record_bytes * costs.dirty_seconds_per_byte)
    share = math.sqrt(costs.look_seconds * cleaner.threads / (load.partitions * max(each, 1e-9)))
    return room * share / (1 + share)


def room_seconds(measurement: Measurement, objective: Objective) -> float:
    """Of updates, at the highest load, that the objective leaves beside the live records; less than 0 for none."""
    within = measurement.restore.records_within(objective.restore_within_seconds)
    budget = within * objective.parallelism(measurement.partitions) * (1 - objective.margin)
    rate = max(measurement.updates_per_second, 1e-3) * objective.rate_headroom
    return (budget - measurement.records_floor * objective.live_headroom) / rate
