"""Barriers and watermarks in the flow of records: what is sent to the stages behind, and where a batch is divided.

At its barrier point a task sends a *barrier* (a record with neither key nor value) to every partition behind it, in the
transaction of the commit that is this point, and from then on every record that it sends there carries the barrier's
id, until the savepoint is complete or aborted. Whoever reads such a record knows that it is behind the barrier. No
input waits for another: barriers are not aligned. The barrier point itself is part of the input position, so it is
exactly as durable as the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from stateflow.changelog.barrier_id import barrier_header, barrier_id_in
from stateflow.changelog.event_time import header_value
from stateflow.changelog.format import BARRIER_HEADER, WATERMARK_HEADER
from stateflow.log.base import Writer
from stateflow.record import RecordBatch
from stateflow.runtime.task.wiring import Rekey


def send_barriers(writer: Writer, rekeys: Mapping[str, Rekey], barrier_id: int, timestamp_ms: int) -> None:
    """Write a barrier to every partition behind a task, inside its open transaction."""
    for rekey in rekeys.values():
        rekey.tell(writer, timestamp_ms, barrier_header(barrier_id))


def split_at_barriers(
    batch: RecordBatch, is_due: Callable[[int], bool]
) -> Iterator[tuple[RecordBatch, int | None]]:
    """The batch in parts: each with the id of the barrier whose point is to be committed after it; the last with None.

    A part ends before the first record behind a barrier for which ``is_due`` says that the task has no point yet.
    """
    first = 0
    for index, headers in enumerate(batch.headers):
        barrier_id = barrier_id_in(headers) if headers else None
        if barrier_id is not None and is_due(barrier_id):
            yield batch.rows(first, index), barrier_id
            first = index
    yield (batch.rows(first, len(batch)) if first else batch), None


def split_at_watermarks(batch: RecordBatch) -> Iterator[tuple[RecordBatch, bytes | None]]:
    """Runs of ordinary records, each with the watermark record that ended it.

    Splitting exactly there makes lateness depend on the log alone, not on how reads were batched.
    """
    first = 0
    for index, headers in enumerate(batch.headers):
        if batch.keys[index] is None and headers:
            mark = header_value(headers, WATERMARK_HEADER)
            if (
                mark is not None or header_value(headers, BARRIER_HEADER) is not None
            ):  # a barrier is no one's input
                yield batch.rows(first, index), mark
                first = index + 1
    if first < len(batch):
        yield (batch.rows(first, len(batch)) if first else batch), None
