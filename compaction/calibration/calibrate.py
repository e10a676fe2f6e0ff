"""Calibration: a few short runs on a scratch topic, and the costs of this broker fitted to them.

Every run is repeated in the simulator, which counts passes, records, rebuilt batches and bytes; the CPU that the
cleaner threads used is then divided among these counts (:mod:`stateflow.compaction.calibration.fit`). One more run
keeps the cleaner from ever being idle: what is then left of its time is spent waiting for the disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from stateflow.clock import SystemClock
from stateflow.compaction.calibration.broker_settings import cleaner_settings
from stateflow.compaction.calibration.cell import Cell, broker_process, run_cell
from stateflow.compaction.calibration.default_costs import default_costs, has_client_compiler_only, heap_bytes
from stateflow.compaction.calibration.fit import BUSY, Calibration, CalibrationRun, fit
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.simulate import Simulation, SimulationOptions
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.sensing.measure import only_local
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.errors import ConfigError, StateCorrupt
from stateflow.log.base import Cluster

PASSES, MIXED = "passes", "mixed"
VALUE_BYTES = (100, 1000)
"""Of the records that costs are calibrated with, unless told otherwise."""
_SMALL_BUFFER_BYTES = 4 << 20
"""Of one thread: what a pass then costs is hardly the filling of its buffer."""
_WARM_SECONDS = 3.0
_PARTITIONS_MANY = 32
_LOOKS_MIN = 15
"""Of a cleaner in a run: fewer tell little of what its passes cost."""
_OFTEN_MS = 100
_BUFFERS_IN_HEAP = 4
"""A heap of two ran out of memory: a buffer has to be one piece of the old generation."""


def calibration_cells(seconds: float, value_bytes: tuple[int, int]) -> list[Cell]:
    """Runs in which, one after another, another cost dominates; in the last the cleaner is never idle."""

    def cell(name: str, segment_ms: int, stream: Stream) -> Cell:
        stream = replace(stream, seconds=_WARM_SECONDS + seconds)
        policy = Policy(segment_ms=segment_ms, segment_index_bytes=65_536, dirty_ratio=0.01)
        return Cell(name, replace(policy, file_delete_delay_ms=1000), stream, _WARM_SECONDS, 0)

    low, high = value_bytes
    retained = Stream(state="retain-all", window_seconds=3600)
    return [
        cell(PASSES, 200, _uniform(200, 1000, value_bytes)),
        cell(MIXED, 400, Stream(keys=10_000, rates=_steady(4000), value_bytes=value_bytes)),
        cell("small records", 400, _uniform(200, 10_000, (8, 8))),
        cell("large records", 400, _uniform(200, 10_000, (high, high))),
        cell("records kept", 400, replace(retained, rates=_steady(4000), value_bytes=(low, low))),
        cell("bytes kept", 400, replace(retained, rates=_steady(3000), value_bytes=(high, high))),
        cell("batches rebuilt", 400, _uniform(20_000, 4000, value_bytes)),
        # A partition each 20 ms gets one record, which makes a batch of it.
        cell("small batches", 2000, replace(_uniform(1600, 1600, value_bytes), partitions=_PARTITIONS_MANY)),
        cell(BUSY, 60, replace(_uniform(800, 4000, value_bytes), partitions=4)),
    ]


def _uniform(keys: int, updates_per_second: float, value_bytes: tuple[int, int]) -> Stream:
    return Stream(keys=keys, rates=_steady(updates_per_second), zipf_exponent=None, value_bytes=value_bytes)


def _steady(updates_per_second: float) -> tuple[RateStep, ...]:
    return (RateStep(0.0, updates_per_second),)


def calibrate(
    cluster: Cluster,
    admin: ClusterAdmin,
    sampler_admin: ClusterAdmin,
    *,
    seconds: float = 6.0,
    value_bytes: tuple[int, int] = VALUE_BYTES,
    vary_buffer: bool = False,
    progress: Callable[[str], None] = lambda _text: None,
) -> Calibration:
    """Fit the costs of a local broker; takes about 100 s and loads one core of it. Other cleaning disturbs it.

    ``value_bytes``, smallest and largest, are those of the records that it is done with. ``vary_buffer`` makes most
    runs with a small dedupe buffer, and restarts the broker's cleaner threads for it: only then is it known which part
    of a pass grows with the buffer, and what the rest costs is not lost in it. Where the broker looks so seldom that
    the runs would see hardly a pass (as Kafka comes: every 15 s), it looks more often while they last. Raises
    ``ConfigError`` when the broker's CPU cannot be seen from here, and for such a broker without ``vary_buffer``.
    """
    cleaner = checked_cleaner(admin, seconds, vary_buffer=vary_buffer)
    rare = seldom(cleaner, seconds)
    pid = only_local(admin.broker_addresses())
    in_memory = pid is None or not has_client_compiler_only(pid)
    runs = []

    def run(cell: Cell, now: CleanerSettings) -> None:
        progress(f"calibrating: {cell.name}")
        result = run_cell(cluster, admin, sampler_admin, cell)
        options = SimulationOptions(warm_seconds=_WARM_SECONDS)
        simulation = Simulation(cell.stream.partitions, cell.policy, now, Costs(), options)
        runs.append(
            CalibrationRun(
                cell.name,
                result.seconds,
                result.cleaner_cores * result.seconds,
                result.cleaner_wait_cores * result.seconds,
                now.dedupe_buffer_bytes / now.threads,
                simulation.run(cell.stream.updates()).work,
                result.pace,
            )
        )

    cells = {cell.name: cell for cell in calibration_cells(seconds, value_bytes)}
    small = replace(cleaner, dedupe_buffer_bytes=_SMALL_BUFFER_BYTES * cleaner.threads)
    if rare:
        small = replace(small, backoff_ms=_OFTEN_MS)
        with cleaner_settings(admin, larger_beside(small, cleaner)):
            for name in (PASSES, MIXED, BUSY):
                run(cells[name], larger_beside(small, cleaner))
    elif not vary_buffer or small.dedupe_buffer_bytes > cleaner.dedupe_buffer_bytes / 2:
        for cell in cells.values():
            run(cell, cleaner)
        return fit(runs, cleaner, fill_awaits_memory=in_memory)
    else:
        for name in (PASSES, MIXED, BUSY):
            run(cells[name], cleaner)
    # What does not depend on the buffer shows best where filling it takes no time.
    with cleaner_settings(admin, small):
        for name in [name for name in cells if name != BUSY]:
            run(replace(cells[name], name=f"{name}, small buffer"), small)
    found = fit(runs, replace(cleaner, backoff_ms=small.backoff_ms), fill_awaits_memory=in_memory)
    return replace(found, cleaner=cleaner)


def checked_cleaner(admin: ClusterAdmin, seconds: float, *, vary_buffer: bool) -> CleanerSettings:
    """The cleaner settings of a broker that can be calibrated so. Raises ``ConfigError`` for one that cannot."""
    broker_process(admin, SystemClock())  # no other's CPU can be seen
    cleaner = admin.cleaner_settings(next(iter(admin.broker_addresses())))
    rare = seldom(cleaner, seconds)
    if rare and not vary_buffer:
        raise ConfigError(
            f"The cleaner of this broker looks every {cleaner.backoff_ms / 1000:g} s: runs of {seconds:g} s would see "
            "hardly a pass.",
            action="Add --vary-buffer, which sets its backoff and its buffer while the runs last, and puts them back.",
        )
    if rare:
        _check_heap(admin, cleaner)
    return cleaner


def _check_heap(admin: ClusterAdmin, cleaner: CleanerSettings) -> None:
    """A buffer that finds no room when it is put back would end the broker."""
    pid = only_local(admin.broker_addresses())
    heap = None if pid is None else heap_bytes(pid)
    if heap is not None and heap < _BUFFERS_IN_HEAP * cleaner.dedupe_buffer_bytes:
        raise ConfigError(
            f"A heap of {heap >> 20} MiB hardly has room for a dedupe buffer of "
            f"{cleaner.dedupe_buffer_bytes >> 20} MiB when that is put back after the runs.",
            action="Give it a larger heap, or calibrate a broker that was started with log.cleaner.backoff.ms=100.",
        )


def seldom(cleaner: CleanerSettings, seconds: float) -> bool:
    """True when runs of so many seconds would see too few passes of this cleaner."""
    return 1000 * seconds / max(1, cleaner.backoff_ms) < _LOOKS_MIN


def larger_beside(small: CleanerSettings, cleaner: CleanerSettings) -> CleanerSettings:
    """A buffer that is larger than the small one, and fits into a small heap beside the broker's own: threads that
    start anew have theirs while those before them still have it.
    """
    return replace(
        small, dedupe_buffer_bytes=max(cleaner.dedupe_buffer_bytes // 4, 4 * small.dedupe_buffer_bytes)
    )


def save(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(calibration), indent=1))
    temporary.replace(path)


def load(path: Path, cleaner: CleanerSettings, broker_pid: int | None = None) -> Costs:
    """The saved costs, or the defaults for this broker when there are none for these cleaner settings."""
    if not path.exists():
        return default_costs(broker_pid)
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
    return saved.costs if same else default_costs(broker_pid)
