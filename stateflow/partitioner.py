"""A key's partition exactly as Kafka's clients choose it: murmur2, seed 0x9747b28c, sign bit cleared, modulo.

Algorithm: ``org.apache.kafka.common.utils.Utils.murmur2`` (Austin Appleby's MurmurHash2, 32 bits). Three
forms with the same result: one key alone; many keys in the native core; and, where that is not in use, many keys of one
length side by side in one long integer.
"""

from __future__ import annotations

import functools
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateflow.native.library import Core

HASH_MAX = 0x7FFFFFFF
"""The largest routing hash; hashes are 31 bits wide."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF
_SIDE_BY_SIDE_MIN = 8  # for fewer keys of one length the fixed cost exceeds what is saved
_SIDE_BY_SIDE_MAX = 4096  # longer integers leave the processor's caches
_LANE_BYTES = 8
_LOW_WORD = 0 if sys.byteorder == "little" else 1


def murmur2(data: bytes) -> int:
    """The hash as an unsigned 32-bit number (Java prints the same bits signed)."""
    length = len(data)
    whole = length & ~3
    h = (_SEED ^ length) & _MASK
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = (k * _M) & _MASK
        k ^= k >> _R
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if length > whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def routing_hash(key: bytes) -> int:
    """The 31-bit hash that partitions are chosen by: murmur2 with the sign bit cleared."""
    return murmur2(key) & HASH_MAX


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's default partitioner gives a key."""
    return routing_hash(key) % partitions


def _core() -> Core | None:
    from stateflow.native.loading import core  # takes as long as much else of us, and is needed when it runs

    return core()


def routing_hashes(keys: Sequence[bytes]) -> list[int]:
    """:func:`routing_hash` of every key, in their order."""
    used = _core()
    return plain_routing_hashes(keys) if used is None else used.routing_hashes(list(keys), 0)


def partitions_of(keys: Sequence[bytes], partitions: int) -> list[int]:
    """:func:`partition_of` every key, in their order."""
    used = _core()
    if used is not None:
        return used.routing_hashes(list(keys), partitions)
    return [hash_31 % partitions for hash_31 in plain_routing_hashes(keys)]


def plain_routing_hashes(keys: Sequence[bytes]) -> list[int]:
    """:func:`routing_hashes` without the native core."""
    if len(set(map(len, keys))) == 1:
        return _hashes_of_length(keys)
    rows: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(len(key), []).append(row)
    found = [0] * len(keys)
    for own in rows.values():
        for row, hash_31 in zip(own, _hashes_of_length([keys[row] for row in own]), strict=True):
            found[row] = hash_31
    return found


def _hashes_of_length(keys: Sequence[bytes]) -> list[int]:
    """The hashes of keys that are equally long."""
    if len(keys) < _SIDE_BY_SIDE_MIN:
        return [routing_hash(key) for key in keys]
    found: list[int] = []
    for first in range(0, len(keys), _SIDE_BY_SIDE_MAX):
        found += _hashes_side_by_side(keys[first : first + _SIDE_BY_SIDE_MAX])
    return found


def _hashes_side_by_side(keys: Sequence[bytes]) -> list[int]:
    """One long integer has a lane of 64 bits per key, whose lower half is the key's state.

    The product of two 32-bit numbers fits into a lane, so multiplying the whole multiplies each; the mask then takes
    away the upper halves, and with them what a shift has brought from the lane beside.
    """
    length, count = len(keys[0]), len(keys)
    one = _ones(count)
    mask = one * _MASK
    padding = bytes(-length % 4)
    words = array("I", padding.join(keys) + padding)
    if sys.byteorder == "big":
        words.byteswap()
    stride = (length + 3) // 4
    h = one * ((_SEED ^ length) & _MASK)
    for index in range(length // 4):
        k = _column(words, index, stride, count) * _M & mask
        k ^= k >> _R & mask
        h = (h * _M & mask) ^ (k * _M & mask)
    if padding:
        h = (h ^ _column(words, stride - 1, stride, count)) * _M & mask
    h ^= h >> 13 & mask
    h = h * _M & mask
    h = (h ^ (h >> 15)) & one * HASH_MAX
    return memoryview(h.to_bytes(_LANE_BYTES * count, sys.byteorder)).cast("Q").tolist()


def _column(words: array[int], index: int, stride: int, count: int) -> int:
    """Word ``index`` of every key, each in its lane."""
    lanes = bytearray(_LANE_BYTES * count)
    memoryview(lanes).cast("I")[_LOW_WORD::2] = memoryview(words)[index::stride]
    return int.from_bytes(lanes, sys.byteorder)


@functools.lru_cache(maxsize=64)
def _ones(count: int) -> int:
    """A one in each of so many lanes."""
    return int.from_bytes(array("Q", [1]) * count, sys.byteorder)
