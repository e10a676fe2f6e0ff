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
    slice_records_first: int = 1
    slice_records_max: int = 512
    """Records that are processed without a look at the clock: before it is known how long they take, and at most.

    A step that turns slow in the middle of a slice is noticed at its end: 512 records are 10 s at 20 ms each. Every
    slice costs 50 to 220 µs beside its records: in slices of 512 instead of 10,000 a map takes 1.04 times as long, a
    count 0.9 times, a re-key step 1.6 times, all without reading and sending; of a re-keyed count as a whole that is
    4 %. Slices of 256 would cost it 7 %, slices of 1,000 2 %.
    """
    slice_records_own_max: int = 4_096
    """The same of a task that calls no code of the application: nothing in it can turn slow of a sudden."""
    restore_records_per_step: int = 20_000
    standby_records_per_slice: int = 5_000
    standby_slice_seconds: float = 0.05
    """Bounds of one slice of work on standby copies: records and time."""


def worker_settings(options: WorkerOptions, member: str | None = None) -> WorkerSettings:
    """The part of an application's options that concerns one worker, perhaps with a name of its own."""
    shared = {field.name: getattr(options, field.name) for field in fields(WorkerOptions)}
    return WorkerSettings(**{**shared, "member": member or options.member})
