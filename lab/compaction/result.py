"""What a study found: per cell measured and predicted, per objective the grid against ours, the loop's bound."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stateflow.compaction.calibration.fit import Calibration
from stateflow.compaction.control.watch import Decision
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.lab.compaction.loop import LoopResult
from stateflow.lab.compaction.plan import StudyOptions
from stateflow.lab.compaction.stock_result import StockFigures
from stateflow.lab.compaction.trimmed import TrimmedResult

LATE_SECONDS_MAX = 1.0
"""A producer that fell further behind did not write at the rate that the cell names."""
RECORDS_TOLERANCE = 0.05
"""Of the simulated number of records: what its predictions of sizes are at most off by."""
WAIT_SHARE_MAX = 0.15
"""A cleaner that waited for a core for longer than this share of its own CPU time was held up by other work."""
PACE_CHANGE_MAX = 0.15
"""A cell during which the machine was faster or slower than this, compared with its calibration, shows that, too."""


@dataclass(frozen=True, slots=True)
class CellFigures:
    """One policy under one workload: measured, simulated, and by the closed form."""

    setup: str
    name: str
    ours: bool
    policy: Policy
    size_mean_bytes: float
    size_max_bytes: float
    size_max_spread: float
    """(Largest − smallest) / mean over the repeats."""
    cleaner_cores: float
    request_cores: float
    broker_cores: float
    cleaner_wait_cores: float
    records_end: int
    live_end: int
    record_bytes: float
    restore_seconds: float
    restore_spread: float
    late_seconds: float
    simulated_records_max: int
    simulated_size_mean_bytes: float
    simulated_size_max_bytes: float
    simulated_cleaner_cores: float
    """For a machine as fast as it was while the cell ran."""
    simulated_cleaner_cores_uncorrected: float
    """For a machine as fast as when costs were calibrated."""
    slowness: float
    """CPU time of the same small loop then, in terms of what it was when costs were calibrated."""
    closed_size_max_bytes: float | None
    closed_cleaner_cores: float
    sizes: tuple[tuple[float, int], ...]

    @property
    def disturbed(self) -> bool:
        """True when the cleaner waited for a core, the producer was late, or the machine ran at another pace."""
        waited = self.cleaner_wait_cores > WAIT_SHARE_MAX * max(self.cleaner_cores, 0.01)
        at_other_pace = abs(self.slowness - 1) > PACE_CHANGE_MAX
        return waited or at_other_pace or self.late_seconds > LATE_SECONDS_MAX

    def holds(self, bound_bytes: float, records_max: float) -> bool:
        """True when the log stayed within both; small records take time to restore, too. They are counted at the end
        only, so the simulator has to agree for the time before.
        """
        records = max(self.records_end, (1 - RECORDS_TOLERANCE) * self.simulated_records_max)
        return self.size_max_bytes <= bound_bytes and records <= records_max

    @property
    def size_error(self) -> float:
        """Simulated largest log / measured − 1."""
        return self.simulated_size_max_bytes / self.size_max_bytes - 1

    @property
    def cpu_error(self) -> float:
        """Simulated cleaner CPU / measured − 1."""
        return self.simulated_cleaner_cores / max(self.cleaner_cores, 1e-9) - 1

    @property
    def cpu_error_uncorrected(self) -> float:
        """The same, had the machine been as fast as when costs were calibrated."""
        return self.simulated_cleaner_cores_uncorrected / max(self.cleaner_cores, 1e-9) - 1


@dataclass(frozen=True, slots=True)
class ObjectiveFigures:
    """One restore objective: the cheapest cell of the grid that holds it, and our recommendation, measured."""

    setup: str
    factor: float
    """The objective as a log of so many times the records that it must hold at its fullest: the live ones, and with
    windows the tombstones of the one that closes.
    """
    bound_bytes: float
    restore_seconds: float
    grid_best: str | None
    grid_cleaner_cores: float | None
    grid_broker_cores: float | None
    ours_cleaner_cores: float | None
    ours_broker_cores: float | None
    ours_size_max_bytes: float | None
    ours_restore_seconds: float | None
    ours_restore_predicted_seconds: float | None
    with_buffer_cleaner_cores: float | None
    """Ours with a dedupe buffer that fits the topic, a setting of the whole broker."""
    held: bool
    with_buffer_broker_cores: float | None = None
    with_buffer_held: bool = False
    grid_cleaner_cores_with_margin: float | None = None
    """Of the grid's cheapest cell that keeps as much of the bound free as ours was asked to."""

    @property
    def ratio_with_margin(self) -> float | None:
        """Our cleaner CPU over that of the grid's best with the same margin: without one, a cell may hold by luck."""
        if not self.grid_cleaner_cores_with_margin or self.ours_cleaner_cores is None:
            return None
        return self.ours_cleaner_cores / self.grid_cleaner_cores_with_margin

    @property
    def ratio_with_buffer(self) -> float | None:
        """The same with a dedupe buffer that fits the topic."""
        if not self.grid_cleaner_cores or self.with_buffer_cleaner_cores is None:
            return None
        return self.with_buffer_cleaner_cores / self.grid_cleaner_cores

    @property
    def ratio(self) -> float | None:
        """Our cleaner CPU over the grid's; None when one of the two cannot hold the objective."""
        if not self.grid_cleaner_cores or self.ours_cleaner_cores is None:
            return None
        return self.ours_cleaner_cores / self.grid_cleaner_cores


