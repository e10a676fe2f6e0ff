"""How a worker behaves, apart from what the application computes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Limits and intervals of one worker. Every queue and every wait in the runtime is bounded by one of these."""

    state_dir: Path
    commit_interval_seconds: float = 1.0
    """Longest time between two commits of a task: outputs under exactly-once appear this late at most."""
    dirty_bytes_max: int = 64 << 20
    """A task whose dirty maps exceed this commits early."""
    poll_records_max: int = 10_000
    poll_timeout_seconds: float = 0.1
    restore_threads: int = 2
    """Tasks restored at the same time, beside the poll thread; 0 restores on it, which only simulations want."""
    restore_records_per_step: int = 20_000
    idle_seconds: float = 5.0
    """An input at its end and silent for so long no longer holds back event time behind it."""
    flush_interval_seconds: float = 30.0
    """How often RocksDB is flushed: what a crash of the machine has to replay from the changelog."""
    purge_interval_seconds: float = 30.0
    """How often consumed records are dropped from repartition topics."""
    read_cache_bytes: int = 16 << 20
    """Per task, shared by its stores."""
    revoke_timeout_seconds: float = 30.0
    """How long a starting task may take to notice that its partition was taken away."""
    paranoid: bool = False
    """Exactly-once: a producer epoch of its own for every transaction, see ``docs/exactly-once.md``."""
    images: str | None = None
    """Where images of local state are kept; None makes and uses none."""
    image_interval_seconds: float = 600.0
    """Age at which a task's newest image is followed by another."""
    images_kept: int = 3
    """Images kept of each task."""
    start_from: str = "earliest"
    """Where a source without a committed offset is first read: ``earliest`` or ``latest``."""
    member: str | None = None
    """Name of this worker for static membership; None joins as an ordinary member."""
