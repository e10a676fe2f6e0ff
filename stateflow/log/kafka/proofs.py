"""The proof of membership as of this moment, asked of the client library on any thread.

The Python client guards each of its consumers: while the poll thread stands in a callback of a rebalance, another
thread's call of the same consumer waits until the callback is over. The library itself answers at once. So it is asked
past the Python client where its handle is known, which is where the native core reads its records.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from ctypes import POINTER, byref, c_char_p, c_size_t, c_void_p
from typing import Any, NamedTuple, cast

from confluent_kafka import cimpl

from stateflow.log.base import GroupMetadata
from stateflow.log.kafka.client_log import client_log

_MAGIC = b"CGMDv2:"
"""How librdkafka begins what it writes; the generation's four bytes follow, then group, member and instance."""
_GENERATION = struct.Struct("=i")


def renewed(proof: GroupMetadata, now: GroupMetadata | None) -> GroupMetadata:
    """What a member proves ``now`` in the place of an earlier proof, if both are the same member's.

    A coordinator gives no id twice. The earlier one stays where the other is of an older generation (it was noted
    before), of another member, or of a form that is not known.
    """
    parts, parts_now = _parts(proof), _parts(now)
    if parts is None or parts_now is None or parts.member != parts_now.member:
        return proof
    return proof if parts_now.generation < parts.generation else now


class _Parts(NamedTuple):
    generation: int
    member: bytes
    """Group, member and instance, as they are written."""


def _parts(proof: GroupMetadata | None) -> _Parts | None:
    if not isinstance(proof, bytes) or not proof.startswith(_MAGIC):
        return None
    if len(proof) < len(_MAGIC) + _GENERATION.size:
        return None
    (generation,) = _GENERATION.unpack_from(proof, len(_MAGIC))
    return _Parts(generation, proof[len(_MAGIC) + _GENERATION.size :])


class LiveProof:
    """Asks one client. Thread-safe; ``close`` comes before the client's own."""

    def __init__(self, client: int) -> None:
        self._client: int | None = client
        self._lock = threading.Lock()
        """Held for one question to the library's main thread, which answers in some tens of microseconds."""

    def ask(self) -> GroupMetadata | None:
        """The proof as of now; None when the client has none, or is about to be closed."""
        library = _library()
        with self._lock:
            if self._client is None or library is None:
                return None
            found = library.rd_kafka_consumer_group_metadata(self._client)
            if not found:
                return None
            try:
                return cast(GroupMetadata | None, _written(library, found))
            finally:
                library.rd_kafka_consumer_group_metadata_destroy(found)

    def close(self) -> None:
        """Nothing is asked any more on return."""
        with self._lock:
            self._client = None


def _written(library: Any, found: int) -> bytes | None:
    """The form in which the Python client takes it."""
    buffer, size = c_void_p(), c_size_t()
    error = library.rd_kafka_consumer_group_metadata_write(found, byref(buffer), byref(size))
    if error:
        client_log.info("A proof of membership cannot be written: %s", library.rd_kafka_error_string(error))
        library.rd_kafka_error_destroy(error)
        return None
    try:
        return ctypes.string_at(cast(int, buffer.value), size.value)
    finally:
        library.rd_kafka_mem_free(None, buffer)


@functools.cache
def _library() -> Any:
    """librdkafka's public functions, of which each call lets other threads of Python run; None without them."""
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "rd_kafka_consumer_group_metadata": (c_void_p, (c_void_p,)),
        "rd_kafka_consumer_group_metadata_write": (
            c_void_p,
            (c_void_p, POINTER(c_void_p), POINTER(c_size_t)),
        ),
        "rd_kafka_consumer_group_metadata_destroy": (None, (c_void_p,)),
        "rd_kafka_error_string": (c_char_p, (c_void_p,)),
        "rd_kafka_error_destroy": (None, (c_void_p,)),
        "rd_kafka_mem_free": (None, (c_void_p, c_void_p)),
    }
    try:
        found = ctypes.CDLL(cimpl.__file__)
        for name, (returned, taken) in signatures.items():
            function = getattr(found, name)
            function.restype, function.argtypes = returned, taken
    except (OSError, AttributeError) as error:
        client_log.info("Proofs of membership are taken with each poll: the client does not show %s.", error)
        return None
    return found
