"""Measuring all types of state, one after the other.

The types take turns within a run and the runs follow each other, so that a slow minute of the machine does not
fall on one type alone. The pipeline without state is run as one of them: an update's cost is what lies beyond it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from stateflow.lab.costs.kinds import BASELINE, KEYS, KINDS
from stateflow.lab.costs.result import Cost, KindResult, Run, StatesStudy
from stateflow.lab.costs.site import CostOptions, CostSite
from stateflow.log.base import Cluster

QUICK = CostOptions(updates=100_000, runs=1)

_WARM_UP = 10_000
"""Number of a run that does not count: what a process does only once is done in it."""

Tell = Callable[[str], None]


def measure_states(cluster: Cluster, options: CostOptions, folder: Path, tell: Tell) -> StatesStudy:
    """The four costs of every type. ``folder`` takes local state and images; its topics are deleted again."""
    began = time.monotonic()
    chosen = [kind for kind in KINDS if not options.only or kind.name in options.only]
    baseline: list[Cost] = []
    runs: dict[str, list[Run]] = {kind.name: [] for kind in chosen}
    steps_total, steps = options.runs * (2 + len(chosen)), 0
    tell("warming up")
    with CostSite(cluster, BASELINE, _WARM_UP, options, folder) as site:
        site.update()
    for run in range(options.runs):
        for kind in (BASELINE, *chosen, BASELINE):
            left_seconds = (time.monotonic() - began) / steps * (steps_total - steps) if steps else None
            left = "" if left_seconds is None else f", about {left_seconds:.0f} s left"
            tell(f"run {run + 1} of {options.runs}: {kind.name}{left}")
            with CostSite(cluster, kind, steps, options, folder) as site:
                if kind is BASELINE:
                    baseline.append(site.update())
                else:
                    runs[kind.name].append(site.measure())
            steps += 1
    results = tuple(KindResult(kind.name, kind.write, tuple(runs[kind.name])) for kind in chosen)
    return StatesStudy(options.updates, KEYS, tuple(baseline), results, time.monotonic() - began)
