"""Costs where nothing was calibrated: by the compiler that the broker's JVM uses, which can be read on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stateflow.compaction.calibration.pace import at_pace, pace_now
from stateflow.compaction.model.costs import Costs

_CLIENT_ONLY = b"-XX:TieredStopAtLevel=1"
CLIENT_COMPILER = replace(
    Costs(),
    pass_seconds=0.0042,
    fill_seconds_per_byte=3.55e-10,
    dirty_seconds_per_record=1.0e-6,
    dirty_seconds_per_byte=1.0e-9,
    read_seconds_per_record=0.85e-6,
    batch_seconds=4e-6,
    rebuild_seconds_per_batch=1e-5,
    rebuild_seconds_per_byte=1e-9,
    write_seconds_per_byte=0.15e-9,
    look_seconds=0.0015,
    uncertainty_factor=4.0,
    source="defaults for a JVM with the client compiler only",
)
"""Fitted to calibrations of the embedded broker: without the server compiler, filling the dedupe buffer with zeros
takes seven times as long, the rest of a pass up to three times, a look once in a second four times.
"""


def default_costs(broker_pid: int | None) -> Costs:
    """For the broker with this process, on a machine as fast as this is now; a broker elsewhere is taken to have both
    compilers, as usual, and the machine that the defaults were fitted on.
    """
    if broker_pid is None:
        return Costs()
    return at_pace(CLIENT_COMPILER if has_client_compiler_only(broker_pid) else Costs(), pace_now())


def has_client_compiler_only(broker_pid: int) -> bool:
    """True when the process's command line says so; False for another user's, or one that has just ended."""
    try:
        arguments = (Path("/proc") / str(broker_pid) / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False
    return _CLIENT_ONLY in arguments
