"""Moving the state of one store into the changelogs of the next generation by as many jobs as there are cores.

1. Each sub-range of the old changelogs is read by a job, ``send_state``: of each key the newest record goes to the
   key's slice (``scale.ranges``), deletions included.
2. Each slice is written by a job, ``write_slice``: it takes in what the sub-ranges say from the oldest to the newest,
   so the newest record by offset wins, leaves out deleted keys, routes the rest by the new table and writes it.

A slice is one transaction that holds its records and, beside them, that it is moved; only if it turned out too large
it is several, *parts* by further bits of the same hash. The transactional id is the slice's, so a second attempt fences
the first. What a slice holds depends on the fixed ranges alone: whichever attempt writes it writes the same, and it is
written once. An attempt that goes on reads the sub-ranges again, for the slices that are not moved yet.

Memory: a job that reads holds ``RangeSettings.memory_bytes_max`` and what it sends of one sub-range; a job that writes
holds the rows of one transaction and one piece. Disk: the newest records per key and sub-range, until they are
written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from stateflow.catalog.model import KeyLayout, RoutingEntry
from stateflow.log.base import Cluster, Writer
from stateflow.routing import RoutingTable
from stateflow.scale.committed_chunks import commit_rows, committed_chunks
from stateflow.scale.layout import routing_keys
from stateflow.scale.newest_rows import AnyRows, Rows, rows_of_part, send_newest
from stateflow.scale.progress_group import (
    SliceProgress,
    Slot,
    slice_progress,
    slice_slot,
    slice_writer_id,
)
from stateflow.scale.ranges import ChangelogRange, RangeRead
from stateflow.scale.shuffle import Inbox, Sending


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeJob:
    """Sub-ranges to be read."""

    parts: tuple[ChangelogRange, ...]
    slices: int
    receivers: dict[int, int]
    """The slices that are wanted, each with the number of the job that writes it."""
    memory_bytes_max: int

    @property
    def slots(self) -> int:
        """Offset slots to read."""
        return sum(part.offsets.slots for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceJob:
    """One slice of one store, and where it goes."""

    app: str
    generation: int
    """The new generation."""
    target_topic: str
    layout: KeyLayout
    routing: RoutingEntry
    number: int
    slices: int
    slots: int
    """Its share of the offset slots of its store: for progress."""
    transaction_bytes_max: int

    @property
    def slot(self) -> Slot:
        """Where its progress is committed."""
        return slice_slot(self.app, self.generation, self.target_topic, self.routing.partitions, self.number)

    @property
    def transactional_id(self) -> str:
        """The id under which only the newest attempt may write."""
        return slice_writer_id(self.app, self.generation, self.target_topic, self.number)


@dataclass(frozen=True, slots=True)
class SliceDone:
    """What one attempt did; an attempt that found everything done reports zeros."""

    half_slots: int
    records_written_total: int
    chunks_total: int
    seconds: float
    records_read_total: int = 0


def send_state(cluster: Cluster, job: RangeJob) -> Sending[RangeRead]:
    """Send the newest record of each key of each sub-range to the job of its slice.

    Raises ``OffsetOutOfRange`` when the source lost records meanwhile.
    """

    def pieces(rows: AnyRows) -> Iterator[tuple[int, bytes]]:
        for number, piece in rows.pieces(job.slices, job.receivers.keys()):
            yield job.receivers[number], piece

    records = 0
    for part in job.parts:
        records += yield from send_newest(cluster, part, job.memory_bytes_max, pieces)
    return RangeRead(job.slots, records)


def write_slice(cluster: Cluster, job: SliceJob, inbox: Inbox) -> SliceDone:
    """Move what is not yet moved of one slice; on return all of it is.

    A transaction that is aborted is done again by a new writer. Nothing is ever doubled.

    Raises ``ProducerFenced`` when a newer attempt has taken over, ``TransactionAborted`` after several aborted
    transactions in a row.
    """
    started_at = time.monotonic()
    written = chunks = 0

    def write(writer: Writer) -> Iterator[int]:
        done, parts = slice_progress(cluster, [job.slot])[job.slot]
        parts = parts or max(1, -(-inbox.size_bytes // job.transaction_bytes_max))
        for part in range(done, parts):
            rows = rows_of_part(inbox, job.slices, part, parts)
            yield _write_part(writer, job, rows, SliceProgress(part + 1, parts))

    for rows in committed_chunks(cluster, job.transactional_id, write):
        written, chunks = written + rows, chunks + 1
    return SliceDone(job.slots, written, chunks, time.monotonic() - started_at)


def _write_part(writer: Writer, job: SliceJob, rows: Iterator[Rows], progress: SliceProgress) -> int:
    """One transaction; returns how many records it has."""
    table = RoutingTable.from_entry(job.routing)
    group, partition = job.slot
    routed = ((some, table.partitions_of(routing_keys(job.layout, some.keys))) for some in rows)
    return commit_rows(writer, job.target_topic, routed, group, {partition: progress.committed()})
