"""Moving one old partition into the topics of the next generation, exactly once.

The function is the same whoever calls it: a test on a memory cluster, the CLI in its own process, a Spark
task. Each chunk is one transaction that holds both the moved records and the position after them, committed
under the move's own consumer group; the transactional id is the partition's, so starting a second attempt
fences the first and aborts what it left open. Wherever an attempt dies, the next one goes on behind its last
committed chunk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from stateflow.catalog.model import KeyLayout, RoutingEntry
from stateflow.changelog.format import is_reserved
from stateflow.checkpoint.whole import Base, read_whole
from stateflow.log.base import Cluster, Committed, Writer
from stateflow.log.reading import read_range
from stateflow.record import Headers, OffsetRange, RecordBatch, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale.committed_chunks import committed_chunks
from stateflow.scale.layout import routing_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveJob:
    """One partition of generation g and where its content goes."""

    app: str
    generation: int
    """The new generation."""
    source: TopicPartition
    offsets: OffsetRange
    """Fixed when the move was begun; every attempt reads the same."""
    target_topic: str
    layout: KeyLayout | None
    """Key layout of the store; None for a repartition topic, whose records keep their order and number."""
    routing: RoutingEntry
    base: Base | None = None
    """The image that a trimmed changelog begins with; ``offsets`` has a slot for it."""
    chunk_records_max: int = 200_000
    chunk_bytes_max: int = 64 << 20

    @property
    def group(self) -> str:
        """The consumer group that holds the move's progress."""
        return progress_group(self.app, self.generation)

    @property
    def transactional_id(self) -> str:
        """The id under which only the newest attempt may write."""
        return f"{self.group}-{self.source.topic}-{self.source.partition}"

    def progress(self, offset_next: int) -> Committed:
        """A position of this move, with the range that it belongs to beside it: a later attempt keeps the
        range.
        """
        return Committed(offset_next, f"{self.offsets.offset_first}-{self.offsets.offset_next}")


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What one attempt did; an attempt that found everything done reports zeros."""

    source: TopicPartition
    records_read_total: int
    records_written_total: int
    chunks_total: int
    seconds: float


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


def progress_group(app: str, generation: int) -> str:
    """``<app>-repartition-g<generation>``: holds the progress of the move into that generation."""
    return f"{app}-repartition-g{generation}"


def fixed_range(progress: Committed) -> OffsetRange:
    """The range that an earlier attempt fixed, read back from its progress."""
    first, _, after = progress.metadata.partition("-")
    return OffsetRange(int(first), int(after))


def move_partition(cluster: Cluster, job: MoveJob) -> MoveResult:
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


def _committed_position(cluster: Cluster, job: MoveJob) -> int:
    found = cluster.committed(job.group, [job.source]).get(job.source)
    return max(found.offset_next, job.offsets.offset_first) if found else job.offsets.offset_first


def _write_chunk(writer: Writer, job: MoveJob, chunk: _Chunk) -> None:
    """Records and position in one transaction: both are there afterwards, or neither."""
    owners = RoutingTable.from_entry(job.routing).partitions_of(routing_keys(job.layout, chunk.keys))
    writer.begin()
    try:
        writer.send_many(
            job.target_topic,
            chunk.keys,
            chunk.values,
            partitions=owners,
            timestamps_ms=chunk.timestamps_ms,
            headers=chunk.headers,
        )
        writer.send_offsets({job.source: job.progress(chunk.offset_next)}, job.group, None)
    except BaseException:
        writer.abort()
        raise
    writer.commit()


def _chunks(cluster: Cluster, job: MoveJob, offset_first: int) -> Iterator[_Chunk]:
    """The rest of the source in chunks of bounded size, the last one reaching ``offset_next`` exactly."""
    if offset_first >= job.offsets.offset_next:
        return iter(())
    rest = OffsetRange(offset_first, job.offsets.offset_next)
    if job.layout is None:
        return _queue_chunks(cluster, job, rest)
    return _state_chunks(cluster, job, rest)


def _queue_chunks(cluster: Cluster, job: MoveJob, rest: OffsetRange) -> Iterator[_Chunk]:
    """Unread records, every one, in order. Watermark records stay behind: tasks announce anew when they
    start.
    """
    chunk, size_bytes = _Chunk(rest.offset_first), 0
    for batch in read_range(cluster, job.source, rest):
        keep = [index for index, key in enumerate(batch.keys) if key is not None]
        _append_rows(chunk, batch, keep)
        chunk.offset_next = batch.offsets[-1] + 1
        chunk.records_read += len(batch)
        size_bytes += _size_bytes(batch)
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


def _state_chunks(cluster: Cluster, job: MoveJob, rest: OffsetRange) -> Iterator[_Chunk]:
    """The newest value per key within each chunk, chunks in log order: the newest of all is written last.

    A deleted key is left out while nothing has been written before it; later its tombstone is needed, since
    an earlier chunk may hold the key, or, where an image comes first, an attempt that died within it.
    """
    is_beginning = rest.offset_first == job.offsets.offset_first
    if job.base is None or not is_beginning:
        yield from _compacted(job, read_range(cluster, job.source, rest), rest, drop_deleted=is_beginning)
        return
    with job.base.opened() as opened:
        whole = read_whole(cluster, job.source, rest, opened)
        yield from _compacted(job, whole, rest, drop_deleted=False)


def _compacted(
    job: MoveJob, batches: Iterator[RecordBatch], rest: OffsetRange, *, drop_deleted: bool
) -> Iterator[_Chunk]:
    newest: dict[bytes, tuple[bytes | None, int, Headers]] = {}
    offset_next, records_read, size_bytes = rest.offset_first, 0, 0
    for batch in batches:
        headers = batch.headers or [()] * len(batch)
        newest.update(
            zip(batch.keys, zip(batch.values, batch.timestamps_ms, headers, strict=True), strict=True)
        )
        offset_next = batch.offsets[-1] + 1
        records_read += len(batch)
        size_bytes += _size_bytes(batch)
        if len(newest) >= job.chunk_records_max or size_bytes >= job.chunk_bytes_max:
            yield _state_chunk(newest, offset_next, records_read, drop_deleted=drop_deleted)
            newest, records_read, size_bytes, drop_deleted = {}, 0, 0, False
    yield _state_chunk(newest, rest.offset_next, records_read, drop_deleted=drop_deleted)


def _state_chunk(
    newest: dict[bytes, tuple[bytes | None, int, Headers]],
    offset_next: int,
    records_read: int,
    *,
    drop_deleted: bool,
) -> _Chunk:
    rows = [
        (key, *row)
        for key, row in newest.items()
        if not is_reserved(key) and not (drop_deleted and row[0] is None)
    ]
    headers = [row[3] for row in rows] if any(row[3] for row in rows) else []
    return _Chunk(
        offset_next,
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        headers,
        records_read,
    )


def _size_bytes(batch: RecordBatch) -> int:
    return sum(map(len, filter(None, batch.keys))) + sum(map(len, filter(None, batch.values)))
