"""Calibration: a few short runs on a scratch topic, and the costs of this broker fitted to them.

Every run is repeated in the simulator, which counts passes and records read and written; the CPU that the
cleaner threads used is then divided among these counts by non-negative least squares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.experiment.cell import Cell, run_cell
from stateflow.compaction.model.closed_form import Costs
from stateflow.compaction.model.simulate import Simulation, SimulationOptions, Work
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.settings.policy import CleanerSettings, Policy
from stateflow.errors import StateCorrupt
from stateflow.log.base import Cluster

_WARM_SECONDS = 3.0
_UNCERTAINTY_FACTOR_MIN = 1.15
_SWEEPS = 20_000


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """One run: what the cleaner threads used, and what the simulator counted."""

    name: str
    cleaner_seconds: float
    work: Work


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted costs, the cleaner settings they hold for, and how far each run is off."""

    costs: Costs
    cleaner: CleanerSettings
    errors: dict[str, float]
    """Run → predicted / measured − 1."""


def calibration_cells(seconds: float) -> list[Cell]:
    """Runs in which, one after another, passes, records written, records read, and a mixture dominate."""

    def cell(name: str, segment_ms: int, keys: int, rate: float, value_bytes: int) -> Cell:
        stream = Stream(
            keys=keys,
            rates=(RateStep(0.0, rate),),
            seconds=_WARM_SECONDS + seconds,
            zipf_exponent=None,
            value_bytes=(value_bytes, value_bytes),
        )
        policy = Policy(segment_ms=segment_ms, segment_index_bytes=65_536, dirty_ratio=0.01)
        return Cell(name, replace(policy, file_delete_delay_ms=1000), stream, _WARM_SECONDS, 0)

    return [
        cell("many passes", 200, 200, 1000, 100),
        cell("much written", 400, 20_000, 4000, 100),
        cell("much read", 400, 200, 12_000, 100),
        cell("mixed", 600, 6000, 3000, 500),
    ]


def calibrate(
    cluster: Cluster,
    admin: ClusterAdmin,
    sampler_admin: ClusterAdmin,
    *,
    seconds: float = 6.0,
    progress: Callable[[str], None] = lambda _text: None,
) -> Calibration:
    """Fit the costs of a local broker; takes about 50 s and loads one core of it. Other cleaning disturbs it.

    Raises ``ConfigError`` when the broker's CPU cannot be seen from here.
    """
    cleaner = admin.cleaner_settings(next(iter(admin.broker_addresses())))
    runs = []
    for cell in calibration_cells(seconds):
        progress(f"calibrating: {cell.name}")
        result = run_cell(cluster, admin, sampler_admin, cell)
        simulation = Simulation(
            cell.stream.partitions,
            cell.policy,
            cleaner,
            Costs(),
            SimulationOptions(warm_seconds=_WARM_SECONDS),
        )
        work = simulation.run(cell.stream.updates()).work
        runs.append(CalibrationRun(cell.name, result.cleaner_cores * result.seconds, work))
    return fit(runs, cleaner)


def fit(runs: Sequence[CalibrationRun], cleaner: CleanerSettings) -> Calibration:
    """Costs per pass, per record read and per record written that explain the runs best, in relative terms."""
    rows = [
        [
            run.work.passes / run.cleaner_seconds,
            run.work.read / run.cleaner_seconds,
            run.work.written / run.cleaner_seconds,
        ]
        for run in runs
    ]
    per_pass, per_read, per_written = _nonnegative_least_squares(rows, [1.0] * len(rows))
    base = Costs()
    own = min(base.pass_seconds, per_pass)
    fill_bytes = cleaner.dedupe_buffer_bytes / cleaner.threads
    costs = replace(
        base,
        pass_seconds=own,
        fill_seconds_per_byte=(per_pass - own) / fill_bytes,
        read_seconds_per_record=per_read,
        write_seconds_per_record=per_written,
        source="calibrated on this broker",
    )
    errors = {
        run.name: row[0] * per_pass + row[1] * per_read + row[2] * per_written - 1
        for run, row in zip(runs, rows, strict=True)
    }
    spread = math.sqrt(sum(error**2 for error in errors.values()) / len(errors))
    return Calibration(
        replace(costs, uncertainty_factor=max(_UNCERTAINTY_FACTOR_MIN, 1 + 2 * spread)), cleaner, errors
    )


def _nonnegative_least_squares(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Least squares with no negative coefficient, by coordinate descent: small, convex, always converges."""
    width = len(rows[0])
    scales = [math.sqrt(sum(row[column] ** 2 for row in rows)) or 1.0 for column in range(width)]
    matrix = [[row[column] / scales[column] for column in range(width)] for row in rows]
    found = [0.0] * width
    residual = list(wanted)
    for _ in range(_SWEEPS):
        moved = 0.0
        for column in range(width):
            gain = sum(row[column] * rest for row, rest in zip(matrix, residual, strict=True))
            new = max(0.0, found[column] + gain)  # every column has length 1
            step = new - found[column]
            found[column] = new
            residual = [rest - step * row[column] for row, rest in zip(matrix, residual, strict=True)]
            moved = max(moved, abs(step))
        if moved < 1e-12:
            break
    return [value / scale for value, scale in zip(found, scales, strict=True)]


def save(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(calibration), indent=1))
    temporary.replace(path)


def load(path: Path, cleaner: CleanerSettings) -> Costs:
    """The saved costs, or the defaults when there are none for these cleaner settings."""
    if not path.exists():
        return Costs()
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except msgspec.DecodeError as error:
        raise StateCorrupt(
            f"{path} is not a calibration: {error}.", action="Delete it, and calibrate again."
        ) from error
    same = (saved.cleaner.threads, saved.cleaner.dedupe_buffer_bytes) == (
        cleaner.threads,
        cleaner.dedupe_buffer_bytes,
    )
    return saved.costs if same else Costs()
