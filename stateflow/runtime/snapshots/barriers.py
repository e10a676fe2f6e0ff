"""Cuts and watermarks in the flow of records: barriers sent to the stages behind, and where a batch is divided.

A task that has taken its place in cut n sends a *barrier* (a record with neither key nor value) to every partition
behind it, in the transaction of the commit that is its place, and from then on marks every record it sends there with
n, until the cut is over. Whoever reads such a record knows that it is behind the cut. The place itself is part of the
input position, so it is exactly as durable as the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from stateflow.changelog.cut import mark_header, number_in
from stateflow.changelog.event_time import header_value
from stateflow.changelog.format import CUT_HEADER, WATERMARK_HEADER
from stateflow.log.base import Writer
from stateflow.record import RecordBatch
from stateflow.runtime.task.wiring import Rekey


def send_barriers(writer: Writer, rekeys: Mapping[str, Rekey], number: int, timestamp_ms: int) -> None:
    """Write a barrier to every partition behind a task, inside its open transaction."""
    for rekey in rekeys.values():
        rekey.tell(writer, timestamp_ms, mark_header(number))


def divided(batch: RecordBatch, is_due: Callable[[int], bool]) -> Iterator[tuple[RecordBatch, int | None]]:
    """The batch in parts: each with the cut to be taken part in after it, None for the last one.

    A part ends before the first record that is behind a cut for which ``is_due`` says that the task has no place yet.
    """
    first = 0
    for index, headers in enumerate(batch.headers):
        number = number_in(headers) if headers else None
        if number is not None and is_due(number):
            yield batch.rows(first, index), number
            first = index
    yield (batch.rows(first, len(batch)) if first else batch), None


def split_at_marks(batch: RecordBatch) -> Iterator[tuple[RecordBatch, bytes | None]]:
    """Runs of ordinary records, each with the watermark record that ended it.

    Cutting exactly there makes lateness depend on the log alone, not on how reads were batched.
    """
    first = 0
    for index, headers in enumerate(batch.headers):
        if batch.keys[index] is None and headers:
            mark = header_value(headers, WATERMARK_HEADER)
            if (
                mark is not None or header_value(headers, CUT_HEADER) is not None
            ):  # a barrier is no one's input
                yield batch.rows(first, index), mark
                first = index + 1
    if first < len(batch):
        yield (batch.rows(first, len(batch)) if first else batch), None