@dataclass(frozen=True, slots=True)
class TrimFigures:
    """A policy without the cleaner, bounded as one of the objectives is."""

    setup: str
    factor: float
    result: TrimmedResult
    log_records_bound: float

    @property
    def held(self) -> bool:
        """True when what a restore has to read stayed within the bound."""
        return self.result.log_records_max <= self.log_records_bound


@dataclass(frozen=True, slots=True)
class Way:
    """One way of ours to hold an objective, measured."""

    name: str
    cleaner_cores: float
    broker_cores: float
    held: bool


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """One run through the rate step."""

    name: str
    bound_bytes: float
    share_over_bound: float
    size_max_bytes: float
    cleaner_cores: float
    changes: int
    sizes: tuple[tuple[float, int], ...]
    decisions: tuple[Decision, ...]

    @classmethod
    def of(cls, result: LoopResult) -> LoopFigures:
        """From a run, without what the report does not need."""
        return cls(
            name=result.name,
            bound_bytes=result.bound_bytes,
            share_over_bound=result.share_over_bound,
            size_max_bytes=result.size_max_bytes,
            cleaner_cores=result.cleaner_cores,
            changes=result.changes,
            sizes=tuple((sample.seconds, sample.size_bytes) for sample in result.cell.sizes),
            decisions=result.decisions,
        )


@dataclass(frozen=True, slots=True)
class Study:
    """All figures of one study."""

    options: StudyOptions
    broker: str
    cleaner: CleanerSettings
    calibration: Calibration
    cells: tuple[CellFigures, ...]
    objectives: tuple[ObjectiveFigures, ...]
    trims: tuple[TrimFigures, ...]
    loops: tuple[LoopFigures, ...]
    stock: StockFigures | None = None
    """Of brokers with the cleaner's own defaults; None when they were left out."""

    def summary(self) -> dict[str, Any]:
        """Everything but the time series, as plain data for JSON."""
        watched = next((loop for loop in self.loops if "watched" in loop.name), None)
        return {
            "broker": self.broker,
            "cells": [_cell_summary(cell) for cell in self.cells],
            "objectives": [
                _objective_summary(objective)
                | {"ways": [_way_summary(way, objective) for way in self.ways(objective)]}
                for objective in self.objectives
            ],
            "ratio_at_tightest": self.ratio_at_tightest(),
            "tightest": self._tightest_summary(),
            "prediction_errors": prediction_errors(self.cells),
            "prediction_errors_undisturbed": prediction_errors(
                [cell for cell in self.cells if not cell.disturbed]
            ),
            "disturbed_cells": [cell.name for cell in self.cells if cell.disturbed],
            "trims": [
                {
                    "setup": trim.setup,
                    "log_at_most_times_live": trim.factor,
                    "held": trim.held,
                    "policy": trim.result.name,
                    "size_max_bytes": trim.result.size_max_bytes,
                    "cleaner_cores": trim.result.cleaner_cores,
                    "broker_cores": trim.result.broker_cores,
                    "client_cores": trim.result.client_cores,
                    "writes_per_update": trim.result.writes_per_update,
                    "restore_seconds": trim.result.restore_seconds,
                }
                for trim in self.trims
            ],
            "loops": [
                {
                    "name": loop.name,
                    "share_over_bound": loop.share_over_bound,
                    "size_max_over_bound": loop.size_max_bytes / loop.bound_bytes,
                    "cleaner_cores": loop.cleaner_cores,
                    "changes": loop.changes,
                }
                for loop in self.loops
            ],
            "stock_broker": None if self.stock is None else self.stock.summary(),
            "loop_share_over_bound": watched.share_over_bound if watched else None,
        }

    def ways(self, objective: ObjectiveFigures) -> list[Way]:
        """All ways of ours that were measured at an objective, cheapest for the broker first."""
        found = []
        if objective.ours_cleaner_cores is not None and objective.ours_broker_cores is not None:
            cores = objective.ours_cleaner_cores, objective.ours_broker_cores
            found.append(Way("topic settings", *cores, objective.held))
        if objective.with_buffer_cleaner_cores is not None and objective.with_buffer_broker_cores is not None:
            cores = objective.with_buffer_cleaner_cores, objective.with_buffer_broker_cores
            found.append(Way("topic settings, fitting buffer", *cores, objective.with_buffer_held))
        found += [
            Way(trim.result.name, trim.result.cleaner_cores, trim.result.broker_cores, trim.held)
            for trim in self.trims
            if (trim.setup, trim.factor) == (objective.setup, objective.factor)
        ]
        return sorted(found, key=lambda way: way.broker_cores)

    def ratio_at_tightest(self) -> float | None:
        """Our cleaner CPU over the grid's at the tightest objective where there are both; None where no fixed setting
        held any, or none of ours could be recommended. Whether ours held is told beside it.
        """
        tightest = self.tightest()
        return None if tightest is None else tightest.ratio

    def tightest(self) -> ObjectiveFigures | None:
        """The tightest objective at which our CPU can be compared with the grid's."""
        comparable = [one for one in self.objectives if one.ratio is not None]
        return min(comparable, key=lambda one: one.factor, default=None)

    def _tightest_summary(self) -> dict[str, Any]:
        tightest = self.tightest()
        if tightest is None:
            return {
                "not_comparable": "no fixed setting of the grid held an objective that ours was measured at"
            }
        return {"log_at_most_times_live": tightest.factor, "held": tightest.held}


