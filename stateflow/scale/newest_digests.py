"""What sub-ranges say of the keys of a slice, for the audit: each key's newest hash, and the sums by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from ctypes import c_uint64
from itertools import groupby, islice

import msgspec

from stateflow.native.rows import NativeDigests, RowsCore, rows_core
from stateflow.scale.audit import HASH_MODULUS, Tally
from stateflow.scale.placement import Placement

_ROWS = 10_000


class Digests(msgspec.Struct, array_like=True):
    """A piece of the audit: what a sub-range says of the keys of one slice."""

    partition: int
    """Where the sub-range is."""
    keys: list[bytes]
    hashes: list[int | None]
    """Of each key's newest entry; None of a deleted one."""


_DECODER = msgspec.msgpack.Decoder(Digests)


def tallies_by_partition(
    inbox: Iterable[bytes], placement: Callable[[], Placement]
) -> Iterator[tuple[int, tuple[Tally, ...]]]:
    """The sums of each partition's keys by the partition that ``placement`` gives them: pieces of a partition come
    together, and one partition's keys are in memory at a time.
    """
    used = rows_core()
    if used is None:
        for partition, pieces in groupby(map(_DECODER.decode, inbox), lambda piece: piece.partition):
            yield partition, _tallies(pieces, placement())
        return
    for partition, own in groupby(inbox, lambda piece: _partition(used, piece)):
        yield partition, _native_tallies(used, own, placement())


def _partition(used: RowsCore, piece: bytes) -> int:
    partition: int = used.partition(piece)
    assert partition >= 0, "a piece of the audit"
    return partition


def _native_tallies(used: RowsCore, pieces: Iterable[bytes], placement: Placement) -> tuple[Tally, ...]:
    digests = NativeDigests(used)
    for piece in pieces:
        digests.take(piece)
    sums = (c_uint64 * (2 * placement.partitions))()
    for first, after, keys in digests.live_keys():
        digests.add_to(sums, first, after, placement.owners(keys))
    return tuple(Tally(sums[at], sums[at + 1]) for at in range(0, len(sums), 2))


def _tallies(pieces: Iterable[Digests], placement: Placement) -> tuple[Tally, ...]:
    newest: dict[bytes, int | None] = {}
    for piece in pieces:
        newest.update(zip(piece.keys, piece.hashes, strict=True))
    counts, sums = [0] * placement.partitions, [0] * placement.partitions
    live = ((key, hashed) for key, hashed in newest.items() if hashed is not None)
    while rows := list(islice(live, _ROWS)):
        owners = placement.owners([key for key, _ in rows])
        for owner, (_, hashed) in zip(owners, rows, strict=True):
            counts[owner] += 1
            sums[owner] += hashed
    return tuple(Tally(count, total % HASH_MODULUS) for count, total in zip(counts, sums, strict=True))
