"""What the study's stock brokers showed, and its summary."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

STOCK = CleanerSettings()
_SLOWNESS_MAX = 1.5


@dataclass(frozen=True, slots=True)
class StockCell:
    """One log over time, and what was promised of it."""

    name: str
    policy: Policy
    cleaner: CleanerSettings
    size_max_bytes: float
    size_mean_bytes: float
    expected_bytes: float
    """Predicted largest log."""
    promised_bytes: float
    """The most that it may be, in any phase of segments to looks."""
    cleaner_cores: float | None
    """None where other topics shared the cleaner."""
    uncalibrated_cores: float
    calibrated_cores: float
    late: bool
    """The producer was late, so the load was another."""
    slowness: float
    """Time that the cleaner took for its passes, in terms of their CPU: more than 1 where it waited for a core."""

    @property
    def disturbed(self) -> bool:
        """True when the machine was too busy for a prediction. A promise counts the waiting, and holds all the same."""
        return self.late or self.slowness > _SLOWNESS_MAX

    @property
    def broken(self) -> bool:
        """True when the log was larger than promised."""
        return self.size_max_bytes > self.promised_bytes


@dataclass(frozen=True, slots=True)
class StockObjective:
    """A recommendation with a bound on disk or CPU, measured."""

    name: str
    bound: float
    """Bytes, or cores."""
    measured: float
    cell: StockCell

    @property
    def held(self) -> bool:
        """True when it was kept."""
        return self.measured <= self.bound


@dataclass(frozen=True, slots=True)
class StockFigures:
    """What the stock brokers showed."""

    cells: tuple[StockCell, ...]
    bound_bytes: float
    """Of the objective that hand and tuner were given."""
    hand: StockCell
    tuned: StockCell
    with_broker_settings: StockCell
    put_back: bool
    """True when the broker's settings afterwards were those before."""
    objectives: tuple[StockObjective, ...] = ()
    """Recommendations for other objectives, measured."""

    def summary(self) -> dict[str, Any]:
        """As plain data for JSON."""
        counted = [cell for cell in self.cells if not cell.late]
        return {
            "backoff_ms": STOCK.backoff_ms,
            "dedupe_buffer_bytes": STOCK.dedupe_buffer_bytes,
            "cells": len(self.cells),
            "late_cells": len(self.cells) - len(counted),
            "bound_broken": sum(cell.broken for cell in counted),
            "promised_to_largest_mean": _mean_abs(
                cell.promised_bytes / cell.size_max_bytes for cell in counted
            ),
            "cpu_ratio_to_hand": _ratio(self.tuned, self.hand),
            "cpu_ratio_to_hand_with_broker_settings": _ratio(self.with_broker_settings, self.hand),
            "broker_settings_put_back": self.put_back,
            "errors": _errors(self.cells),
            "errors_undisturbed": _errors([cell for cell in self.cells if not cell.disturbed]),
            "hand": _cell_summary(self.hand, self.bound_bytes),
            "tuned": _cell_summary(self.tuned, self.bound_bytes),
            "with_broker_settings": _cell_summary(self.with_broker_settings, self.bound_bytes),
            "objectives": [
                {"objective": one.name, "bound": one.bound, "measured": one.measured, "held": one.held}
                for one in self.objectives
            ],
        }


def _errors(cells: Sequence[StockCell]) -> dict[str, float | int | None]:
    """Mean absolute errors of the predictions; None of no cells."""
    alone = [(cell, cell.cleaner_cores) for cell in cells if cell.cleaner_cores]
    return {
        "cells": len(cells),
        "size_mean_abs": _mean_abs(cell.expected_bytes / cell.size_max_bytes - 1 for cell in cells),
        "cpu_uncalibrated_mean_abs": _mean_abs(cell.uncalibrated_cores / cores - 1 for cell, cores in alone),
        "cpu_calibrated_mean_abs": _mean_abs(cell.calibrated_cores / cores - 1 for cell, cores in alone),
    }


def _ratio(cell: StockCell, hand: StockCell) -> float | None:
    if not cell.cleaner_cores or not hand.cleaner_cores:
        return None
    return cell.cleaner_cores / hand.cleaner_cores


def _mean_abs(values: Iterable[float]) -> float | None:
    found = [abs(value) for value in values]
    return statistics.fmean(found) if found else None


def _cell_summary(cell: StockCell, bound_bytes: float) -> dict[str, Any]:
    return {
        "policy": cell.policy.to_config(),
        "backoff_ms": cell.cleaner.backoff_ms,
        "dedupe_buffer_bytes": cell.cleaner.dedupe_buffer_bytes,
        "size_max_bytes": cell.size_max_bytes,
        "size_max_predicted_bytes": cell.expected_bytes,
        "slowness": cell.slowness,
        "held": cell.size_max_bytes <= bound_bytes,
        "cleaner_cores": cell.cleaner_cores,
        "cleaner_cores_predicted_uncalibrated": cell.uncalibrated_cores,
        "cleaner_cores_predicted": cell.calibrated_cores,
    }
