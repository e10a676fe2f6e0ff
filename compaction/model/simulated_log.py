"""A log of the simulation: segments that were not cleaned, and of the cleaned part the newest record of each key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stateflow.compaction.model.workload import BATCH_OVERHEAD_BYTES


@dataclass(slots=True)
class Batch:
    """What of a batch is in the log: all of it until its first pass, then its records that are the newest of a key."""

    records: int = 0
    size_bytes: int = 0
    """Of the records."""


Record = tuple[bytes, int, bool, Batch]
"""Key, bytes, whether it is a tombstone, its batch."""


@dataclass(slots=True)
class Segment:
    """Records in the order in which they were appended."""

    records: list[Record] = field(default_factory=list)
    batches: int = 0
    size_bytes: int = 0
    index_entries: int = 0
    unindexed_bytes: int = 0
    first_seconds: float = 0.0
    last_seconds: float = 0.0


@dataclass(slots=True)
class CleanPart:
    """The newest record of every key in the cleaned part."""

    newest: dict[bytes, tuple[int, Batch]] = field(default_factory=dict)
    records_bytes: int = 0
    """Without what batches add."""
    batches: int = 0
    tombstones: deque[tuple[float, bytes, Batch]] = field(default_factory=deque)

    @property
    def size_bytes(self) -> int:
        """Bytes of its records and batches."""
        return self.records_bytes + BATCH_OVERHEAD_BYTES * self.batches

    def take(self, records: Sequence[Record], horizon: float) -> None:
        """Take a segment's records, each as its key's newest; tombstones go after ``horizon``, in seconds."""
        newest = self.newest
        begun: Batch | None = None
        for key, size, tombstone, batch in records:
            if batch is not begun:  # from here on it counts what of it is the newest of a key
                begun = batch
                batch.records = batch.size_bytes = 0
            if key in newest:
                self._drop(key)
            if batch.records == 0:
                self.batches += 1
            batch.records += 1
            batch.size_bytes += size
            newest[key] = (size, batch)
            self.records_bytes += size
            if tombstone:
                self.tombstones.append((horizon, key, batch))

    def expire(self, now: float) -> None:
        """Remove tombstones whose delete horizon, set by their first pass, has passed."""
        while self.tombstones and self.tombstones[0][0] < now:
            _, key, batch = self.tombstones.popleft()
            held = self.newest.get(key)
            if held is not None and held[1] is batch:
                self._drop(key)

    def _drop(self, key: bytes) -> None:
        size, batch = self.newest.pop(key)
        batch.records -= 1
        batch.size_bytes -= size
        self.records_bytes -= size
        if batch.records == 0:
            self.batches -= 1


@dataclass(slots=True)
class PartitionLog:
    """One partition."""

    closed: deque[Segment] = field(default_factory=deque)
    active: Segment = field(default_factory=Segment)
    clean: CleanPart = field(default_factory=CleanPart)
    busy: bool = False
    dirty_bytes: int = 0
    """Of closed segments and the active one."""
    closed_bytes: int = 0
    """Of closed segments alone."""
    dirty_records: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all its segments."""
        return self.clean.size_bytes + self.dirty_bytes


def count_kept(clean: CleanPart, segments: Iterable[Segment]) -> tuple[int, int, int]:
    """What a pass over these segments writes: bytes in all, batches of which it drops some records, what is left of
    those.
    """
    newest: dict[bytes, tuple[int, Batch]] = {}
    thinned: dict[int, list[Any]] = {}
    left_bytes = clean.records_bytes
    known = clean.newest.get
    for segment in segments:
        for key, size, _, batch in segment.records:
            left_bytes += size
            superseded = newest.get(key) or known(key)
            if superseded is not None:
                lost_bytes, lost_from = superseded
                left_bytes -= lost_bytes
                lost = thinned.setdefault(id(lost_from), [lost_from, 0, 0])
                lost[1] += 1
                lost[2] += lost_bytes
            newest[key] = size, batch
    left = [
        batch.size_bytes - lost_bytes
        for batch, records, lost_bytes in thinned.values()
        if records < batch.records
    ]
    return left_bytes, len(left), sum(left)
