"""The marks of a cut: in records, in the metadata beside input offsets, and where a batch must be divided for one.

Cuts are numbered. A task that has taken its place in cut n sends a *barrier* (a record with neither key nor value) to
every partition behind it, in the transaction of the commit that is its place, and from then on marks every record it
sends there with n, until the cut is over. Whoever reads such a record knows that it is behind the cut.

The place itself is in the metadata of the committed input offsets, so it is exactly as durable as the commit.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from stateflow.changelog.format import CUT_HEADER
from stateflow.errors import StateCorrupt
from stateflow.log.base import Committed, Writer
from stateflow.record import Headers, RecordBatch
from stateflow.runtime.wiring import Rekey

_NUMBER = struct.Struct(">q")
_METADATA_FIELD = "cut"


@dataclass(frozen=True, slots=True)
class CutPlace:
    """A task's place in the newest cut that it has part in."""

    number: int
    is_last_commit: bool
    """True while nothing has been committed since: the state is still that of the cut."""


def mark_header(number: int) -> Headers:
    """The header of everything that is sent behind a cut: its number, int64, big-endian."""
    return ((CUT_HEADER, _NUMBER.pack(number)),)


def number_in(headers: Headers) -> int | None:
    """The cut that a record is behind; None for an unmarked one. Raises ``StateCorrupt``."""
    for name, value in headers:
        if name == CUT_HEADER:
            if len(value) != _NUMBER.size:
                raise StateCorrupt(
                    f"a mark of a cut on a repartition topic has {len(value)} bytes instead of {_NUMBER.size}.",
                    action="something else writes to this repartition topic; only the application itself may.",
                )
            return int(_NUMBER.unpack(value)[0])
    return None


def unmarked(headers: Headers) -> Headers:
    """The headers without the mark of a cut."""
    return tuple(header for header in headers if header[0] != CUT_HEADER)


def send_barriers(writer: Writer, rekeys: Mapping[str, Rekey], number: int, timestamp_ms: int) -> None:
    """Write a barrier to every partition behind a task, inside its open transaction."""
    for rekey in rekeys.values():
        rekey.tell(writer, timestamp_ms, mark_header(number))


def with_place(metadata: str, place: CutPlace | None) -> str:
    """The metadata of a commit with the task's place noted in it."""
    if place is None:
        return metadata
    fields = json.loads(metadata)
    fields[_METADATA_FIELD] = [place.number, int(place.is_last_commit)]
    return json.dumps(fields, separators=(",", ":"))


def place_in(committed: Committed | None) -> CutPlace | None:
    """The place that is noted beside a committed offset. The metadata was read as watermarks before."""
    found = json.loads(committed.metadata).get(_METADATA_FIELD) if committed and committed.metadata else None
    return None if found is None else CutPlace(int(found[0]), bool(found[1]))


def without_place(metadata: str) -> str:
    """The metadata of a commit without a place."""
    fields = json.loads(metadata) if metadata else {}
    if _METADATA_FIELD not in fields:
        return metadata
    del fields[_METADATA_FIELD]
    return json.dumps(fields, separators=(",", ":"))


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