def _way_summary(way: Way, objective: ObjectiveFigures) -> dict[str, Any]:
    grid_cleaner, grid_broker = objective.grid_cleaner_cores, objective.grid_broker_cores
    return {
        "way": way.name,
        "held": way.held,
        "cleaner_cores": way.cleaner_cores,
        "broker_cores": way.broker_cores,
        "cleaner_ratio": way.cleaner_cores / grid_cleaner if grid_cleaner else None,
        "broker_ratio": way.broker_cores / grid_broker if grid_broker else None,
    }


def mean_abs(values: Iterable[float]) -> float | None:
    """Mean of the absolute values; None of none."""
    found = [abs(value) for value in values]
    return statistics.fmean(found) if found else None


def prediction_errors(cells: Sequence[CellFigures]) -> dict[str, Any]:
    """Mean and largest absolute errors of the simulator's predictions; None of no cells."""
    return {
        "cells": len(cells),
        "size_mean_abs": mean_abs(cell.size_error for cell in cells),
        "size_max_abs": max((abs(cell.size_error) for cell in cells), default=None),
        "cleaner_cpu_mean_abs": mean_abs(cell.cpu_error for cell in cells),
        "cleaner_cpu_uncorrected_mean_abs": mean_abs(cell.cpu_error_uncorrected for cell in cells),
        "cleaner_cpu_max_abs": max((abs(cell.cpu_error) for cell in cells), default=None),
    }


def _cell_summary(cell: CellFigures) -> dict[str, Any]:
    return {
        "setup": cell.setup,
        "cell": cell.name,
        "ours": cell.ours,
        "size_max_bytes": cell.size_max_bytes,
        "size_max_predicted_bytes": cell.simulated_size_max_bytes,
        "size_max_closed_form_bytes": cell.closed_size_max_bytes,
        "cleaner_cores": cell.cleaner_cores,
        "cleaner_cores_predicted": cell.simulated_cleaner_cores,
        "cleaner_cores_predicted_uncorrected": cell.simulated_cleaner_cores_uncorrected,
        "machine_slowness": cell.slowness,
        "cleaner_cores_closed_form": cell.closed_cleaner_cores,
        "broker_cores": cell.broker_cores,
        "cleaner_wait_cores": cell.cleaner_wait_cores,
        "disturbed": cell.disturbed,
        "restore_seconds": cell.restore_seconds,
        "restore_spread": cell.restore_spread,
        "records_end": cell.records_end,
        "live_end": cell.live_end,
        "policy": cell.policy.to_config(),
    }


def _objective_summary(objective: ObjectiveFigures) -> dict[str, Any]:
    return {
        "setup": objective.setup,
        "log_at_most_times_live": objective.factor,
        "restore_seconds": objective.restore_seconds,
        "grid_best": objective.grid_best,
        "grid_cleaner_cores": objective.grid_cleaner_cores,
        "ours_cleaner_cores": objective.ours_cleaner_cores,
        "ratio": objective.ratio,
        "ratio_with_the_same_margin": objective.ratio_with_margin,
        "ours_with_fitting_buffer_cleaner_cores": objective.with_buffer_cleaner_cores,
        "ratio_with_fitting_buffer": objective.ratio_with_buffer,
        "held": objective.held,
        "ours_restore_seconds": objective.ours_restore_seconds,
        "ours_restore_predicted_seconds": objective.ours_restore_predicted_seconds,
    }
