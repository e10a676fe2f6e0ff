"""A key's partition exactly as Kafka's clients choose it: murmur2, seed 0x9747b28c, sign bit cleared, modulo.

Algorithm: ``org.apache.kafka.common.utils.Utils.murmur2`` (Austin Appleby's MurmurHash2, 32 bits). Two
forms with the same result: one key in plain Python, and many keys at once in numpy when that is installed.
"""

from __future__ import annotations

import functools
import importlib.util
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HASH_MAX = 0x7FFFFFFF
"""The largest routing hash; hashes are 31 bits wide."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF
_VECTOR_KEYS_MIN = 64  # below this the fixed cost of numpy exceeds what it saves
_VECTOR_KEY_BYTES_MAX = 256  # one step per 4 bytes of the longest key


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


def routing_hashes(keys: Sequence[bytes]) -> Sequence[int]:
    """:func:`routing_hash` of every key, by numpy when it is installed and it pays; always a list of ints."""
    if len(keys) >= _VECTOR_KEYS_MIN and _has_numpy() and max(map(len, keys)) <= _VECTOR_KEY_BYTES_MAX:
        return _routing_hashes_numpy(keys)
    return [routing_hash(key) for key in keys]


@functools.cache
def _has_numpy() -> bool:
    return importlib.util.find_spec("numpy") is not None


def _routing_hashes_numpy(keys: Sequence[bytes]) -> list[int]:
    """All keys side by side, one 4-byte word of each per step.

    Longest keys first, so that the keys that still have a word at step ``i`` are a prefix of the columns.
    """
    import numpy as np

    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    starts = np.cumsum(lengths) - lengths
    buffer = b"".join(keys) + b"\0\0\0\0"  # so that a word may be read from any position
    words_at: NDArray[np.uint32] = np.ndarray((len(buffer) - 3,), np.dtype("<u4"), buffer, strides=(1,))
    order = np.argsort(-lengths, kind="stable")
    lengths, starts = lengths[order], starts[order]
    words = lengths >> 2
    m = np.uint32(_M)
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    for step in range(int(words[0])):
        active = int(np.searchsorted(-words, -step, side="left"))
        k = words_at[starts[:active] + 4 * step] * m
        k ^= k >> np.uint32(_R)
        h[:active] = (h[:active] * m) ^ (k * m)
    tail_bytes = lengths & 3
    tail_masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
    tail = words_at[starts + 4 * words] & tail_masks[tail_bytes]
    h = np.where(tail_bytes > 0, (h ^ tail) * m, h)
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    hashes = np.empty(len(keys), np.int64)
    hashes[order] = h & np.uint32(HASH_MAX)
    listed: list[int] = hashes.tolist()
    return listed
