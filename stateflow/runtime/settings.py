"""How a worker behaves, apart from what the application computes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from stateflow.config import WorkerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(WorkerOptions):
    """Limits and intervals of one worker. Every queue and every wait in the runtime is bounded by one of these.

    Unlike the settings that people write these are not checked: simulations want a commit interval or restore
    threads of 0, which restores on the poll thread.
    """

    poll_timeout_seconds: float = 0.1
    restore_records_per_step: int = 20_000
    standby_records_per_slice: int = 5_000
    standby_slice_seconds: float = 0.05
    """Bounds of one slice of work on standby copies: records and time."""


def worker_settings(options: WorkerOptions, member: str | None = None) -> WorkerSettings:
    """The part of an application's options that concerns one worker, perhaps with a name of its own."""
    shared = {field.name: getattr(options, field.name) for field in fields(WorkerOptions)}
    return WorkerSettings(**{**shared, "member": member or options.member})
