"""The live entries of a part of a changelog in columns, read once: in the core without an object per record.

Up to a limit the newest records stand in memory. What is more goes to disk, divided into slices by the keys' CRC-32
(``scale.ranges``), and is taken in again slice by slice; so memory is bounded, and the log is not read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.changelog.format import is_reserved
from stateflow.log.base import Cluster
from stateflow.log.newest import RecordsSink
from stateflow.log.reading import what_came_meanwhile
from stateflow.native.rows import HasHeaders
from stateflow.record import RecordBatch
from stateflow.scale.newest_rows import AnyRows, PlainRows, newest_rows, rows_of_part
from stateflow.scale.ranges import ChangelogRange
from stateflow.scale.settings import SLICES_MAX
from stateflow.scale.shuffle import Inbox, PieceFile, Place

Columns = tuple[list[bytes], list[bytes]]
"""Keys and values of entries, in columns of equal length."""


def live_columns(
    cluster: Cluster,
    part: ChangelogRange,
    bytes_max: int,
    *,
    end_now: Callable[[], int] | None = None,
    is_wanted: Callable[[bytes], bool] | None = None,
) -> Iterator[Columns]:
    """The live entries of ``part``, bookkeeping left out, some thousands at a time, each key once.

    About ``bytes_max`` is in memory, and as much again of what is taken in from disk. With ``end_now`` others may write
    to the partition: what came meanwhile is read, too, up to the offset that it says. With ``is_wanted`` only those
    keys are kept. Raises as ``checkpoint.whole``.
    """
    with TemporaryDirectory(prefix="stateflow-live-") as folder:
        rows = newest_rows() if is_wanted is None else _WantedRows(is_wanted)
        try:
            found = _read(cluster, _parts(part, end_now), bytes_max, Path(folder), rows)
        except HasHeaders:  # nothing was given out: it is read first
            found = _read(cluster, _parts(part, end_now), bytes_max, Path(folder), PlainRows())
        yield from found.entries()


class _WantedRows(PlainRows):
    """Records of some keys alone."""

    def __init__(self, is_wanted: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._is_wanted = is_wanted

    def add(self, batch: RecordBatch) -> int:
        """Take in those that are wanted."""
        chosen = [key is not None and self._is_wanted(key) for key in batch.keys]
        columns = batch.offsets, batch.timestamps_ms, batch.keys, batch.values, batch.headers
        return super().add(RecordBatch(batch.source, *(list(compress(each, chosen)) for each in columns)))


class _Found:
    """What was read: the newest records, or slices of them on disk."""

    def __init__(self, rows: AnyRows, slices: list[Inbox]) -> None:
        self._rows = rows
        self._slices = slices

    def entries(self) -> Iterator[Columns]:
        """The live ones."""
        if not self._slices:
            yield from _live(self._rows)
        for inbox in self._slices:
            for rows in rows_of_part(inbox, len(self._slices), 0, 1):
                yield rows.keys, [value for value in rows.values if value is not None]


def _read(
    cluster: Cluster, parts: Iterable[ChangelogRange], bytes_max: int, folder: Path, rows: AnyRows
) -> _Found:
    sink, file = RecordsSink(rows, 0), PieceFile(folder)
    places: list[list[Place]] = []

    def put_away() -> None:
        for number, piece in rows.pieces(len(places), range(len(places))):
            places[number].append(file.add(piece))
        rows.clear()

    try:
        for part in parts:
            sink.offset_next = part.offsets.offset_next
            for _ in part.read_into(cluster, sink):
                if rows.held_bytes > bytes_max:
                    if not places:
                        places = [[] for _ in range(_slices(part.offsets.slots, sink.records_total))]
                    put_away()
        if places:
            put_away()
    finally:
        file.close()
    return _Found(rows, [Inbox(own) for own in places])


def _parts(part: ChangelogRange, end_now: Callable[[], int] | None) -> Iterator[ChangelogRange]:
    """The part, and then what came meanwhile."""
    yield part
    if end_now is not None:
        for offsets in what_came_meanwhile(part.offsets.offset_next, end_now):
            yield ChangelogRange(part.source, offsets, None)


def _slices(slots: int, records: int) -> int:
    """So many that one of them takes half of what the records so far took, if all that follow are as these."""
    return max(2, min(SLICES_MAX, 2 * -(-slots // max(1, records))))


def _live(rows: AnyRows) -> Iterator[Columns]:
    if not isinstance(rows, PlainRows):
        for keys, values, _ in rows.live():
            yield keys, list(values)
        return
    for found in rows.live():
        kept = [
            (key, value)
            for key, value in zip(found.keys, found.values, strict=True)
            if value is not None and not is_reserved(key)
        ]
        yield [key for key, _ in kept], [value for _, value in kept]
