"""Costs where nothing was calibrated: by the compiler that the broker's JVM uses, which can be read on this machine."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stateflow.compaction.calibration.pace import PaceProbe, at_pace, in_steps
from stateflow.compaction.model.costs import Costs, Pace

_HEAP, _SHIFTS = re.compile(r"-Xmx(\d+)([kmgKMG]?)"), {"": 0, "k": 10, "m": 20, "g": 30}
_CLIENT_ONLY = b"-XX:TieredStopAtLevel=1"
CLIENT_COMPILER = replace(
    Costs(),
    pass_seconds=0.0038,
    fill_seconds_per_byte=4.5e-10,
    fill_awaits_memory=False,
    dirty_seconds_per_record=1.15e-6,
    dirty_seconds_per_byte=0.39e-9,
    read_seconds_per_record=0.5e-6,
    batch_seconds=1.25e-6,
    rebuild_seconds_per_batch=7.5e-6,
    rebuild_seconds_per_byte=0.57e-9,
    write_seconds_per_byte=0.13e-9,
    look_seconds=0.00045,
    uncertainty_factor=4.0,
    source="defaults for a JVM with the client compiler only",
)
"""Fitted to sixteen runs of embedded brokers, at one pace and another: without the server compiler, filling the dedupe
buffer with zeros takes seven times as long, indexing a record twice; the rest of a pass differs little.
"""


def default_costs(broker_pid: int | None) -> Costs:
    """For the broker with this process, on a machine about as fast as this is; a broker elsewhere is taken to have both
    compilers, as usual, and the machine that the defaults were fitted on.
    """
    if broker_pid is None:
        return Costs()
    costs = defaults_for(client_compiler_only=has_client_compiler_only(broker_pid))
    return at_pace(costs, in_steps(_pace_here(), costs.pace))


def defaults_for(*, client_compiler_only: bool) -> Costs:
    """By the compilers of the broker's JVM, on the machine that they were fitted on."""
    return CLIENT_COMPILER if client_compiler_only else Costs()


@functools.cache
def _pace_here() -> Pace:
    """Told once in a process: an application has many changelogs, and the memory that is filled is 64 MiB."""
    return PaceProbe().undisturbed()


def has_client_compiler_only(broker_pid: int) -> bool:
    """True when the process's command line says so; False for another user's, or one that has just ended."""
    return _CLIENT_ONLY in _arguments(broker_pid)


def heap_bytes(broker_pid: int) -> int | None:
    """The largest heap that its command line allows the process; None where it does not say."""
    return heap_of(_arguments(broker_pid))


def heap_of(arguments: Sequence[bytes]) -> int | None:
    """The same of these arguments of a JVM, of which the last one counts."""
    found = [
        match for one in arguments if (match := _HEAP.fullmatch(one.decode(errors="replace"))) is not None
    ]
    return int(found[-1][1]) << _SHIFTS[found[-1][2].lower()] if found else None


def _arguments(broker_pid: int) -> list[bytes]:
    try:
        return (Path("/proc") / str(broker_pid) / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return []
