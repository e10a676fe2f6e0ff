"""One restore time for several changelogs that are restored one after another: who may use how much of it.

With live records L, and a pass that costs A, a topic updated at rate λ costs about A·λ/D when D superseded records
may pile up. The time that the live records leave is divided so that the sum of these costs is least: in
proportion to √(A·λ/ρ), with ρ the restore rate (Lagrange).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.passes import pass_cpu
from stateflow.compaction.sensing.measurement import Measurement


def shared_objectives(
    measurements: Sequence[Measurement], objective: Objective, costs: Sequence[Costs]
) -> list[Objective]:
    """The objective of each topic; together they take the time given.

    When the live records alone take longer, each gets its part of the time in proportion to them: every one is
    then out of reach, and says so.
    """
    assert len(measurements) == len(costs)
    floors = [_live_seconds(found, objective) for found in measurements]
    spare = objective.restore_within_seconds * (1 - objective.margin) - sum(floors)
    if spare <= 0:
        return [
            replace(objective, restore_within_seconds=objective.restore_within_seconds * floor / sum(floors))
            for floor in floors
        ]
    weights = [math.sqrt(_weight(found, cost)) for found, cost in zip(measurements, costs, strict=True)]
    total = sum(weights) or 1.0
    return [
        replace(objective, restore_within_seconds=(floor + spare * weight / total) / (1 - objective.margin))
        for floor, weight in zip(floors, weights, strict=True)
    ]


def _live_seconds(found: Measurement, objective: Objective) -> float:
    live = found.records_floor * objective.live_headroom
    return max(1e-6, found.restore.seconds(live / objective.parallelism(found.partitions)))


def _weight(found: Measurement, costs: Costs) -> float:
    load = found.workload()
    live = load.live_records / load.partitions
    rate = max(found.updates_per_second, 1e-3)
    cpu = pass_cpu(load, found.cleaner, costs, live, live)
    return cpu * rate * found.restore.seconds_per_record
