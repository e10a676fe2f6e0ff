"""What compaction costs a broker, by mechanism: the prices, and the counts that they apply to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy

_WORK = (
    "pass_seconds",
    "fill_seconds_per_byte",
    "dirty_seconds_per_record",
    "dirty_seconds_per_byte",
    "read_seconds_per_record",
    "batch_seconds",
    "rebuild_seconds_per_batch",
    "rebuild_seconds_per_byte",
    "write_seconds_per_byte",
    "roll_seconds",
    "index_seconds_per_byte",
)
"""Costs that are CPU time, not waiting."""


class Pace(NamedTuple):
    """How fast a machine is: CPU seconds of two pieces of work (:mod:`stateflow.compaction.calibration.pace`)."""

    loop_seconds: float
    """A loop that has just got a core, and finds the caches as others left them: so does a pass."""
    steady_loop_seconds: float
    """The same loop at its best: how fast the core computes."""
    memory_seconds: float
    """Zeros over memory that no cache holds."""


FITTED_AT = Pace(0.00037, 0.00037, 0.0035)
"""Of the machine that the defaults hold for."""


class Counts(NamedTuple):
    """What passes do, in counts that costs apply to."""

    passes: float
    dirty: float
    dirty_bytes: float
    kept: float
    rebuilt: float
    rebuilt_bytes: float
    written_bytes: float
    batches: float = 0.0
    """That a pass goes through: new ones twice, to index their keys and to copy what lives of them."""


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds that compaction costs on a broker; the defaults were fitted to measured runs of Kafka 4.3."""

    pass_seconds: float = 0.0050
    """Per pass: choosing the partition, opening segments, swapping files."""
    fill_seconds_per_byte: float = 6.3e-11
    """Per pass and byte of one thread's dedupe buffer, which is zero-filled first."""
    fill_awaits_memory: bool = True
    """With the server compiler; the client compiler's loop stores a byte at a time, and memory waits for it."""
    dirty_seconds_per_record: float = 0.6e-6
    """Per record that is new in a pass: its key hashed into the dedupe buffer, and looked up."""
    dirty_seconds_per_byte: float = 0.34e-9
    """Per byte that is new in a pass: read and decompressed, twice."""
    read_seconds_per_record: float = 0.41e-6
    """Per record of the cleaned part: read, its key looked up."""
    batch_seconds: float = 0.75e-6
    """Per batch that a pass goes through, new ones twice: its header read, its decompression begun."""
    rebuild_seconds_per_batch: float = 1.04e-5
    """Per batch that lost some of its records: the rest is encoded and compressed anew."""
    rebuild_seconds_per_byte: float = 0.1e-9
    """Per byte of that rest."""
    write_seconds_per_byte: float = 0.25e-9
    roll_seconds: float = 0.00084
    """Per segment closed in the append path, indexes apart."""
    index_seconds_per_byte: float = 0.00476 / 10_485_760
    """Per byte of ``segment.index.bytes``, at every roll."""
    sync_seconds: float = 0.006
    """Wall time per segment that a pass writes which is not CPU: flushing it to disk."""
    look_seconds: float = 0.0004
    """CPU of one look at all logs by a cleaner thread that finds nothing to do, once per backoff."""
    wall_per_cpu: float = 1.0
    """Wall time of a pass per CPU time of it: more than 1 where cleaner threads wait for a core."""
    source: str = "defaults"
    pace: Pace = FITTED_AT
    """Of the machine that these hold for."""
    uncertainty_factor: float = 7.0
    """Predicted CPU is right to within this factor either way. The defaults were fitted with the server compiler of
    the JVM; with only the client compiler (small and embedded brokers) the same pass takes three to five times as
    long, and a JVM that has just started takes longer still: six times was recorded.
    """

    def scaled(self, factor: float) -> Costs:
        """The same work on a machine that needs so many times the CPU time for it."""
        work = {name: factor * getattr(self, name) for name in _WORK}
        return replace(self, **work)

    def looking_cores(self, cleaner: CleanerSettings) -> float:
        """CPU seconds per second of cleaner threads that only look."""
        return cleaner.threads * self.look_seconds / max(1e-3, cleaner.backoff_ms / 1000)

    def fixed_seconds(self, cleaner: CleanerSettings) -> float:
        """CPU of a pass that finds nothing to do: its own work, and zero-filling one thread's buffer."""
        return self.pass_seconds + self.fill_seconds_per_byte * cleaner.dedupe_buffer_bytes / cleaner.threads

    def cpu_seconds(self, cleaner: CleanerSettings, counts: Counts) -> float:
        """CPU of passes that do so much, all of them together."""
        return (
            self.fixed_seconds(cleaner) * counts.passes
            + self.dirty_seconds_per_record * counts.dirty
            + self.dirty_seconds_per_byte * counts.dirty_bytes
            + self.read_seconds_per_record * counts.kept
            + self.batch_seconds * counts.batches
            + self.rebuild_seconds_per_batch * counts.rebuilt
            + self.rebuild_seconds_per_byte * counts.rebuilt_bytes
            + self.write_seconds_per_byte * counts.written_bytes
        )

    def segment_seconds(self, policy: Policy) -> float:
        """CPU of opening one segment with its two preallocated indexes."""
        return self.roll_seconds + self.index_seconds_per_byte * policy.segment_index_bytes

    def told(self, cleaner: CleanerSettings) -> tuple[tuple[str, str], ...]:
        """What costs how much, for people."""
        return (
            ("a pass", f"{1000 * self.fixed_seconds(cleaner):.1f} ms of CPU"),
            ("a new record", f"{1e6 * self.dirty_seconds_per_record:.2f} µs"),
            ("a new megabyte", f"{1e9 * self.dirty_seconds_per_byte:.2f} ms"),
            ("a record kept", f"{1e6 * self.read_seconds_per_record:.2f} µs"),
            ("a batch gone through", f"{1e6 * self.batch_seconds:.1f} µs"),
            ("a batch rebuilt", f"{1e6 * self.rebuild_seconds_per_batch:.1f} µs"),
            ("a megabyte rebuilt", f"{1e9 * self.rebuild_seconds_per_byte:.2f} ms"),
            ("a megabyte written", f"{1e9 * self.write_seconds_per_byte:.2f} ms"),
            ("a segment flushed to disk", f"{1000 * self.sync_seconds:.1f} ms of waiting"),
        )
