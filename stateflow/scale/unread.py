"""Moving the unread records of one old partition of a repartition topic, exactly once and in order.

The function is the same whoever calls it: a test on a memory cluster, the CLI in its own process, a Spark
task. Each chunk is one transaction that holds both the moved records and the position after them, committed
under the move's own consumer group; the transactional id is the partition's, so starting a second attempt
fences the first and aborts what it left open. Wherever an attempt dies, the next one goes on behind its last
committed chunk. A partition is not divided further: its records keep their order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from stateflow.catalog.model import RoutingEntry
from stateflow.log.base import Cluster, Committed, Writer
from stateflow.log.reading import read_range
from stateflow.record import Headers, OffsetRange, RecordBatch, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale.committed_chunks import commit_rows, committed_chunks
from stateflow.scale.progress_group import FixedMove, progress_group, unread_writer_id


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadMove:
    """One partition of generation g and where its unread records go."""

    app: str
    generation: int
    """The new generation."""
    source: TopicPartition
    offsets: OffsetRange
    """Fixed when the move was begun; every attempt reads the same."""
    target_topic: str
    routing: RoutingEntry
    chunk_records_max: int = 200_000
    chunk_bytes_max: int = 64 << 20

    @property
    def group(self) -> str:
        """The consumer group that holds the move's progress."""
        return progress_group(self.app, self.generation)

    @property
    def transactional_id(self) -> str:
        """The id under which only the newest attempt may write."""
        return unread_writer_id(self.app, self.generation, self.source)

    def progress(self, offset_next: int) -> Committed:
        """A position of this move, with the range that it belongs to beside it: a later attempt keeps the
        range.
        """
        return FixedMove(self.offsets, None).progress(offset_next)


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What one attempt did; an attempt that found everything done reports zeros."""

    source: TopicPartition
    records_read_total: int
    records_written_total: int
    chunks_total: int
    seconds: float
    half_slots: int = 0
    """For progress; that of unread records is read from their offsets."""


@dataclass(slots=True)
class _Chunk:
    """Rows waiting for a transaction, in the order to write them."""

    offset_next: int
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    """Empty when no row has any."""
    records_read: int = 0


def move_unread(cluster: Cluster, job: UnreadMove) -> MoveResult:
    """Move what is not yet moved of one partition; on return all of ``job.offsets`` is.

    A transaction that is aborted is done again by a new writer. Nothing is ever doubled.

    Raises ``ProducerFenced`` when a newer attempt has taken over, ``OffsetOutOfRange`` when the source lost
    records meanwhile, ``TransactionAborted`` after several aborted chunks in a row.
    """
    started_at = time.monotonic()
    read = written = chunks = 0

    def write(writer: Writer) -> Iterator[_Chunk]:
        for chunk in _chunks(cluster, job, _committed_position(cluster, job)):
            _write_chunk(writer, job, chunk)
            yield chunk

    for chunk in committed_chunks(cluster, job.transactional_id, write):
        read, written, chunks = read + chunk.records_read, written + len(chunk.keys), chunks + 1
    return MoveResult(job.source, read, written, chunks, time.monotonic() - started_at)


def _committed_position(cluster: Cluster, job: UnreadMove) -> int:
    found = cluster.committed(job.group, [job.source]).get(job.source)
    return max(found.offset_next, job.offsets.offset_first) if found else job.offsets.offset_first


def _write_chunk(writer: Writer, job: UnreadMove, chunk: _Chunk) -> None:
    owners = RoutingTable.from_entry(job.routing).partitions_of(chunk.keys)
    progress = {job.source: job.progress(chunk.offset_next)}
    commit_rows(writer, job.target_topic, [(chunk, owners)], job.group, progress)


def _chunks(cluster: Cluster, job: UnreadMove, offset_first: int) -> Iterator[_Chunk]:
    """The rest of the source in chunks of bounded size, the last one reaching ``offset_next`` exactly."""
    if offset_first >= job.offsets.offset_next:
        return iter(())
    rest = OffsetRange(offset_first, job.offsets.offset_next)
    return _queue_chunks(cluster, job, rest)


def _queue_chunks(cluster: Cluster, job: UnreadMove, rest: OffsetRange) -> Iterator[_Chunk]:
    """Unread records, every one, in order. Watermark records stay behind: tasks announce anew when they
    start.
    """
    chunk, size_bytes = _Chunk(rest.offset_first), 0
    for batch in read_range(cluster, job.source, rest):
        keep = [index for index, key in enumerate(batch.keys) if key is not None]
        _append_rows(chunk, batch, keep)
        chunk.offset_next = batch.offsets[-1] + 1
        chunk.records_read += len(batch)
        size_bytes += batch.content_bytes()
        if len(chunk.keys) >= job.chunk_records_max or size_bytes >= job.chunk_bytes_max:
            yield chunk
            chunk, size_bytes = _Chunk(chunk.offset_next), 0
    chunk.offset_next = rest.offset_next
    yield chunk


def _append_rows(chunk: _Chunk, batch: RecordBatch, keep: list[int]) -> None:
    if batch.headers and not chunk.headers and any(batch.headers[index] for index in keep):
        chunk.headers = [()] * len(chunk.keys)
    if chunk.headers or (batch.headers and any(batch.headers[index] for index in keep)):
        chunk.headers += [batch.headers[index] if batch.headers else () for index in keep]
    chunk.keys += [batch.keys[index] for index in keep]
    chunk.values += [batch.values[index] for index in keep]
    chunk.timestamps_ms += [batch.timestamps_ms[index] for index in keep]
