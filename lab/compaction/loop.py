"""The closed loop put to the test: a stream whose rate steps up and down, watched or left under a fixed policy."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.calibration.cell import Cell, CellResult, run_cell
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.control.watch import Decision, Watcher, WatchOptions
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measure import MeasureOptions, measure
from stateflow.log.base import Cluster

_MEASURE_AFTER_SECONDS = 4.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LoopResult:
    """One run of a stream under the loop, or under a fixed policy."""

    name: str
    bound_bytes: float
    share_over_bound: float
    """Share of the samples after warming up in which the log was larger than the bound."""
    size_max_bytes: float
    cleaner_cores: float
    request_cores: float
    changes: int
    cell: CellResult
    decisions: tuple[Decision, ...]


def share_over(cell: CellResult, warm_seconds: float, bound_bytes: float) -> float:
    """Share of the samples after warming up that were above the bound."""
    counted = [sample.size_bytes > bound_bytes for sample in cell.sizes if sample.seconds >= warm_seconds]
    return sum(counted) / len(counted)


def run_loop(
    cluster: Cluster,
    admins: tuple[ClusterAdmin, ClusterAdmin, ClusterAdmin],
    cell: Cell,
    objective: Objective | None,
    restore: RestoreRate,
    bound_bytes: float,
    journal: Journal,
    costs: Costs | None = None,
    clock: Clock | None = None,
) -> LoopResult:
    """Run a cell with a watcher beside it (or none, without an objective); three connections, one per thread."""
    clock = clock or SystemClock()
    stop, decisions = threading.Event(), list[Decision]()
    failures: list[BaseException] = []

    def watch(topic: str) -> None:
        assert objective is not None
        try:
            if stop.wait(_MEASURE_AFTER_SECONDS):
                return
            options = MeasureOptions(seconds=2.0, restore=restore)
            found = measure(cluster, topic, admin=admins[2], options=options)
            watcher = Watcher(
                cluster,
                admins[2],
                found,
                objective,
                journal,
                costs=costs,
                options=WatchOptions(save_interval_seconds=10.0),
            )
            watcher.run(stop.wait, _LOOK_SECONDS)
            decisions.extend(watcher.decisions)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
            failures.append(error)

    threads: list[threading.Thread] = []

    def started(topic: str) -> None:
        if objective is not None:
            threads.append(threading.Thread(target=watch, args=(topic,), name="compaction-watch"))
            threads[0].start()

    def finished() -> None:
        stop.set()
        for thread in threads:
            thread.join()

    result = run_cell(cluster, admins[0], admins[1], cell, clock, started=started, finished=finished)
    if failures:
        raise failures[0]
    return LoopResult(
        name=cell.name,
        bound_bytes=bound_bytes,
        share_over_bound=share_over(result, cell.warm_seconds, bound_bytes),
        size_max_bytes=result.size_max_bytes,
        cleaner_cores=result.cleaner_cores,
        request_cores=result.request_cores,
        changes=sum(decision.action == "change" for decision in decisions),
        cell=result,
        decisions=tuple(decisions),
    )
