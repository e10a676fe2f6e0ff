"""The costs of a broker, fitted to its calibration runs, and what speaks against trusting them.

Ten short runs do not tell nine costs apart: a run with many batches has many passes, too. Least squares of the runs
alone once made a batch nine times as expensive as by default and a pass six times as cheap: that explained each run to
a few percent, and was three times too high for a load that calibration does not have. So costs stay near the defaults
times the factor that all runs together show, as far as noise alone may have moved them from there (a ridge regression,
Hoerl and Kennard 1970).
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stateflow.compaction.calibration.default_costs import defaults_for
from stateflow.compaction.calibration.pace import at_pace, fill_slowness, pass_slowness, usual
from stateflow.compaction.model.costs import FITTED_AT, Costs, Pace
from stateflow.compaction.model.simulate import Work
from stateflow.compaction.settings.topic_settings import CleanerSettings

BUSY = "never idle"
"""The run that tells how long the cleaner waits for the disk."""
_FITTED = (
    "pass_seconds",
    "dirty_seconds_per_record",
    "dirty_seconds_per_byte",
    "read_seconds_per_record",
    "rebuild_seconds_per_batch",
    "rebuild_seconds_per_byte",
    "write_seconds_per_byte",
    "batch_seconds",
    "fill_seconds_per_byte",
)
"""Costs, in the order of ``Work.counts``; the last one counts bytes of dedupe buffer."""
_UNCERTAINTY_FACTOR_MIN = 2.0
"""However well the runs fit: with a load of 20 on two cores the same pass took up to 1.7 times the CPU."""
_RUN_NOISE, _COST_SPREAD = 0.15, 0.4
"""How far the CPU of a run is off by chance, and how far single costs of a broker are from the defaults, beside what
all have in common: relative, one standard deviation. The thirty runs that defaults were fitted to are 12 to 14 % off,
and the defaults before those were a quarter to a half off, each in its own direction.
"""
_SWEEPS = 20_000
_CONTRADICTS = 2.5
"""Times the defaults, or a part of them: on an undisturbed machine it was 1.14."""
_WAITED_MAX = 0.5
"""Of their CPU, that cleaner threads may have waited for a core; on an undisturbed machine it is 0.04 to 0.12."""
_PACES_APART_MAX = 2.0
"""The slowest run's pace in terms of the fastest one's; on an undisturbed machine it is 1.4."""
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """One run: what the cleaner threads used, and what the simulator counted."""

    name: str
    seconds: float
    cleaner_seconds: float
    cleaner_wait_seconds: float
    """Ready, but without a core."""
    buffer_bytes: float
    """Dedupe buffer of one cleaner thread."""
    work: Work
    pace: Pace = FITTED_AT
    """How fast the machine was."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted costs, the cleaner settings they hold for, and how far each run is off."""

    costs: Costs
    cleaner: CleanerSettings
    errors: dict[str, float]
    """Run → predicted / measured − 1."""
    runs: tuple[CalibrationRun, ...]
    """What the costs were fitted to."""
    beside_defaults: float
    """CPU that the runs took, in terms of what default costs say at the machine's pace; the median run's."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against predicting with it, as sentences; nothing most of the time."""
        return tuple(_doubts(self))


def fit(
    runs: Sequence[CalibrationRun], cleaner: CleanerSettings, *, fill_awaits_memory: bool = True
) -> Calibration:
    """The costs that explain the runs, in relative terms; ``cleaner`` as they ran with it, but for buffers."""
    pace = usual([run.pace for run in runs])
    base = at_pace(defaults_for(client_compiler_only=not fill_awaits_memory), pace)
    fitted = [run for run in runs if run.name != BUSY]
    rows = [_row(run, base, cleaner) for run in fitted]
    near = [getattr(base, name) for name in _FITTED]
    found = _fit_near(rows, near)
    errors = {run.name: _explained(row, found) - 1 for run, row in zip(fitted, rows, strict=True)}
    spread = math.sqrt(sum(error**2 for error in errors.values()) / len(errors))
    work: dict[str, Any] = dict(zip(_FITTED, found, strict=True))
    costs = replace(
        base,
        **work,
        source="calibrated on this broker",
        uncertainty_factor=max(_UNCERTAINTY_FACTOR_MIN, 1 + 2 * spread),
    )
    for run in [run for run in runs if run.name == BUSY]:
        costs = replace(costs, sync_seconds=_sync_seconds(run, costs, cleaner))
    return Calibration(costs, cleaner, errors, tuple(runs), _factor(rows, near))


