"""The newest record of each key of a sub-range, and the pieces of it that jobs exchange: in Python, and in the core.

Both send the same pieces, and what one sends the other takes in. Which is at work is decided once per process; records
with headers are always Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, compress

import msgspec

from stateflow.changelog.format import RESERVED_KEY_PREFIX
from stateflow.log.base import Cluster
from stateflow.log.newest import RecordsSink
from stateflow.memory import ENTRY_BYTES
from stateflow.native.rows import HasHeaders, NativeRows, rows_core
from stateflow.record import Headers, RecordBatch
from stateflow.scale.audit import entry_hash
from stateflow.scale.newest_digests import Digests
from stateflow.scale.ranges import ChangelogRange, keys_by_slice, slice_of
from stateflow.scale.shuffle import Sending


class Rows(msgspec.Struct, array_like=True):
    """A piece: records of one slice, in columns."""

    keys: list[bytes]
    values: list[bytes | None]
    timestamps_ms: list[int]
    headers: list[Headers]
    """Empty when no row has any."""


_ENCODER = msgspec.msgpack.Encoder()
_ROWS = msgspec.msgpack.Decoder(Rows)


class PlainRows:
    """In columns and a map of Python. Of each key its newest record is known by its place: a tuple for each record
    would take longer to make, and the garbage collector would look at all of them again and again.
    """

    def __init__(self) -> None:
        self._places: dict[bytes | None, int] = {}
        self._values: list[bytes | None] = []
        self._timestamps_ms: list[int] = []
        self._headers: list[Headers] = []
        """Shorter than the others: those behind have none."""
        self._bytes = 0

    def __len__(self) -> int:
        """How many keys there are, those to be left out among them."""
        return len(self._places)

    @property
    def held_bytes(self) -> int:
        """What is kept takes about so much in memory; replaced values count, too."""
        return self._bytes + ENTRY_BYTES * len(self._places)

    def add(self, batch: RecordBatch) -> int:
        """Records in their order; returns the bytes of their keys and values."""
        self._add(batch.keys, batch.values, batch.timestamps_ms, batch.headers)
        size_bytes = sum(map(len, filter(None, chain(batch.keys, batch.values))))
        self._bytes += size_bytes
        return size_bytes

    def pieces(self, slices: int, wanted: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """The entries, deletions among them, of those slices that are wanted and have any."""
        for number, keys in keys_by_slice(self._places, slices, wanted).items():
            yield number, _ENCODER.encode(self._rows(keys))

    def digests(self, slices: int, partition: int) -> Iterator[tuple[int, bytes]]:
        """Keys and hashes of the entries of each slice that has any."""
        for number, keys in keys_by_slice(self._places, slices, range(slices)).items():
            values = ((key, self._values[self._places[key]]) for key in keys)
            hashes = [None if value is None else entry_hash(key, value) for key, value in values]
            yield number, _ENCODER.encode(Digests(partition, keys, hashes))

    def take(self, piece: bytes, slices: int, part: int, parts: int) -> None:
        """Take in what a piece has of one of the parts of its slice."""
        sent = _ROWS.decode(piece)
        if parts > 1:
            sent = _of_part(sent, slices, part, parts)
        self._add(sent.keys, sent.values, sent.timestamps_ms, sent.headers)

    def live(self) -> Iterator[Rows]:
        """The entries without deletions."""
        live = [
            key for key, place in self._places.items() if key is not None and self._values[place] is not None
        ]
        yield self._rows(live)

    def clear(self) -> None:
        """Forget everything."""
        self._places, self._values, self._timestamps_ms, self._headers, self._bytes = {}, [], [], [], 0

    def _add(
        self,
        keys: Iterable[bytes | None],
        values: list[bytes | None],
        timestamps_ms: list[int],
        headers: list[Headers],
    ) -> None:
        first = len(self._values)
        self._values += values
        self._timestamps_ms += timestamps_ms
        if headers:
            self._headers += [()] * (first - len(self._headers))
            self._headers += headers
        self._places.update(zip(keys, range(first, len(self._values)), strict=True))

    def _rows(self, keys: list[bytes]) -> Rows:
        values, times_ms, headers = self._values, self._timestamps_ms, self._headers
        places = [self._places[key] for key in keys]
        found = [headers[at] if at < len(headers) else () for at in places] if headers else []
        return Rows(
            keys,
            [values[at] for at in places],
            [times_ms[at] for at in places],
            found if any(found) else [],
        )


def _of_part(sent: Rows, slices: int, part: int, parts: int) -> Rows:
    own = [slice_of(key, slices * parts) // slices == part for key in sent.keys]
    headers = list(compress(sent.headers, own))  # of none there are none
    return Rows(
        list(compress(sent.keys, own)),
        list(compress(sent.values, own)),
        list(compress(sent.timestamps_ms, own)),
        headers,
    )


AnyRows = PlainRows | NativeRows


def newest_rows(*, plain: bool = False) -> AnyRows:
    """None yet: in the core where that is in use, unless Python is asked for."""
    used = None if plain else rows_core()
    return PlainRows() if used is None else NativeRows(used, RESERVED_KEY_PREFIX)


def send_newest(
    cluster: Cluster,
    part: ChangelogRange,
    bytes_max: int,
    pieces: Callable[[AnyRows], Iterator[tuple[int, bytes]]],
    *,
    plain: bool = False,
) -> Sending[int]:
    """Send the pieces of a sub-range's newest records; returns how many records were read.

    Once those that are kept take about ``bytes_max`` in memory they are sent, oldest first, and it begins anew. Where
    the core meets headers all of it is read and sent once more: what comes later counts.
    Raises as ``checkpoint.whole``.
    """
    rows = newest_rows(plain=plain)
    sink = RecordsSink(rows, part.offsets.offset_next)
    try:
        for _ in part.read_into(cluster, sink):
            if rows.held_bytes > bytes_max:
                yield from pieces(rows)
                rows.clear()
    except HasHeaders:
        return (yield from send_newest(cluster, part, bytes_max, pieces, plain=True))
    yield from pieces(rows)
    return sink.records_total


def rows_of_part(inbox: Iterable[bytes], slices: int, part: int, parts: int) -> Iterator[Rows]:
    """The live rows of one of the parts of a slice: of each key the newest that its pieces say."""
    rows = newest_rows()
    try:
        for piece in inbox:
            rows.take(piece, slices, part, parts)
    except HasHeaders:
        rows = PlainRows()
        for piece in inbox:
            rows.take(piece, slices, part, parts)
    if isinstance(rows, PlainRows):
        yield from rows.live()
    else:
        yield from (Rows(keys, [*values], times_ms, []) for keys, values, times_ms in rows.live())
