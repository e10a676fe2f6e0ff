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
from itertools import compress

import msgspec

from stateflow.catalog.model import KeyLayout, RoutingEntry
from stateflow.checkpoint.sub_ranges import newest_in_parts
from stateflow.log.base import Cluster, Writer
from stateflow.record import Headers, RecordBatch
from stateflow.routing import RoutingTable
from stateflow.scale.committed_chunks import commit_rows, committed_chunks
from stateflow.scale.layout import routing_keys
from stateflow.scale.progress_group import (
    SliceProgress,
    Slot,
    slice_progress,
    slice_slot,
    slice_writer_id,
)
from stateflow.scale.ranges import ChangelogRange, RangeRead, keys_by_slice, slice_of
from stateflow.scale.shuffle import Inbox, Sending


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeJob:
    """One sub-range to be read."""

    part: ChangelogRange
    slices: int
    receivers: dict[int, int]
    """The slices that are wanted, each with the number of the job that writes it."""
    memory_bytes_max: int


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


class _Rows(msgspec.Struct, array_like=True):
    """A piece: records of one slice, in columns."""

    keys: list[bytes]
    values: list[bytes | None]
    timestamps_ms: list[int]
    headers: list[Headers]
    """Empty when no row has any."""


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Rows)


class _Columns:
    """Records in columns. Of each key its newest one is known by its place: a tuple for each record would take longer
    to make, and the garbage collector would look at all of them again and again.
    """

    def __init__(self) -> None:
        self._values: list[bytes | None] = []
        self._timestamps_ms: list[int] = []
        self._headers: list[Headers] = []
        """Shorter than the others: those behind have none."""

    def add(self, records: RecordBatch | _Rows) -> range:
        """The places of some more records."""
        first = len(self._values)
        self._values += records.values
        self._timestamps_ms += records.timestamps_ms
        if records.headers:
            self._headers += [()] * (first - len(self._headers))
            self._headers += records.headers
        return range(first, len(self._values))

    def rows(self, keys: list[bytes], places: list[int]) -> _Rows:
        """These keys with the records at these places."""
        values, times_ms, headers = self._values, self._timestamps_ms, self._headers
        found = [headers[at] if at < len(headers) else () for at in places] if headers else []
        return _Rows(
            keys,
            [values[at] for at in places],
            [times_ms[at] for at in places],
            found if any(found) else [],
        )

    def is_live(self, place: int) -> bool:
        """False for a deletion."""
        return self._values[place] is not None

    def clear(self) -> None:
        """Begin anew."""
        self._values, self._timestamps_ms, self._headers = [], [], []


def send_state(cluster: Cluster, job: RangeJob) -> Sending[RangeRead]:
    """Send the newest record of each key of a sub-range to the job of its slice.

    Raises ``OffsetOutOfRange`` when the source lost records meanwhile.
    """
    records, columns = 0, _Columns()
    with job.part.opened(cluster) as batches:
        for newest in newest_in_parts(batches, job.memory_bytes_max, columns.add):
            records += newest.records_total
            places = newest.entries
            for number, keys in keys_by_slice(places, job.slices, job.receivers.keys()).items():
                rows = columns.rows(keys, [places[key] for key in keys])
                yield job.receivers[number], _ENCODER.encode(rows)
            columns.clear()
    return RangeRead(job.part.offsets.slots, records)


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
            newest = _newest(inbox, job.slices, part, parts)
            _write_part(writer, job, newest, SliceProgress(part + 1, parts))
            yield len(newest.keys)

    for rows in committed_chunks(cluster, job.transactional_id, write):
        written, chunks = written + rows, chunks + 1
    return SliceDone(job.slots, written, chunks, time.monotonic() - started_at)


def _newest(inbox: Inbox, slices: int, part: int, parts: int) -> _Rows:
    """The live rows of one part."""
    columns, newest = _Columns(), dict[bytes, int]()
    for piece in inbox:
        sent = _DECODER.decode(piece)
        if parts > 1:
            sent = _of_part(sent, slices, part, parts)
        newest.update(zip(sent.keys, columns.add(sent), strict=True))
    live = [(key, place) for key, place in newest.items() if columns.is_live(place)]
    return columns.rows([key for key, _ in live], [place for _, place in live])


def _of_part(sent: _Rows, slices: int, part: int, parts: int) -> _Rows:
    own = [slice_of(key, slices * parts) // slices == part for key in sent.keys]
    headers = list(compress(sent.headers, own))  # of none there are none
    return _Rows(
        list(compress(sent.keys, own)),
        list(compress(sent.values, own)),
        list(compress(sent.timestamps_ms, own)),
        headers,
    )


def _write_part(writer: Writer, job: SliceJob, rows: _Rows, progress: SliceProgress) -> None:
    owners = RoutingTable.from_entry(job.routing).partitions_of(routing_keys(job.layout, rows.keys))
    group, partition = job.slot
    commit_rows(writer, job.target_topic, rows, owners, group, {partition: progress.committed()})