def _row(run: CalibrationRun, base: Costs, cleaner: CleanerSettings) -> list[float]:
    """What one second of each cost adds to the CPU of this run, as a share of what was measured."""
    measured = max(1e-9, run.cleaner_seconds - base.looking_cores(cleaner) * run.seconds)
    slower = pass_slowness(run.pace.loop_seconds / base.pace.loop_seconds)
    fills = fill_slowness(base, run.pace) * run.work.passes * run.buffer_bytes
    return [slower * count / measured for count in run.work.counts] + [fills / measured]


def _fit_near(rows: Rows, near: Sequence[float]) -> list[float]:
    """Least squares of the runs, and of how far each cost is from the default times the factor of these runs."""
    factor, weight = _factor(rows, near), _RUN_NOISE / _COST_SPREAD
    held = [
        [weight / (factor * cost) if column == number else 0.0 for column in range(len(near))]
        for number, cost in enumerate(near)
    ]
    return _nonnegative_least_squares([*rows, *held], [1.0] * len(rows) + [weight] * len(held))


def _factor(rows: Rows, near: Sequence[float]) -> float:
    return 1 / statistics.median(_explained(row, near) for row in rows)


def _explained(row: Sequence[float], costs: Sequence[float]) -> float:
    """The share of a run's CPU that such costs explain: 1 when it is all of it."""
    return math.fsum(map(operator.mul, row, costs))


def _doubts(found: Calibration) -> Iterator[str]:
    factor = found.beside_defaults
    if not 1 / _CONTRADICTS <= factor <= _CONTRADICTS:
        yield (
            f"the runs took {factor:.2g} times the CPU that default costs say for this JVM and machine: a broker that "
            "has just started, other topics that are cleaned, or a machine that is busy do that"
        )
    worked = sum(run.cleaner_seconds for run in found.runs)
    waited = sum(run.cleaner_wait_seconds for run in found.runs)
    if waited > _WAITED_MAX * worked:
        yield f"cleaner threads waited for a core {waited / max(1e-9, worked):.1f} times as long as they ran"
    loops = [run.pace.loop_seconds for run in found.runs]
    if max(loops) > _PACES_APART_MAX * min(loops):
        yield f"the machine was {max(loops) / min(loops):.1f} times as fast in one run as in another"


def _sync_seconds(run: CalibrationRun, costs: Costs, cleaner: CleanerSettings) -> float:
    """Wall time per segment written that is not CPU: what a cleaner that is never idle does not use of its time."""
    ran = replace(cleaner, dedupe_buffer_bytes=round(run.buffer_bytes * cleaner.threads))
    per_segment = costs.cpu_seconds(ran, run.work.counts) / max(1, run.work.segments_written)
    working = run.cleaner_seconds - costs.looking_cores(cleaner) * run.seconds
    resting = cleaner.threads * run.seconds - working - run.cleaner_wait_seconds
    return max(0.0, per_segment * resting / working)


def _nonnegative_least_squares(rows: Rows, wanted: Sequence[float]) -> list[float]:
    """Least squares with no negative coefficient, by coordinate descent: small, convex, always converges."""
    width = len(rows[0])
    scales = [math.sqrt(sum(row[column] ** 2 for row in rows)) or 1.0 for column in range(width)]
    matrix = [[row[column] / scales[column] for column in range(width)] for row in rows]
    columns = list(zip(*matrix, strict=True))
    found = [0.0] * width
    residual = list(wanted)
    for _ in range(_SWEEPS):
        moved = 0.0
        for number, column in enumerate(columns):
            gain = sum(map(operator.mul, column, residual))
            new = max(0.0, found[number] + gain)  # every column has length 1
            step = new - found[number]
            if step:
                found[number] = new
                residual = [rest - step * value for rest, value in zip(residual, column, strict=True)]
                moved = max(moved, abs(step))
        if moved < 1e-12:
            break
    return [value / scale for value, scale in zip(found, scales, strict=True)]
